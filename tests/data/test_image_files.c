/* Formats of image files: what they are recognised by, what they hold, and what is wrong with those
 * that are damaged. */
#include "data/image/find.h"
#include "data/pictures.h"

/* PNG of 2 x 1 colours, 1 x 2 colours that are transparent, 2 x 1 grey ones, and one whose few
 * bytes claim 16000 x 16000. */
static const uint8_t png_rgb[] = {
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44,
    0x52, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x01, 0x08, 0x02, 0x00, 0x00, 0x00, 0x7b,
    0x40, 0xe8, 0xdd, 0x00, 0x00, 0x00, 0x0f, 0x49, 0x44, 0x41, 0x54, 0x78, 0xda, 0x63, 0x60,
    0x64, 0x62, 0xfe, 0xf5, 0xfb, 0x0f, 0x00, 0x06, 0x03, 0x02, 0xf8, 0xf7, 0xed, 0x11, 0xf1,
    0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82};
static const uint8_t png_rgba[] = {
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44,
    0x52, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x02, 0x08, 0x06, 0x00, 0x00, 0x00, 0x99,
    0x81, 0xb6, 0x27, 0x00, 0x00, 0x00, 0x12, 0x49, 0x44, 0x41, 0x54, 0x78, 0xda, 0x63, 0xe0,
    0xe4, 0x60, 0x67, 0x60, 0x88, 0x0a, 0x70, 0x6b, 0x00, 0x00, 0x04, 0x30, 0x01, 0x89, 0xba,
    0x93, 0x92, 0xbb, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82};
static const uint8_t png_grey[] = {
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48,
    0x44, 0x52, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x01, 0x08, 0x00, 0x00, 0x00,
    0x00, 0xd1, 0x49, 0x20, 0x56, 0x00, 0x00, 0x00, 0x0b, 0x49, 0x44, 0x41, 0x54, 0x78,
    0xda, 0x63, 0x60, 0x3f, 0x01, 0x00, 0x00, 0xd9, 0x00, 0xd0, 0x44, 0x02, 0x55, 0xdb,
    0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82};
static const uint8_t png_huge[] = {
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48,
    0x44, 0x52, 0x00, 0x00, 0x3e, 0x80, 0x00, 0x00, 0x3e, 0x80, 0x08, 0x02, 0x00, 0x00,
    0x00, 0xce, 0x1c, 0x48, 0x89, 0x00, 0x00, 0x00, 0x0c, 0x49, 0x44, 0x41, 0x54, 0x78,
    0xda, 0x63, 0x60, 0xa0, 0x3d, 0x00, 0x00, 0x00, 0x64, 0x00, 0x01, 0xb8, 0x99, 0xef,
    0x99, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82};

static bool missing(const char *what)
{
    if (!strstr(sotto_error(), "this build has no "))
        return false;
    print_message("skipped: this build has no %s\n", what);
    return true;
}

static struct image_set read_all(const char *train)
{
    static struct data_config config;
    struct loader *l;
    config_source(&config, train);
    config.holdout = 0;
    l = open_images(&config, DATA_TRAIN);
    struct image_set set = *images_set(l);
    const size_t pixels = (size_t)set.count * image_set_bytes(&set);
    const size_t labels = (size_t)set.count * sizeof *set.labels;
    set.pixels = malloc(pixels);
    set.labels = malloc(labels);
    assert_true(set.pixels && set.labels);
    memcpy(set.pixels, images_set(l)->pixels, pixels);
    memcpy(set.labels, images_set(l)->labels, labels);
    loader_close(l);
    return set; /* of which only sizes, pixels and labels are there still */
}

static enum sotto_status try_open(const char *train, enum data_split split, int size)
{
    static struct data_config config;
    struct loader *l;
    config_source(&config, train);
    config.image_size = size;
    strcpy(config.mean, "0.5");
    strcpy(config.std, "0.5");
    const struct images_setup setup = {0};
    enum sotto_status st = images_open(&l, &config, split, &setup);
    if (st == SOTTO_OK)
        loader_close(l);
    return st;
}

static uint32_t crc32_of(const uint8_t *data, size_t size)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

/* gzip that compresses nothing: one stored block. */
static size_t gzip(const uint8_t *data, size_t size, uint8_t *out)
{
    const uint8_t head[] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1};
    const uint32_t ends[] = {crc32_of(data, size), (uint32_t)size};
    size_t n = sizeof head;
    assert_true(size < 65536);
    memcpy(out, head, n);
    out[n++] = (uint8_t)size;
    out[n++] = (uint8_t)(size >> 8);
    out[n++] = (uint8_t)~size;
    out[n++] = (uint8_t)(~size >> 8);
    memcpy(out + n, data, size);
    n += size;
    for (int i = 0; i < 8; i++)
        out[n++] = (uint8_t)(ends[i / 4] >> 8 * (i % 4));
    return n;
}

/* Both files of IDX, each plain or compressed. */
static void idx_files(void **state)
{
    (void)state;
    const char *folder = make_folder("idx");
    char path[FILE_PATH_ROOM];
    size_t size;
    make_idx("idx/train-images-idx3-ubyte", 9, 2, 3);
    make_idx("idx/train-labels-idx1-ubyte", 9, 0, 0);
    make_idx("idx/t10k-images-idx3-ubyte", 5, 2, 3);
    uint8_t packed[256], *labels = idx_bytes(5, 0, 0, &size);
    size = gzip(labels, size, packed);
    make_file("idx/t10k-labels-idx1-ubyte.gz", packed, size);
    free(labels);
    struct image_set set = read_all(folder);
    assert_int_equal(set.count, 9);
    assert_int_equal(set.classes, 4);
    assert_true(set.height == 2 && set.width == 3 && set.channels == 1);
    for (int i = 0; i < 9 * 6; i++)
        assert_int_equal(set.pixels[i], i / 6 + 5);
    for (int i = 0; i < 9; i++)
        assert_int_equal(set.labels[i], i % 4);
    free(set.pixels);
    free(set.labels);
    assert_int_equal(image_format_of(folder), DATA_IDX);
    assert_ok(file_join(path, folder, "t10k-images-idx3-ubyte"));
    assert_int_equal(image_format_of(path), DATA_IDX);
    if (try_open(folder, DATA_VALID, 0) == SOTTO_OK || missing("zlib"))
        return;
    fail_with("%s", sotto_error());
}

static void cifar_100(void **state)
{
    (void)state;
    const char *folder = make_folder("cifar100");
    make_cifar("cifar100/train.bin", 95, 7, true);
    make_cifar("cifar100/test.bin", 0, 2, true);
    assert_int_equal(image_format_of(folder), DATA_CIFAR100);
    struct image_set set = read_all(folder);
    assert_int_equal(set.count, 7);
    assert_int_equal(set.classes, 100);
    assert_int_equal(set.pixels[3 * 33 + 2], cifar_value(95, 2, 33));
    for (int i = 0; i < 7; i++) /* of two labels, the fine one */
        assert_int_equal(set.labels[i], (95 + i) % 100);
    free(set.pixels);
    free(set.labels);
    /* Tokens are called train.bin, too. */
    make_folder("tokens");
    make_counting("tokens/train.bin", 0, 500, 500);
    assert_int_equal(image_format_of(make_folder("tokens")), DATA_AUTO);
    assert_int_equal(image_format_of("nowhere"), DATA_AUTO);
    /* Folders with folders in them hold images where one of these does. */
    static const char jpeg[] = "\xff\xd8\xff\xe0";
    make_folder("home");
    make_folder("home/letters");
    make_folder("home/photos");
    make_file("home/letters/a.txt", "text", 4);
    make_file("home/photos/empty", "", 0);
    assert_int_equal(image_format_of(make_folder("home")), DATA_AUTO);
    make_file("home/photos/some.jpg", jpeg, 4);
    assert_int_equal(image_format_of(make_folder("home")), DATA_IMAGES);
}

/* Classes are folders, sorted; train/ and val/ beside each other, or held out of each class. */
static void class_folders(void **state)
{
    (void)state;
    static struct data_config config;
    make_folder("set");
    struct loader *l, *valid;
    struct batch b;
    make_folder("set/train/dog");
    make_folder("set/train/cat");
    make_folder("set/val/dog");
    make_ppm("set/train/dog/1.ppm", 2, 3, 10, 20, 30);
    make_ppm("set/train/cat/b.ppm", 2, 3, 40, 50, 60);
    make_ppm("set/train/cat/a.ppm", 2, 3, 70, 80, 90);
    make_file("set/train/dog/2.pgm", "P5 3 2 255 abcdef", 17);
    make_ppm("set/val/dog/x.ppm", 2, 3, 1, 2, 3);
    config_source(&config, make_folder("set"));
    strcpy(config.mean, "0");
    strcpy(config.std, "1");
    l = open_images(&config, DATA_TRAIN);
    assert_int_equal(loader_tokens(l), 4);
    assert_int_equal(images_set(l)->classes, 2);
    assert_string_equal(images_set(l)->names[0], "cat");
    assert_int_equal(images_set(l)->n_sources, 2);
    assert_ok(batch_init_of(&b, &l->sample, 4, 1));
    assert_ok(loader_fill_in_order(l, 0, 4, 1, &b));
    static const int labels[] = {0, 0, 1, 1}, blue[] = {90, 60, 30, 'a'};
    for (int row = 0; row < 4; row++) {
        assert_int_equal(b.targets[row], labels[row]);
        assert_true(b.floats[row * 18 + 2] == (float)blue[row] / 255);
    }
    assert_ok(images_open_valid(&valid, l, &config));
    assert_ok(loader_fill_in_order(valid, 0, 4, 1, &b));
    assert_int_equal(b.rows, 1);
    assert_int_equal(b.targets[0], 1); /* dog, though it is the only class there */
    loader_close(valid);
    make_folder("set/val/emu");
    make_ppm("set/val/emu/x.ppm", 2, 3, 1, 2, 3);
    assert_fails(images_open_valid(&valid, l, &config), SOTTO_EFORMAT,
                 "a class 'emu' that the training images have not");
    loader_close(l);
    batch_free(&b);
    /* Of the classes themselves, one image of each is held out. */
    assert_ok(file_join(config.train, make_folder("set"), "train"));
    l = open_images(&config, DATA_TRAIN);
    assert_int_equal(loader_tokens(l), 2);
    assert_ok(images_open_valid(&valid, l, &config));
    assert_int_equal(loader_tokens(valid), 2);
    loader_close(valid);
    loader_close(l);
    make_ppm("set/train/dog/3.ppm", 4, 3, 0, 0, 0);
    assert_fails(try_open(config.train, DATA_TRAIN, 0), SOTTO_EFORMAT,
                 "3.ppm is of 4 x 3, the images before it of 2 x 3: set image_size");
    assert_ok(try_open(config.train, DATA_TRAIN, 5));
}

/* The model's numbers for classes by their names, as far as it is asked for that. */
static void classes_of_a_model(void **state)
{
    (void)state;
    static char *const model[] = {"emu", "dog", "cat"}, *const same[] = {"dog", "cat"},
                       *const others[] = {"ant", "dog"};
    static const struct {
        enum images_naming naming;
        char *const *names;
        int n, cat; /* which label the first image has; -1: refused */
    } cases[] = {{NAMING_ONLY, model, 3, 2},  {NAMING_KNOWN, model, 3, 2},
                 {NAMING_SAME, model, 3, 0},  {NAMING_SAME, same, 2, 1},
                 {NAMING_SAME, others, 2, 0}, {NAMING_KNOWN, others, 2, 0},
                 {NAMING_OWN, NULL, 0, 0},    {NAMING_ONLY, others, 2, -1}};
    struct data_config config;
    make_folder("named/dog");
    make_folder("named/cat");
    make_ppm("named/cat/1.ppm", 2, 3, 10, 20, 30);
    make_ppm("named/dog/1.ppm", 2, 3, 10, 20, 30);
    config_source(&config, make_folder("named"));
    config.holdout = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct images_setup setup = {
            .naming = cases[i].naming, .names = cases[i].names, .classes = cases[i].n};
        struct loader *l;
        if (cases[i].cat < 0) {
            assert_fails(images_open(&l, &config, DATA_TRAIN, &setup), SOTTO_EINVAL,
                         "classes that the model does not know: 'cat'; it knows 'ant', 'dog'");
            continue;
        }
        assert_ok(images_open(&l, &config, DATA_TRAIN, &setup));
        assert_int_equal(images_set(l)->labels[0], cases[i].cat);
        assert_string_equal(images_set(l)->names[cases[i].cat], "cat");
        loader_close(l);
    }
}

/* Linear light, of which Pillow and torchvision take no notice either. */
static void png_gamma(void **state)
{
    (void)state;
    static const uint8_t gamma[] = {0x00, 0x00, 0x00, 0x04, 0x67, 0x41, 0x4d, 0x41,
                                    0x00, 0x01, 0x86, 0xa0, 0x31, 0xe8, 0x96, 0x5f};
    enum { BEFORE = 33 }; /* signature and IHDR */
    uint8_t file[sizeof png_rgb + sizeof gamma];
    struct picture p;
    memcpy(file, png_rgb, BEFORE);
    memcpy(file + BEFORE, gamma, sizeof gamma);
    memcpy(file + BEFORE + sizeof gamma, png_rgb + BEFORE, sizeof png_rgb - BEFORE);
    if (png_read(&p, file, sizeof file, "x.png") != SOTTO_OK && missing("libpng"))
        return;
    assert_memory_equal(p.pixels, ((uint8_t[]){1, 2, 3, 250, 251, 252}), 6);
    free(p.pixels);
    file[BEFORE] = 0xff; /* a length beyond the end */
    assert_fails(png_read(&p, file, sizeof file, "x.png"), SOTTO_EFORMAT, "x.png: ");
    for (size_t size = 0; size < BEFORE + sizeof gamma; size++)
        assert_int_equal(png_read(&p, file, size, "x.png"), SOTTO_EFORMAT);
}

static void png_files(void **state)
{
    (void)state;
    struct picture p;
    if (png_read(&p, png_rgb, sizeof png_rgb, "x.png") != SOTTO_OK && missing("libpng"))
        return;
    assert_true(p.height == 1 && p.width == 2 && p.channels == 3);
    assert_memory_equal(p.pixels, ((uint8_t[]){1, 2, 3, 250, 251, 252}), 6);
    free(p.pixels);
    assert_ok(picture_read(&p, png_rgba, sizeof png_rgba, "x.png"));
    assert_true(p.height == 2 && p.width == 1 && p.channels == 3);
    assert_memory_equal(p.pixels, ((uint8_t[]){9, 8, 7, 90, 80, 70}), 6);
    free(p.pixels);
    assert_ok(picture_read(&p, png_grey, sizeof png_grey, "x.png"));
    assert_int_equal(p.channels, 1);
    assert_memory_equal(p.pixels, ((uint8_t[]){7, 200}), 2);
    free(p.pixels);
    assert_fails(png_read(&p, png_huge, sizeof png_huge, "x.png"), SOTTO_EFORMAT,
                 "x.png claims 16000 x 16000 pixels");
    for (size_t size = 0; size + 13 < sizeof png_rgb;
         size++) { /* an end that is missing is no loss */
        assert_int_equal(png_read(&p, png_rgb, size, "x.png"), SOTTO_EFORMAT);
        assert_null(p.pixels);
        assert_non_null(strstr(sotto_error(), "x.png: "));
    }
}

/* What grows is interpolated, what shrinks averaged; the middle is kept, or all of it. */
static void resized(void **state)
{
    (void)state;
    uint8_t ramp[8 * 16];
    const struct picture p = {8, 16, 1, ramp};
    struct picture small = {4, 4, 1, NULL}, large = {16, 32, 1, NULL};
    for (int i = 0; i < 8 * 16; i++)
        ramp[i] = (uint8_t)(i % 16 * 10);
    assert_ok(picture_resize(&p, DATA_CROP, 1, FILTER_BILINEAR, &small));
    for (int i = 0; i < 16; i++) /* columns 4 to 11, two at a time */
        assert_int_equal(small.pixels[i], 45 + i % 4 * 20);
    free(small.pixels);
    assert_ok(picture_resize(&p, DATA_STRETCH, 1, FILTER_BILINEAR, &small));
    assert_int_equal(small.pixels[4 + 1], 55); /* columns 4 to 7, the others by their distance */
    assert_int_equal(small.pixels[4 + 2], 95);
    free(small.pixels);
    assert_ok(picture_resize(&p, DATA_STRETCH, 1, FILTER_BILINEAR, &large));
    for (int x = 1; x < 31; x++) /* a quarter before or behind a pixel's middle */
        assert_true(abs(large.pixels[5 * 32 + x] - (int)((x + 0.5) * 5 - 5)) <= 1);
    free(large.pixels);
}

/* Uneven ground, of which every pixel of the result tells where it came from. */
static void make_ground(uint8_t *pixels, int height, int width)
{
    for (int i = 0; i < height * width; i++) {
        const int y = i / width, x = i % width;
        pixels[i] = (uint8_t)(y * 41 + x * 29 + x * y * 7);
    }
}

static void assert_close(const uint8_t *have, const uint8_t *want, int count)
{
    for (int i = 0; i < count; i++)
        assert_true(abs(have[i] - want[i]) <= 1); /* Pillow rounds between the directions */
}

/* The share of the shorter side is cut out of images that have the size, too: 6 x 6 by Pillow to 8,
 * of which the 6 in the middle. */
static void middle_of_its_own_size(void **state)
{
    (void)state;
    static const uint8_t want[36] = {47,  72,  97,  122, 147, 172, 81,  110, 139, 168, 197, 190,
                                     115, 147, 176, 186, 214, 163, 148, 186, 194, 63,  72,  97,
                                     183, 163, 92,  61,  90,  130, 157, 105, 50,  95,  140, 148};
    uint8_t ground[36];
    const struct picture p = {6, 6, 1, ground};
    struct image_set set = {6, 6, 1, .resize = DATA_CROP, .given = true, .keep = 0.7};
    make_ground(ground, 6, 6);
    assert_ok(image_set_reserve(&set, 2, 6, 6, 1));
    assert_ok(image_set_put(&set, &p, 0, "ground"));
    assert_close(set.pixels, want, 36);
    set.resize = DATA_STRETCH; /* of which there is no share */
    assert_ok(image_set_put(&set, &p, 0, "ground"));
    assert_memory_equal(set.pixels + 36, ground, 36);
    image_set_free(&set);
}

/* Rows of `from` (width x height values) as columns of `to`. */
static void transpose_ground(const uint8_t *from, int height, int width, uint8_t *to)
{
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            to[x * height + y] = from[y * width + x];
}

/* Pixels of the whole image are cut at whole ones: 6 x 9 by Pillow to 5 x 7, columns 1 to 5; and
 * 9 x 6 to 7 x 5, rows 1 to 5. */
static void filters(void **state)
{
    (void)state;
    static const uint8_t want[][25] = {
        [FILTER_BILINEAR] = {53, 89,  131, 153, 154, 112, 157, 196, 111, 52,  171, 144, 141,
                             96, 151, 154, 70,  111, 186, 160, 61,  105, 160, 74,  118},
        [FILTER_BICUBIC] = {47, 85,  127, 157, 159, 106, 167, 218, 114, 29,  182, 149, 138,
                            80, 167, 163, 50,  100, 206, 166, 43,  113, 174, 62,  115},
        [FILTER_LANCZOS] = {47, 79,  123, 163, 155, 101, 171, 234, 111, 14,  190, 158, 131,
                            65, 182, 171, 34,  89,  223, 170, 32,  119, 182, 62,  112},
        [FILTER_BOX] = {44, 87,  116, 145, 189, 95,  149, 185, 221, 19,  173, 114, 161,
                        79, 149, 122, 79,  136, 193, 151, 45,  141, 205, 13,  109},
        [FILTER_HAMMING] = {44, 84,  120, 153, 181, 103, 154, 198, 142, 41,  168, 134, 155,
                            90, 153, 152, 65,  121, 190, 146, 45,  122, 190, 39,  116},
        [FILTER_NEAREST] = {29,  87,  116, 145, 203, 77,  149, 185, 221, 37,  173, 17, 67,
                            117, 217, 221, 79,  136, 193, 51,  13,  141, 205, 13,  141},
    };
    uint8_t ground[54], turned[54], want_turned[25];
    const struct picture p = {6, 9, 1, ground}, tall = {9, 6, 1, turned};
    make_ground(ground, 6, 9);
    transpose_ground(ground, 6, 9, turned);
    for (int f = 0; f <= FILTER_NEAREST; f++) {
        struct picture out = {5, 5, 1, NULL};
        assert_ok(picture_resize(&p, DATA_CROP, 1, (enum picture_filter)f, &out));
        assert_close(out.pixels, want[f], 25);
        free(out.pixels);
        transpose_ground(want[f], 5, 5, want_turned);
        assert_ok(picture_resize(&tall, DATA_CROP, 1, (enum picture_filter)f, &out));
        assert_close(out.pixels, want_turned, 25);
        free(out.pixels);
        out = (struct picture){15, 5, 1, NULL}; /* of which centres lie between two pixels */
        assert_ok(picture_resize(&p, DATA_STRETCH, 1, (enum picture_filter)f, &out));
        for (int i = 0; i < 5 && f == FILTER_BOX; i++)
            assert_int_equal(out.pixels[2 * 5 + i], out.pixels[3 * 5 + i]);
        free(out.pixels);
    }
}

/* What is cut out of images of any shape is the middle of the whole image, whose shorter side is
 * brought to a length, and the longer one with it, or which is as large as fills what is cut. */
static void middles(void **state)
{
    (void)state;
    static const struct {
        int height, width, edge, whole_height, whole_width, out_height, out_width;
    } cases[] = {
        {6, 9, 5, 5, 7, 4, 4}, {6, 9, 5, 5, 7, 3, 5}, {6, 9, 5, 5, 7, 5, 3}, {9, 6, 5, 7, 5, 5, 3},
        {9, 6, 5, 7, 5, 3, 5}, {8, 8, 6, 6, 6, 5, 4}, {8, 8, 6, 6, 6, 4, 5}, {8, 8, 4, 6, 6, 4, 6},
        {8, 8, 4, 6, 6, 6, 4}, {6, 9, 4, 6, 9, 6, 4}, {9, 6, 4, 9, 6, 4, 6}, {6, 9, 4, 4, 6, 4, 6},
        {4, 9, 3, 3, 6, 3, 5}, {4, 9, 3, 4, 9, 4, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int height = cases[i].out_height, width = cases[i].out_width;
        uint8_t ground[128], want[64];
        const struct picture p = {cases[i].height, cases[i].width, 1, ground};
        struct picture whole = {cases[i].whole_height, cases[i].whole_width, 1, NULL};
        struct picture out = {height, width, 1, NULL};
        make_ground(ground, p.height, p.width);
        assert_ok(picture_resize(&p, DATA_STRETCH, 1, FILTER_BILINEAR, &whole));
        const int down = (whole.height - height) / 2, right = (whole.width - width) / 2;
        for (int y = 0; y < height; y++)
            for (int x = 0; x < width; x++)
                want[y * width + x] = whole.pixels[(y + down) * whole.width + x + right];
        const double keep = (double)(height < width ? height : width) / cases[i].edge;
        assert_ok(picture_resize(&p, DATA_CROP, keep, FILTER_BILINEAR, &out));
        assert_close(out.pixels, want, height * width);
        free(whole.pixels);
        free(out.pixels);
    }
}

static const char *damaged(const char *name, const void *data, size_t size)
{
    make_folder("bad");
    char path[64];
    snprintf(path, sizeof path, "bad/%s", name);
    return make_file(path, data, size);
}

static void hostile_cifar(void **state)
{
    (void)state;
    static uint8_t data[3 * 3073];
    data[3073] = 9;
    assert_ok(try_open(damaged("data_batch_1.bin", data, 2 * 3073), DATA_TRAIN, 0));
    data[3073] = 10;
    assert_fails(try_open(damaged("data_batch_1.bin", data, 2 * 3073), DATA_TRAIN, 0),
                 SOTTO_EFORMAT, "image 1 has label 10, CIFAR-10 has 10 classes");
    assert_fails(try_open(damaged("data_batch_1.bin", data, 3073 + 3072), DATA_TRAIN, 0),
                 SOTTO_EFORMAT, "has 6145 bytes: CIFAR-10 has records of 3073");
    assert_fails(try_open(damaged("data_batch_1.bin", data, 0), DATA_TRAIN, 0), SOTTO_EFORMAT,
                 "has 0 bytes");
    assert_fails(try_open(damaged("other.bin", data, 1000), DATA_TRAIN, 0), SOTTO_EFORMAT,
                 "other.bin is no set of images");
    assert_fails(try_open("nowhere.bin", DATA_TRAIN, 0), SOTTO_EIO, "nowhere.bin");
    assert_fails(try_open(make_folder("empty"), DATA_TRAIN, 0), SOTTO_EFORMAT,
                 "holds no images that are known");
    assert_fails(try_open("", DATA_TRAIN, 0), SOTTO_EINVAL, "--data.train=FOLDER");
    assert_fails(try_open(damaged("data_batch_1.bin", data, 3073), DATA_TRAIN, 0), SOTTO_EINVAL,
                 "leaves none to train on");
}

/* A header with one number changed, before `size` bytes. */
static enum sotto_status changed_idx(bool labels, size_t at, uint32_t value, size_t size)
{
    size_t whole[2];
    uint8_t *images = idx_bytes(6, 3, 4, &whole[0]), *marks = idx_bytes(6, 0, 0, &whole[1]);
    struct image_set set = {0};
    put_number((labels ? marks : images) + at, value);
    whole[labels] = size < whole[labels] ? size : whole[labels];
    enum sotto_status st = idx_read(&set, images, whole[0], "i", marks, whole[1], "l");
    image_set_free(&set);
    free(images);
    free(marks);
    return st;
}

static void hostile_idx(void **state)
{
    (void)state;
    assert_ok(changed_idx(false, 0, 0x803, 1000));
    assert_fails(changed_idx(false, 0, 0xd03, 1000), SOTTO_EFORMAT, "i begins with 0x00000d03");
    assert_fails(changed_idx(true, 0, 0x803, 1000), SOTTO_EFORMAT, "l begins with 0x00000803");
    assert_fails(changed_idx(false, 4, 0, 1000), SOTTO_EFORMAT, "i holds no images");
    assert_fails(changed_idx(true, 4, 0, 1000), SOTTO_EFORMAT, "l holds no labels");
    assert_fails(changed_idx(false, 4, 7, 1000), SOTTO_EFORMAT,
                 "header claims 7 images, 100 bytes");
    assert_fails(changed_idx(false, 4, ~0u, 1000), SOTTO_EFORMAT,
                 "header claims 4294967295 images");
    assert_fails(changed_idx(false, 8, 0, 1000), SOTTO_EFORMAT, "i claims images of 0 x 4");
    assert_fails(changed_idx(false, 12, ~0u, 1000), SOTTO_EFORMAT, "i claims images of 3 x 42949");
    assert_fails(changed_idx(false, 0, 0x803, 87), SOTTO_EFORMAT, "i has 87 bytes, but");
    assert_fails(changed_idx(false, 0, 0x803, 15), SOTTO_EFORMAT, "i has 15 bytes");
    assert_fails(changed_idx(true, 0, 0x801, 13), SOTTO_EFORMAT, "l has 13 bytes, but");
    assert_fails(changed_idx(true, 0, 0x801, 0), SOTTO_EFORMAT, "l has 0 bytes");
    struct image_set set = {0};
    size_t sizes[2];
    uint8_t *images = idx_bytes(6, 3, 4, &sizes[0]), *labels = idx_bytes(5, 0, 0, &sizes[1]);
    assert_fails(idx_read(&set, images, sizes[0], "i", labels, sizes[1], "l"), SOTTO_EFORMAT,
                 "i has 6 images, l 5 labels");
    image_set_free(&set);
    free(images);
    free(labels);
    make_folder("bad");
    make_idx("bad/alone-images-idx3-ubyte", 3, 2, 2);
    char path[FILE_PATH_ROOM];
    assert_ok(file_join(path, make_folder("bad"), "alone-images-idx3-ubyte"));
    assert_fails(try_open(path, DATA_TRAIN, 0), SOTTO_EIO, "alone-labels-idx1-ubyte");
    assert_fails(idx_labels_path("images/train-idx3-ubyte", path), SOTTO_EFORMAT, "is not known");
    assert_fails(idx_labels_path("train-images", path), SOTTO_EFORMAT, "is not known");
}

/* Compressed files that end, go on, claim more than they have, or are damaged. */
static void hostile_gzip(void **state)
{
    (void)state;
    uint8_t packed[512], *out;
    size_t size, n;
    uint8_t *images = idx_bytes(6, 3, 4, &size);
    n = gzip(images, size, packed);
    if (image_inflate(packed, n, "i.gz", &out, &size) != SOTTO_OK && missing("zlib")) {
        free(images);
        return;
    }
    assert_int_equal(size, 88);
    assert_memory_equal(out, images, size);
    free(out);
    for (size_t cut = 0; cut < n; cut++)
        assert_int_equal(image_inflate(packed, cut, "i.gz", &out, &size), SOTTO_EFORMAT);
    packed[40] ^= 1;
    assert_fails(image_inflate(packed, n, "i.gz", &out, &size), SOTTO_EFORMAT,
                 "i.gz: its compressed bytes are damaged");
    put_number(images + 4, 7);
    n = gzip(images, 88, packed);
    assert_fails(image_inflate(packed, n, "i.gz", &out, &size), SOTTO_EFORMAT,
                 "i.gz ends after 88 bytes, but its header claims 100");
    put_number(images + 4, 0xffffffff);
    put_number(images + 8, 1 << 14);
    put_number(images + 12, 1 << 14);
    n = gzip(images, 88, packed);
    assert_fails(image_inflate(packed, n, "i.gz", &out, &size), SOTTO_EFORMAT, "ends after 88");
    put_number(images + 4, 1);
    put_number(images + 8, 3);
    put_number(images + 12, 4);
    n = gzip(images, 88, packed);
    assert_fails(image_inflate(packed, n, "i.gz", &out, &size), SOTTO_EFORMAT,
                 "i.gz continues after the 28 bytes");
    n = gzip((const uint8_t *)"some text", 9, packed);
    assert_fails(image_inflate(packed, n, "i.gz", &out, &size), SOTTO_EFORMAT, "are not IDX");
    assert_null(out);
    free(images);
}

static void hostile_pictures(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } bad[] = {
        {"P6 2 1 255 abcde", "x ends too soon: 1 x 2 x 3 values need 6 bytes after the header, "
                             "there are 5"},
        {"P6 2 1 255", "there are 0"},
        {"P6 99999999 1 255 abc", "want a width and a height of 1 to 16384"},
        {"P6 0 1 255 abc", "want a width and a height"},
        {"P6 16384 16384 255 abc", "there are 3"},
        {"P6 2 1 65535 abcdefabcdef", "want values of one byte"},
        {"P6 2", "want a width and a height"},
        {"P6 # 2 1 255", "want a width and a height"},
        {"P3 1 1 255 1 2 3", "x is neither PNG nor binary PPM or PGM"},
        {"\xff\xd8\xff\xe0", "x is JPEG"},
        {"", "x is neither"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct picture p;
        assert_fails(picture_read(&p, (const uint8_t *)bad[i].text, strlen(bad[i].text), "x"),
                     SOTTO_EFORMAT, bad[i].part);
        assert_null(p.pixels);
    }
    struct picture p;
    assert_ok(picture_read(&p, (const uint8_t *)"P5\n2\n1\n5\n\x05\x02", 11, "x"));
    assert_true(p.pixels[0] == 255 && p.pixels[1] == 102);
    free(p.pixels);
    make_folder("classes/a");
    make_ppm("classes/a/1.ppm", 2, 2, 1, 2, 3);
    make_ppm("classes/a/2.ppm", 2, 2, 1, 2, 3);
    make_folder("classes/b");
    assert_fails(try_open(make_folder("classes"), DATA_TRAIN, 0), SOTTO_EFORMAT,
                 "classes/b has no images");
    make_text("classes/b/notes.txt", "hello");
    assert_fails(try_open(make_folder("classes"), DATA_TRAIN, 0), SOTTO_EFORMAT,
                 "notes.txt is neither PNG");
}

/* Too much for the memory is said before it is taken. */
static void too_large(void **state)
{
    (void)state;
    struct image_set set = {.height = 1 << 14, .width = 1 << 14, .given = true};
    assert_fails(image_set_reserve(&set, (int64_t)1 << 30, 1, 1, 3), SOTTO_ENOMEM,
                 "images of 16384 x 16384 x 3 take");
    image_set_free(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idx_files),     cmocka_unit_test(cifar_100),
        cmocka_unit_test(class_folders), cmocka_unit_test(png_files),
        cmocka_unit_test(png_gamma),     cmocka_unit_test(classes_of_a_model),
        cmocka_unit_test(resized),       cmocka_unit_test(middle_of_its_own_size),
        cmocka_unit_test(filters),       cmocka_unit_test(middles),
        cmocka_unit_test(hostile_cifar), cmocka_unit_test(hostile_idx),
        cmocka_unit_test(hostile_gzip),  cmocka_unit_test(hostile_pictures),
        cmocka_unit_test(too_large),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
