/* PNG through libpng, if the build has it: every kind of PNG, as grey or colours of a byte each;
 * transparency and gamma are ignored, as in Pillow. */
#include <stdlib.h>
#include <string.h>

#include "data/image/set.h"

#ifdef SOTTO_WITH_PNG
#include <png.h>
#endif

bool png_recognise(const uint8_t *data, size_t size)
{
    return size >= 8 && memcmp(data, "\x89PNG\r\n\x1a\n", 8) == 0;
}

enum sotto_status picture_read(struct picture *out, const uint8_t *data, size_t size,
                               const char *name)
{
    *out = (struct picture){0};
    if (png_recognise(data, size))
        return png_read(out, data, size, name);
    if (ppm_recognise(data, size))
        return ppm_read(out, data, size, name);
    if (size >= 3 && memcmp(data, "\xff\xd8\xff", 3) == 0)
        return fail(SOTTO_EFORMAT, "%s is JPEG: convert it to PNG or PPM", name);
    return fail(SOTTO_EFORMAT, "%s is neither PNG nor binary PPM or PGM", name);
}

#ifdef SOTTO_WITH_PNG

/* Upper limit, since a small file may claim an image larger than the memory. */
enum { MOST_PIXELS = 1 << 26 };

/* Removes the last channel of the pixels, in place. */
static void drop_alpha(uint8_t *pixels, size_t count, size_t channels)
{
    for (size_t i = 0; i < count; i++)
        for (size_t c = 0; c < channels; c++)
            pixels[i * channels + c] = pixels[i * (channels + 1) + c];
}

static enum sotto_status read_png_image(png_image *image, struct picture *out, const char *name)
{
    const bool colour = image->format & PNG_FORMAT_FLAG_COLOR;
    const size_t count = (size_t)image->width * image->height, channels = colour ? 3 : 1;
    if (image->width > IMAGES_SIDE || image->height > IMAGES_SIDE || count > MOST_PIXELS)
        return fail(SOTTO_EFORMAT, "%s claims %u x %u pixels: want at most %d, and %d a side", name,
                    image->height, image->width, MOST_PIXELS, IMAGES_SIDE);
    image->format = colour ? PNG_FORMAT_RGBA : PNG_FORMAT_GA;
    image->flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
    uint8_t *pixels = malloc(count * (channels + 1));
    if (!pixels)
        return fail(SOTTO_ENOMEM, "no memory for %s, of %u x %u", name, image->height,
                    image->width);
    if (!png_image_finish_read(image, NULL, pixels, 0, NULL)) {
        free(pixels);
        return fail(SOTTO_EFORMAT, "%s: %s", name, image->message);
    }
    drop_alpha(pixels, count, channels);
    *out = (struct picture){(int)image->height, (int)image->width, (int)channels, pixels};
    return SOTTO_OK;
}

static bool is_colour_chunk(const uint8_t *type)
{
    static const char types[][5] = {"gAMA", "cHRM", "sRGB", "iCCP", "cICP"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (memcmp(type, types[i], 4) == 0)
            return true;
    return false;
}

/* Copies the file without the chunks about colour spaces, with which libpng would change the
 * values. Other chunks stay, for libpng to find errors in. */
static size_t copy_plain(uint8_t *to, const uint8_t *data, size_t size)
{
    enum { HEAD = 8, AROUND = 12 }; /* a chunk: length, type, data, checksum */
    size_t at = HEAD, used = HEAD;
    memcpy(to, data, HEAD);
    while (size - at >= AROUND && memcmp(data + at + 4, "IDAT", 4) != 0) {
        const uint32_t length = (uint32_t)data[at] << 24 | (uint32_t)data[at + 1] << 16 |
                                (uint32_t)data[at + 2] << 8 | data[at + 3];
        if (length > size - at - AROUND)
            break;
        if (!is_colour_chunk(data + at + 4)) {
            memcpy(to + used, data + at, AROUND + (size_t)length);
            used += AROUND + (size_t)length;
        }
        at += AROUND + (size_t)length;
    }
    memcpy(to + used, data + at, size - at);
    return used + size - at;
}

static enum sotto_status read_plain(struct picture *out, const uint8_t *data, size_t size,
                                    const char *name)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    if (!png_image_begin_read_from_memory(&image, data, size))
        return fail(SOTTO_EFORMAT, "%s: %s", name, image.message);
    enum sotto_status st = read_png_image(&image, out, name);
    png_image_free(&image);
    return st;
}

enum sotto_status png_read(struct picture *out, const uint8_t *data, size_t size, const char *name)
{
    *out = (struct picture){0};
    if (!png_recognise(data, size))
        return fail(SOTTO_EFORMAT, "%s: Not a PNG file", name);
    uint8_t *plain = malloc(size);
    if (!plain)
        return fail(SOTTO_ENOMEM, "no memory for the %zu bytes of %s", size, name);
    const enum sotto_status st = read_plain(out, plain, copy_plain(plain, data, size), name);
    free(plain);
    return st;
}

#else

enum sotto_status png_read(struct picture *out, const uint8_t *data, size_t size, const char *name)
{
    (void)data, (void)size;
    *out = (struct picture){0};
    return fail(SOTTO_EINVAL,
                "%s is PNG, and this build has no libpng: install libpng-dev and build again, or "
                "convert it to PPM",
                name);
}

#endif
