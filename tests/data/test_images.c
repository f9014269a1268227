/* Loaders of images as functions of their place: which image, changed in which way, of which split
 * and for whom. */
#include <math.h>

#include "data/pictures.h"

/* A value of CIFAR image `number` as the batch has it without a mean. */
static float seen(int number, int plane, int at)
{
    return (float)cifar_value(number, plane, at) / 255;
}

/* Images that are as they are, but for their mean of 0. */
static void plain(struct data_config *config, const char *train)
{
    config_source(config, train);
    strcpy(config->mean, "0");
    strcpy(config->std, "1");
}

static struct data_config *cifar_folder(void)
{
    static struct data_config config;
    const char *folder = make_folder("cifar");
    make_cifar("cifar/data_batch_1.bin", 0, 30, false);
    make_cifar("cifar/data_batch_2.bin", 30, 23, false);
    make_cifar("cifar/test_batch.bin", 100, 11, false);
    make_text("cifar/readme.html", "not a part of it");
    plain(&config, folder);
    return &config;
}

/* Which image a row has, by its first pixel (7 is a unit of 256, so 256 numbers differ). */
static int number_of(const struct batch *b, int row)
{
    const float first = b->floats[(size_t)row * CIFAR_PIXELS];
    for (int i = 0; i < 200; i++)
        if (first == seen(i, 0, 0))
            return i;
    return -1;
}

static void values_and_labels(void **state)
{
    (void)state;
    struct loader *train = open_images(cifar_folder(), DATA_TRAIN), *valid;
    struct batch b;
    assert_int_equal(loader_tokens(train), 53);
    assert_int_equal(train->sample.content, SAMPLE_FLOATS);
    assert_int_equal(train->sample.dims[0] * train->sample.dims[1] * train->sample.dims[2], 3072);
    assert_int_equal(images_set(train)->classes, 10);
    assert_ok(batch_init_of(&b, &train->sample, 8, 1));
    assert_int_equal(loader_batches(train, 8, 1), 7);
    for (int64_t i = 0; i < 7; i++) {
        assert_ok(loader_fill_in_order(train, i, 8, 1, &b));
        assert_int_equal(b.rows, i < 6 ? 8 : 5);
        assert_int_equal(b.n_targets, b.rows);
        for (int row = 0; row < b.rows; row++) {
            const int number = (int)i * 8 + row;
            assert_int_equal(b.targets[row], number % 10);
            for (int k = 0; k < CIFAR_PIXELS; k++)
                assert_true(b.floats[row * CIFAR_PIXELS + k] == seen(number, k % 3, k / 3));
        }
    }
    assert_ok(images_open_valid(&valid, train, cifar_folder())); /* the test part, nothing else */
    assert_int_equal(loader_tokens(valid), 11);
    assert_ok(loader_fill_in_order(valid, 1, 8, 1, &b));
    assert_int_equal(b.rows, 3);
    assert_int_equal(number_of(&b, 0), 108);
    loader_close(valid);
    loader_close(train);
    batch_free(&b);
}

/* Over all ranks, each image once before any is seen twice; another order every time. */
static void each_once_an_epoch(void **state)
{
    (void)state;
    struct loader *l = open_images(cifar_folder(), DATA_TRAIN);
    struct batch b, again;
    int orders[2][53], n = 0, counts[53] = {0};
    assert_ok(batch_init_of(&b, &l->sample, 4, 1));
    assert_ok(batch_init_of(&again, &l->sample, 4, 1));
    for (int64_t index = 0; n < 2 * 53; index++)
        for (int rank = 0; rank < 3; rank++) {
            const struct loader_place place = {5, index, rank, 3};
            assert_ok(loader_fill(l, place, 4, 1, &b));
            assert_ok(loader_fill(l, place, 4, 1, &again));
            assert_memory_equal(b.floats, again.floats, 4 * CIFAR_PIXELS * sizeof *b.floats);
            for (int row = 0; row < 4 && n < 2 * 53; row++, n++) {
                const int number = number_of(&b, row);
                assert_int_equal(b.targets[row], number % 10);
                assert_int_equal(counts[number]++, n / 53);
                orders[n / 53][n % 53] = number;
            }
        }
    assert_memory_not_equal(orders[0], orders[1], sizeof orders[0]);
    batch_free(&b);
    batch_free(&again);
    loader_close(l);
}

/* Without a test part the end of every source is held out, read once and by nobody else. */
static void held_out(void **state)
{
    (void)state;
    struct data_config *config = cifar_folder();
    char second[FILE_PATH_ROOM];
    assert_ok(file_join(second, config->train, "data_batch_2.bin"));
    strcat(config->train, "/data_batch_1.bin, ");
    strcat(config->train, second);
    config->holdout = 0.1;
    struct loader *train = open_images(config, DATA_TRAIN), *valid, *alone;
    struct batch b;
    assert_ok(images_open_valid(&valid, train, config));
    alone = open_images(config, DATA_VALID);
    assert_int_equal(loader_tokens(train), 27 + 21);
    assert_int_equal(loader_tokens(valid), 3 + 2);
    assert_int_equal(loader_tokens(alone), 3 + 2);
    assert_ptr_equal(images_set(valid)->pixels, images_set(train)->pixels);
    assert_ok(batch_init_of(&b, &train->sample, 5, 1));
    for (int i = 0; i < 2; i++) {
        static const int want[] = {27, 28, 29, 51, 52};
        assert_ok(loader_fill_in_order(i ? alone : valid, 0, 5, 1, &b));
        for (int row = 0; row < 5; row++)
            assert_int_equal(number_of(&b, row), want[row]);
    }
    for (int i = 0; i < 40; i++) {
        assert_ok(loader_fill(train, (struct loader_place){1, i, 0, 1}, 5, 1, &b));
        for (int row = 0; row < 5; row++) {
            const int number = number_of(&b, row);
            assert_true((number < 27 || number >= 30) && number < 51);
        }
    }
    loader_close(alone);
    loader_close(valid);
    loader_close(train);
    config->holdout = 0;
    train = open_images(config, DATA_TRAIN);
    assert_ok(images_open_valid(&valid, train, config));
    assert_null(valid);
    loader_close(train);
    batch_free(&b);
}

/* sharding = source: each worker its own file; more workers than files share them. */
static void by_source(void **state)
{
    (void)state;
    struct data_config *config = cifar_folder();
    config->sharding = DATA_BY_SOURCE;
    struct loader *l = open_images(config, DATA_TRAIN);
    struct batch b;
    int counts[53] = {0};
    assert_ok(batch_init_of(&b, &l->sample, 5, 1));
    assert_true(loader_share(l, 0, 2) == 30 && loader_share(l, 1, 2) == 23);
    assert_true(loader_share(l, 0, 3) == 15 && loader_share(l, 1, 3) == 23);
    for (int i = 0; i < 3; i++)
        for (int rank = 0; rank < 3; rank++) {
            assert_ok(loader_fill(l, (struct loader_place){9, i, rank, 3}, 5, 1, &b));
            for (int row = 0; row < 5; row++) {
                const int number = number_of(&b, row);
                assert_true((number < 30) == (rank != 1));
                assert_int_equal(counts[number]++, 0); /* 15 of each member in its first epoch */
            }
        }
    loader_close(l);
    batch_free(&b);
}

/* The image as it is seen with this change. */
static float changed(int number, int down, int right, bool mirrored, int plane, int y, int x)
{
    const int from_y = y + down, from_x = (mirrored ? 31 - x : x) + right;
    if (from_y < 0 || from_y > 31 || from_x < 0 || from_x > 31)
        return 0;
    return seen(number, plane, from_y * 32 + from_x);
}

static bool is_changed(const float *image, int number, int down, int right, bool mirrored)
{
    for (int k = 0; k < CIFAR_PIXELS; k++)
        if (image[k] != changed(number, down, right, mirrored, k % 3, k / 3 / 32, k / 3 % 32))
            return false;
    return true;
}

/* Every visit is one of the ways, each is met, whoever asks again gets the same; and the same image
 * is another one in the next epoch. */
static void changes(void **state)
{
    (void)state;
    struct data_config *config = cifar_folder();
    config->crop = 1;
    config->flip = true;
    struct loader *l = open_images(config, DATA_TRAIN), *valid;
    struct batch b, again;
    int met[2][3][3] = {0}, visits = 0;
    assert_ok(batch_init_of(&b, &l->sample, 10, 1));
    assert_ok(batch_init_of(&again, &l->sample, 10, 1));
    for (int i = 0; i < 30; i++) {
        const struct loader_place place = {3, i, 1, 2};
        assert_ok(loader_fill(l, place, 10, 1, &b));
        assert_ok(loader_fill(l, place, 10, 1, &again));
        assert_memory_equal(b.floats, again.floats, 10 * CIFAR_PIXELS * sizeof *b.floats);
        for (int row = 0; row < 10; row++) {
            const float *image = b.floats + (size_t)row * CIFAR_PIXELS;
            int ways = 0;
            for (int number = b.targets[row]; number < 53 && !ways; number += 10)
                for (int way = 0; way < 18; way++)
                    if (is_changed(image, number, way % 3 - 1, way / 3 % 3 - 1, way / 9)) {
                        met[way / 9][way % 3][way / 3 % 3]++;
                        ways++;
                    }
            assert_int_equal(ways, 1);
            visits++;
        }
    }
    for (int way = 0; way < 18; way++)
        assert_in_range(met[way / 9][way % 3][way / 3 % 3], 5, 35); /* of 300, 17 on average */
    assert_int_equal(visits, 300);
    assert_ok(images_open_valid(&valid, l, config)); /* which is seen as it is */
    assert_ok(loader_fill_in_order(valid, 0, 10, 1, &b));
    for (int row = 0; row < 10; row++)
        assert_true(is_changed(b.floats + (size_t)row * CIFAR_PIXELS, 100 + row, 0, 0, false));
    loader_close(valid);
    loader_close(l);
    batch_free(&b);
    batch_free(&again);
}

/* Mean and deviation: the training images', the model's, or what was said. */
static void means(void **state)
{
    (void)state;
    struct data_config *config = cifar_folder();
    const struct image_processor model = {.keep = 1, .norm = {3, {0.5f, 0.25f, 0.125f}, {2, 4, 8}}};
    const struct image_norm given = model.norm;
    struct images_setup setup = {.processor = &model};
    struct loader *l, *valid, *train;
    struct batch b;
    config->mean[0] = config->std[0] = '\0';
    train = open_images(config, DATA_TRAIN);
    double sum = 0, squares = 0;
    for (int i = 0; i < 53; i++)
        for (int k = 0; k < 1024; k++) {
            sum += seen(i, 1, k) / 53 / 1024;
            squares += (double)seen(i, 1, k) * seen(i, 1, k) / 53 / 1024;
        }
    const struct image_norm *norm = images_norm(train);
    assert_int_equal(norm->channels, 3);
    assert_true(fabs(norm->mean[1] - sum) < 1e-5);
    assert_true(fabs(norm->std[1] - sqrt(squares - sum * sum)) < 1e-5);
    assert_ok(images_open_valid(&valid, train, config));
    assert_memory_equal(norm, images_norm(valid), sizeof *norm);
    loader_close(valid);
    /* What is printed and given back is the same to the bit. */
    norm_print(norm->mean, 3, config->mean);
    norm_print(norm->std, 3, config->std);
    assert_ok(images_open(&l, config, DATA_VALID, &setup));
    assert_memory_equal(norm, images_norm(l), sizeof *norm);
    loader_close(l);
    loader_close(train);
    config->mean[0] = config->std[0] = '\0';
    assert_ok(images_open(&l, config, DATA_VALID, &setup));
    assert_ok(batch_init_of(&b, &l->sample, 1, 1));
    assert_ok(loader_fill_in_order(l, 0, 1, 1, &b));
    for (int c = 0; c < 3; c++)
        assert_true(b.floats[c] == (seen(100, c, 0) - given.mean[c]) / given.std[c]);
    batch_free(&b);
    loader_close(l);
    setup.processor = NULL;
    assert_fails(images_open(&l, config, DATA_VALID, &setup), SOTTO_EINVAL, "data.mean");
    strcpy(config->mean, "0.5"); /* said once for all channels, it goes out once for each */
    strcpy(config->std, "2");
    l = open_images(config, DATA_TRAIN);
    const struct image_processor out = images_processor(l);
    json_t *json = processor_to_json(&out);
    assert_int_equal(json_array_size(json_object_get(json, "image_mean")), 3);
    assert_int_equal(json_array_size(json_object_get(json, "image_std")), 3);
    assert_true(out.norm.mean[2] == 0.5f && out.norm.std[2] == 2);
    json_decref(json);
    loader_close(l);
    static const struct {
        const char *mean, *std, *part;
    } bad[] = {{"0.5", "", "data.mean is given and data.std is not"},
               {"", "1", "data.std is given and data.mean is not"},
               {"0.5,", "1", "data.mean = 0.5,"},
               {"0.5", "0", "data.std = 0"},
               {"0.5", "nan", "data.std = nan"},
               {"1,2,3,4", "1", "data.mean = 1,2,3,4"},
               {"0,1,0.5", "1", "has 3 numbers"},
               {"0.5", "2.5", "values are from 0 to 1"},
               {"-0.1,0,0", "1,1,1", "values are from 0 to 1"},
               {"0,1", "1,2", "have 2 numbers, the images 3 channels"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        strcpy(config->mean, bad[i].mean);
        strcpy(config->std, bad[i].std);
        assert_fails(images_open(&l, config, DATA_TRAIN, &setup), SOTTO_EINVAL, bad[i].part);
    }
}

/* Brought to the size that the model or the option asks for, and to its channels. */
static void sizes(void **state)
{
    (void)state;
    struct data_config *config = cifar_folder();
    struct images_setup setup = {.height = 16, .width = 16, .channels = 1};
    struct loader *l;
    struct batch b;
    assert_ok(images_open(&l, config, DATA_TRAIN, &setup));
    assert_int_equal(l->sample.dims[0], 16);
    assert_int_equal(l->sample.dims[2], 1);
    assert_ok(batch_init_of(&b, &l->sample, 1, 1));
    assert_ok(loader_fill_in_order(l, 0, 1, 1, &b));
    const int at = 20 * 32 + 9; /* in a plane of even slope a mean is the value in the middle */
    const float want =
        (0.299f * seen(0, 0, at) + 0.587f * seen(0, 1, at) + 0.114f * seen(0, 2, at));
    assert_true(fabsf(b.floats[10 * 16 + 4] - want) < 3.0f / 255);
    batch_free(&b);
    loader_close(l);
    config->image_size = 8;
    assert_fails(images_open(&l, config, DATA_TRAIN, &setup), SOTTO_EINVAL,
                 "data.image_size = 8, but the model wants images of 16 x 16");
    setup = (struct images_setup){.channels = 4};
    assert_fails(images_open(&l, config, DATA_TRAIN, &setup), SOTTO_EINVAL, "4 channels");
    /* The model's share of the shorter side is of its own way to bring images to a size. */
    const struct image_processor model = {
        .resize = DATA_CROP, .keep = 0.5, .filter = FILTER_LANCZOS};
    setup = (struct images_setup){.processor = &model};
    for (int resize = 0; resize <= DATA_STRETCH; resize++) {
        config->resize = resize;
        assert_ok(images_open(&l, config, DATA_TRAIN, &setup));
        assert_true(images_set(l)->keep == (resize <= DATA_CROP ? 0.5 : 1));
        assert_int_equal(images_set(l)->filter, FILTER_LANCZOS);
        assert_int_equal(images_processor(l).filter, FILTER_LANCZOS);
        loader_close(l);
    }
}

/* preprocessor_config.json, as transformers writes it, and back. */
static void processors(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int height, width, resize;
        double keep;
        int channels;
        enum picture_filter filter;
    } good[] = {
        {"{}", 224, 224, DATA_STRETCH, 1, 1, FILTER_BILINEAR},
        {"{\"size\": 224, \"image_mean\": [0.5, 0.5, 0.5], \"image_std\": [0.5, 0.5, 0.5]}", 224,
         224, DATA_STRETCH, 1, 3, FILTER_BILINEAR},
        {"{\"size\": {\"height\": 32, \"width\": 48}, \"do_normalize\": false, \"resample\": 3}",
         32, 48, DATA_STRETCH, 1, 1, FILTER_BICUBIC},
        {"{\"size\": {\"shortest_edge\": 224}, \"crop_pct\": 0.875}", 224, 224, DATA_CROP, 0.875, 1,
         FILTER_BICUBIC},
        {"{\"size\": {\"shortest_edge\": 384}, \"crop_pct\": 0.875}", 384, 384, DATA_STRETCH, 1, 1,
         FILTER_BICUBIC},
        {"{\"size\": 224, \"crop_pct\": 0.95, \"resample\": 1}", 224, 224, DATA_CROP, 0.95, 1,
         FILTER_LANCZOS}, /* older ones */
        {"{\"size\": 224, \"feature_extractor_type\": \"ConvNextFeatureExtractor\"}", 224, 224,
         DATA_CROP, 0.875, 1, FILTER_BICUBIC},
        {"{\"size\": {\"shortest_edge\": 48}, \"image_processor_type\": "
         "\"ConvNextImageProcessor\"}",
         48, 48, DATA_CROP, 0.875, 1, FILTER_BICUBIC},
        {"{\"size\": {\"shortest_edge\": 256}, \"do_center_crop\": true, \"crop_size\": 192,"
         "\"image_mean\": 0.5, \"image_std\": 0.25, \"resample\": 2}",
         192, 192, DATA_CROP, 0.75, 1, FILTER_BILINEAR},
        {"{\"size\": {\"shortest_edge\": 256}, \"do_center_crop\": true, \"crop_size\": "
         "{\"height\": 192, \"width\": 128}, \"image_mean\": 0.5, \"image_std\": 0.25, "
         "\"resample\": 3}",
         192, 128, DATA_CROP, 0.5, 1, FILTER_BICUBIC},
        {"{\"size\": {\"height\": 256, \"width\": 256}, \"do_center_crop\": true, \"crop_size\": "
         "{\"height\": 160, \"width\": 192}, \"image_mean\": 0.5, \"image_std\": 0.25, "
         "\"resample\": 3}",
         160, 192, DATA_CROP, 0.625, 1, FILTER_BICUBIC},
        {"{\"size\": 64, \"do_center_crop\": true, \"crop_size\": 96, \"image_mean\": 0.5, "
         "\"image_std\": 0.25, \"resample\": 3}",
         96, 96, DATA_CROP, 1, 1, FILTER_BICUBIC},
    };
    /* Where the file is silent: as the class of its type, else of the model's. */
    static const struct {
        const char *text, *model;
        int side, resize;
        double keep;
        enum picture_filter filter;
        struct image_norm norm;
    } silent[] = {
        {"{}", NULL, 224, DATA_STRETCH, 1, FILTER_BILINEAR, {1, {0.5f}, {0.5f}}},
        {"{}", "vit", 224, DATA_STRETCH, 1, FILTER_BILINEAR, {1, {0.5f}, {0.5f}}},
        {"{}", "resnet", 384, DATA_STRETCH, 1, FILTER_BICUBIC, {1, {0.5f}, {0.5f}}},
        {"{\"image_processor_type\": \"ViTImageProcessorFast\"}",
         "resnet",
         224,
         DATA_STRETCH,
         1,
         FILTER_BILINEAR,
         {1, {0.5f}, {0.5f}}},
        {"{\"size\": 224, \"image_mean\": [0.1, 0.2, 0.3], \"crop_pct\": null}",
         "resnet",
         224,
         DATA_CROP,
         0.875,
         FILTER_BICUBIC,
         {3, {0.1f, 0.2f, 0.3f}, {0.5f, 0.5f, 0.5f}}},
        {"{\"image_std\": [0.1, 0.2, 0.3]}",
         "vit",
         224,
         DATA_STRETCH,
         1,
         FILTER_BILINEAR,
         {3, {0.5f, 0.5f, 0.5f}, {0.1f, 0.2f, 0.3f}}},
        {"{\"feature_extractor_type\": \"CLIPFeatureExtractor\"}",
         "vit",
         224,
         DATA_CROP,
         1,
         FILTER_BICUBIC,
         {3, {0.48145466f, 0.4578275f, 0.40821073f}, {0.26862954f, 0.26130258f, 0.27577711f}}},
    };
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++) {
        struct image_processor p;
        json_t *json;
        assert_ok(json_parse(&json, silent[i].text, strlen(silent[i].text), "p"));
        assert_ok(processor_from_json(&p, json, silent[i].model));
        json_decref(json);
        assert_true(p.height == silent[i].side && p.width == silent[i].side);
        assert_true(p.resize == silent[i].resize && p.keep == silent[i].keep);
        assert_int_equal(p.filter, silent[i].filter);
        assert_memory_equal(&p.norm, &silent[i].norm, sizeof p.norm);
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct image_processor p, back;
        json_t *json;
        assert_ok(json_parse(&json, good[i].text, strlen(good[i].text), "p"));
        assert_ok(processor_from_json(&p, json, NULL));
        json_decref(json);
        assert_true(p.height == good[i].height && p.width == good[i].width);
        assert_true(p.resize == good[i].resize && p.keep == good[i].keep);
        assert_int_equal(p.norm.channels, good[i].channels);
        assert_int_equal(p.filter, good[i].filter);
        for (int large = 0; p.height && p.norm.channels && large < 2; large++) {
            p.height *= 1 + large;
            p.width *= 1 + large;
            json = processor_to_json(&p);
            assert_ok(processor_from_json(&back, json, NULL));
            assert_true(p.height == back.height && p.width == back.width &&
                        p.resize == back.resize && p.filter == back.filter &&
                        fabs(p.keep - back.keep) < 2e-3);
            assert_memory_equal(&p.norm, &back.norm, sizeof p.norm);
            json_decref(json);
        }
    }
    static const char *const bad[][2] = {
        {"[]", "want an object"},
        {"{\"size\": 0}", "\"size\" must be an integer"},
        {"{\"size\": {\"height\": 9}}", "\"size\" must be an integer"},
        {"{\"size\": {\"shortest_edge\": 9}, \"crop_pct\": 7}", "crop_pct"},
        {"{\"image_mean\": [1, 2], \"image_std\": [1, 2, 3]}", "has 2 numbers"},
        {"{\"image_mean\": [1], \"image_std\": [0]}", "\"image_std\" must be"},
        {"{\"image_mean\": [1, 2, 3, 4], \"image_std\": [1]}", "\"image_mean\" must be"},
        {"{\"image_processor_type\": \"ViTImageProcessor\", \"image_std\": [1, 1, 1, 1, 1, 1, 1, 1, 1]}",
         "\"image_std\" must be"},
        {"{\"resample\": 6}", "\"resample\" must be"},
        {"{\"rescale_factor\": 0.5}", "rescale_factor"},
        {"{\"image_processor_type\": \"BeitImageProcessor\", \"image_mean\": [1]}",
         "the default of \"BeitImageProcessor\" is not known"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct image_processor p;
        json_t *json;
        assert_ok(json_parse(&json, bad[i][0], strlen(bad[i][0]), "p"));
        assert_fails(processor_from_json(&p, json, NULL), SOTTO_EFORMAT, bad[i][1]);
        json_decref(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_and_labels),
        cmocka_unit_test(each_once_an_epoch),
        cmocka_unit_test(held_out),
        cmocka_unit_test(by_source),
        cmocka_unit_test(changes),
        cmocka_unit_test(means),
        cmocka_unit_test(sizes),
        cmocka_unit_test(processors),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
