/* Runs over images as users start them: data to model, evaluation, checkpoints, and what is
 * refused.
 */
#include "train/image_lab.h"

#include "train/plan/estimate.h"
#include "train/run/run_worker.h"

enum { IMAGES = 48, SIDE = 6, TEST = 11 };

static int make_set(void **state)
{
    return make_image_set(state, SIDE, IMAGES, TEST);
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

/* It learns; every image of the test part counts, the last micro-batch being smaller; and the
 * folder says how images are made, so that an evaluation needs nothing else. */
static void trains(void **state)
{
    (void)state;
    const struct run_result first = train("few", (const char *[]){"train.steps=1", NULL});
    const struct run_result r =
        train("many", (const char *[]){"train.steps=60", "train.eval_every=30", NULL});
    assert_int_equal(r.evaluation.targets, TEST);
    assert_true(r.evaluation.content == SAMPLE_FLOATS && r.samples == 240 && r.tokens == 240);
    assert_true(r.evaluation.loss < 0.5 * first.evaluation.loss);
    assert_true(r.evaluation.hits >= TEST - 1 && r.evaluation.near == TEST); /* of four classes */
    struct loaded_model l;
    assert_ok(loaded_model_open(&l, at("many"), "", 0, "cpu", 1));
    assert_evaluates(&l, 4, &r.evaluation);
    loaded_model_close(&l);
    char *metrics = slurp(at("many/metrics.jsonl")), *report;
    assert_non_null(strstr(metrics, "eval/top5"));
    assert_non_null(strstr(metrics, "speed/samples_per_s"));
    assert_null(strstr(metrics, "token"));
    assert_null(strstr(metrics, "perplexity"));
    report = slurp(at("many/report.json"));
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
    refuse("the data have 4 classes, the model has 3", (const char *[]){"mlp.classes=3", NULL});
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
    char given[FILE_PATH_ROOM], *before = slurp(at("many/preprocessor_config.json"));
    snprintf(given, sizeof given, "train.init=%s", at("many"));
    train("same", (const char *[]){"train.steps=1", given, NULL});
    char *same = slurp(at("same/preprocessor_config.json"));
    assert_string_equal(before, same);
    train("other",
          (const char *[]){"train.steps=1", given, "data.mean=0.5", "data.std=0.25", NULL});
    char *other = slurp(at("other/preprocessor_config.json"));
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
