/* Files of images for tests: CIFAR, IDX and folders of PPM, whose pixels tell where they came from.
 */
#ifndef SOTTO_TESTS_DATA_PICTURES_H
#define SOTTO_TESTS_DATA_PICTURES_H

#include "data/fixture.h"
#include "data/image/images.h"

enum { CIFAR_PIXELS = 3 * 1024 };

/* A folder below the scratch one. */
static inline const char *make_folder(const char *name)
{
    static char paths[4][FILE_PATH_ROOM];
    static int turn;
    char *path = paths[turn++ % 4];
    assert_int_equal(file_join(path, scratch, name), SOTTO_OK);
    assert_int_equal(file_make_directories(path), SOTTO_OK);
    return path;
}

/* Values of image `number`, by plane, row and column. */
static inline uint8_t cifar_value(int number, int plane, int at)
{
    return (uint8_t)(number * 7 + plane * 50 + at % 32 + at / 32 * 3);
}

/* Images first .. first + count - 1, of classes `number` % 10 or, of CIFAR-100, % 100. */
static inline void make_cifar(const char *name, int first, int count, bool hundred)
{
    const size_t labels = hundred ? 2 : 1, record = labels + CIFAR_PIXELS;
    uint8_t *data = calloc((size_t)count, record);
    assert_non_null(data);
    for (int i = 0; i < count; i++) {
        uint8_t *to = data + (size_t)i * record;
        to[0] = (uint8_t)((first + i) % 10);
        to[labels - 1] = (uint8_t)((first + i) % (hundred ? 100 : 10));
        for (int k = 0; k < CIFAR_PIXELS; k++)
            to[labels + (size_t)k] = cifar_value(first + i, k / 1024, k % 1024);
    }
    make_file(name, data, (size_t)count * record);
    free(data);
}

static inline void put_number(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* Bytes of IDX: images of height x width (value i + 5 of image i at every place), or labels i % 4
 * where height is 0. The caller frees them. */
static inline uint8_t *idx_bytes(int count, int height, int width, size_t *size)
{
    const size_t head = height ? 16 : 8, each = height ? (size_t)(height * width) : 1;
    uint8_t *data = calloc(1, head + (size_t)count * each + 1);
    assert_non_null(data);
    put_number(data, height ? 0x803 : 0x801);
    put_number(data + 4, (uint32_t)count);
    if (height) {
        put_number(data + 8, (uint32_t)height);
        put_number(data + 12, (uint32_t)width);
    }
    for (size_t i = 0; i < (size_t)count * each; i++)
        data[head + i] = (uint8_t)(height ? i / each + 5 : i % 4);
    *size = head + (size_t)count * each;
    return data;
}

static inline void make_idx(const char *name, int count, int height, int width)
{
    size_t size;
    uint8_t *data = idx_bytes(count, height, width, &size);
    make_file(name, data, size);
    free(data);
}

/* Binary PPM of one colour. */
static inline void make_ppm(const char *name, int height, int width, int red, int green, int blue)
{
    char head[64];
    const int n = snprintf(head, sizeof head, "P6\n# made\n%d %d\n255\n", width, height);
    const size_t size = (size_t)n + (size_t)(3 * height * width);
    uint8_t *data = malloc(size);
    assert_non_null(data);
    memcpy(data, head, (size_t)n);
    for (int i = 0; i < height * width; i++) {
        data[n + 3 * i] = (uint8_t)red;
        data[n + 3 * i + 1] = (uint8_t)green;
        data[n + 3 * i + 2] = (uint8_t)blue;
    }
    make_file(name, data, size);
    free(data);
}

static inline struct loader *open_images(const struct data_config *config, enum data_split split)
{
    struct loader *loader;
    const struct images_setup setup = {0};
    assert_ok(images_open(&loader, config, split, &setup));
    return loader;
}

#endif
