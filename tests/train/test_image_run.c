/* Runs over images as users start them: data to model, evaluation, checkpoints, and what is
 * refused.
 */
#include "data/pictures.h"
#include "train/fixture.h"

#include "train/estimate.h"
#include "train/loaded.h"
#include "train/trainer.h"

enum { IMAGES = 48, SIDE = 6, TEST = 11 };

/* Noise with one bright quarter, whose place is the class. */
static void make_quarters(const char *images, const char *labels, int count, uint64_t seed)
{
    size_t size, label_size;
    uint8_t *data = idx_bytes(count, SIDE, SIDE, &size),
            *marks = idx_bytes(count, 0, 0, &label_size);
    struct rng rng = rng_make(seed, 1);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < SIDE * SIDE; k++) {
            const int quarter = k / SIDE / (SIDE / 2) * 2 + k % SIDE / (SIDE / 2);
            data[16 + i * SIDE * SIDE + k] =
                (uint8_t)(rng_below(&rng, 90) + (quarter == i % 4 ? 120 : 0));
        }
    make_file(images, data, size);
    make_file(labels, marks, label_size);
    free(data);
    free(marks);
}

static int make_set(void **state)
{
    if (scratch_make(state) != 0)
        return -1;
    make_folder("set");
    make_quarters("set/train-images-idx3-ubyte", "set/train-labels-idx1-ubyte", IMAGES, 1);
    make_quarters("set/t10k-images-idx3-ubyte", "set/t10k-labels-idx1-ubyte", TEST, 2);
    return 0;
}

static struct run_config *configure(const char *out, const char *const *options)
{
    static const char *const basic[] = {
        "model.preset=mlp",     "mlp.hidden=12",   "train.batch=4", "train.threads=1",
        "train.eval_batches=0", "optim.warmup=0",  "optim.lr=0.01", "train.log_every=1",
        "data.crop=1",          "data.flip=false",
    };
    static struct run_config c;
    c = configure_run(out);
    strcpy(c.data.train, at("set"));
    set_all(&c, basic, sizeof basic / sizeof *basic);
    set_all(&c, options, 8);
    return &c;
}

static struct run_result train(const char *out, const char *const *options)
{
    struct run run;
    struct estimate e;
    assert_ok(run_open(&run, configure(out, options), NULL));
    assert_ok(estimate_run(&run, &e));
    assert_ok(run_train(&run));
    const struct run_result result = run.result;
    run_close(&run);
    return result;
}

static char *read_text(const char *folder, const char *name)
{
    char path[FILE_PATH_ROOM], *text;
    assert_ok(file_join(path, folder, name));
    assert_ok(file_read_text(path, 1 << 20, &text));
    return text;
}

/* It learns; every image of the test part counts, the last micro-batch being smaller; and the
 * folder says how images are made, so that an evaluation needs nothing else. */
static void trains(void **state)
{
    (void)state;
    const struct run_result first = train("few", (const char *[]){"train.steps=1", NULL});
    const struct run_result r =
        train("many", (const char *[]){"train.steps=60", "train.eval_every=30", NULL});
    assert_int_equal(r.evaluation.targets, TEST);
    assert_true(r.evaluation.images && r.samples == 240 && r.tokens == 240);
    assert_true(r.evaluation.loss < 0.5 * first.evaluation.loss);
    assert_true(r.evaluation.hits >= TEST - 1 && r.evaluation.near == TEST); /* of four classes */
    struct loaded l;
    struct loader *valid;
    struct evaluation e;
    static struct data_config data;
    assert_ok(loaded_open(&l, at("many"), "", 0, "cpu", 1));
    config_source(&data, "");
    strcpy(data.valid, at("set"));
    const struct images_setup setup = {SIDE, SIDE, 1, &l.processor};
    assert_ok(images_open(&valid, &data, DATA_VALID, &setup));
    const struct evaluation_range range = {.rows = 4, .t = 1, .parts = 1};
    assert_ok(evaluate(&l.model, &l.dev, &l.pool, l.theta, valid, range, &e));
    assert_true(fabs(e.loss - r.evaluation.loss) < 1e-9 && e.hits == r.evaluation.hits);
    loader_close(valid);
    loaded_close(&l);
    char *metrics = read_text(at("many"), "metrics.jsonl"), *report;
    assert_non_null(strstr(metrics, "eval/top5"));
    assert_non_null(strstr(metrics, "speed/samples_per_s"));
    assert_null(strstr(metrics, "token"));
    assert_null(strstr(metrics, "perplexity"));
    report = read_text(at("many"), "report.json");
    assert_non_null(strstr(report, "\"accuracy\""));
    assert_null(strstr(report, "\"tokens"));
    free(metrics);
    free(report);
}

/* Gone on from in the middle, the bits of a run that was not interrupted, whatever the workers;
 * also where each has statistics of its own, and batches are counted beside them. */
static void resumes(void **state)
{
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        char count[32];
        const bool resnet = variant & 1;
        snprintf(count, sizeof count, "train.workers=%d", variant < 2 ? 1 : 3);
        const char *options[] = {"train.steps=7",
                                 "optim.schedule=constant",
                                 count,
                                 resnet ? "model.preset=resnet8" : "model.preset=mlp",
                                 resnet ? "mlp.hidden=0" : "mlp.hidden=9",
                                 "train.resume=false",
                                 resnet ? "resnet.widths=4,8,8" : NULL,
                                 NULL};
        const uint64_t want = train("whole", options).hash;
        options[0] = "train.steps=3";
        assert_true(train("part", options).hash != want);
        options[0] = "train.steps=7";
        options[5] = "train.resume=true";
        assert_true(train("part", options).hash == want);
        assert_ok(file_remove_tree(at("whole")));
        assert_ok(file_remove_tree(at("part")));
    }
}

/* Virtual time: calibrated, and the bits of real time. */
static void virtual_time(void **state)
{
    (void)state;
    const char *options[] = {"train.steps=5",         "train.workers=2",
                             "train.time=virtual",    "link.intra=1Mbit/s,1ms",
                             "strategy.preset=zero1", NULL};
    const struct run_result r = train("virtual", options);
    assert_true(r.seconds > 0);
    const char *plain[] = {"train.steps=5", "train.workers=2", "strategy.preset=zero1", NULL};
    assert_true(r.hash == train("real", plain).hash);
}

static void refuse(const char *part, const char *const *options)
{
    struct run run;
    assert_fails(run_open(&run, configure("refused", options), NULL), SOTTO_EINVAL, part);
}

static void refused(void **state)
{
    (void)state;
    char given[FILE_PATH_ROOM];
    refuse("train.seq = 8 has no effect", (const char *[]){"train.seq=8", NULL});
    refuse("train.tokens = 8", (const char *[]){"train.tokens=8", NULL});
    refuse("data.vocab has no effect: it is for text", (const char *[]){"data.vocab=300", NULL});
    refuse("data.format = stories, but the model reads images",
           (const char *[]){"data.format=stories", NULL});
    refuse("mlp.width has no effect", (const char *[]){"model.preset=nano", "mlp.width=3", NULL});
    refuse("data.image_size = 6, but the model wants images of 6 x 5",
           (const char *[]){"mlp.width=5", "mlp.height=6", "data.image_size=6", NULL});
    refuse("the data have 4 classes, the model tells 3 apart",
           (const char *[]){"mlp.classes=3", NULL});
    refuse("holds images, and the model reads text",
           (const char *[]){"model.preset=nano", "mlp.hidden=0", "data.crop=0", NULL});
    refuse("data.crop has no effect: it is for images",
           (const char *[]){"model.preset=nano", "mlp.hidden=0", NULL});
    snprintf(given, sizeof given, "train.init=%s", at("many"));
    refuse("mlp.hidden = 13, but the model in", (const char *[]){given, "mlp.hidden=13", NULL});
}

/* Another mean than that of the model that training starts from goes out with the new one. */
static void goes_out(void **state)
{
    (void)state;
    char given[FILE_PATH_ROOM], *before = read_text(at("many"), "preprocessor_config.json");
    snprintf(given, sizeof given, "train.init=%s", at("many"));
    train("same", (const char *[]){"train.steps=1", given, NULL});
    char *same = read_text(at("same"), "preprocessor_config.json");
    assert_string_equal(before, same);
    train("other",
          (const char *[]){"train.steps=1", given, "data.mean=0.5", "data.std=0.25", NULL});
    char *other = read_text(at("other"), "preprocessor_config.json");
    assert_non_null(strstr(other, "0.25"));
    free(before);
    free(same);
    free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trains),  cmocka_unit_test(resumes),  cmocka_unit_test(virtual_time),
        cmocka_unit_test(refused), cmocka_unit_test(goes_out),
    };
    return cmocka_run_group_tests(tests, make_set, scratch_remove);
}
