/* The estimate of a run's memory against the memory that the run takes, category by category. On a
 * GPU if SOTTO_TEST_DEVICE names one. */
#include "train/image_lab.h"

#include "train/plan/estimate.h"
#include "train/run/run_worker.h"

enum { MAX_OPTIONS = 6 };

static struct run_config *configure_model(const char *const *model, const char *const *options)
{
    static const char *const basic[] = {
        "train.batch=3",      "train.log_every=1",  "train.threads=1",
        "data.holdout=0.1",   "train.steps=2",      "optim.warmup=0",
        "train.eval_every=1", "train.save_every=1", "train.eval_batches=4",
    };
    static int runs;
    char out[32];
    struct run_config *c = malloc(sizeof *c);
    assert_non_null(c);
    snprintf(out, sizeof out, "run.%d", runs++);
    *c = configure_run(out);
    set_all(c, model, SIZE_MAX);
    set_all(c, basic, sizeof basic / sizeof *basic);
    set_all(c, options, MAX_OPTIONS);
    return c;
}

static struct run_config *configure(const char *const *options)
{
    static const char *const gpt[] = {"model.layers=3", "model.width=32", "model.heads=2",
                                      "model.positions=16", NULL};
    return configure_model(gpt, options);
}

/* A device with memory of its own. */
static const char *far_device(void)
{
    return strcmp(test_device(), "cuda") == 0 ? "train.device=cuda" : "train.device=apart";
}

/* Memory of methods and models is exact. The estimate lacks the scratch of ops that take little,
 * and the names in a checkpoint's state. Edges between stages are freed once they are sent, at
 * times that the estimate does not know. For devices with separate memory the estimate lacks the
 * host's buffers for data and messages. */
static void assert_estimate(const struct run *run, const struct estimate *e, const char *name)
{
    const bool sends = strstr(name, "pp") || strstr(name, "mp");
    enum { KERNELS = 1 << 15, PAGES = 9 << 20, NAMES = 1 << 17 };
    const double workers = run->cluster.size;
    const bool far = device_place(run->config.train.device) != PLACE_HOST;
    for (int c = 0; c < MEMORY_CATEGORIES; c++) {
        double is = 0, more = 0;
        for (int r = 0; r < run->cluster.size; r++)
            is += (double)run->result.worker[r].memory[c];
        if (c == MEMORY_SCRATCH)
            more = workers * (strcmp(run->config.train.device, "cuda") ? KERNELS : PAGES);
        if (c == MEMORY_COMMUNICATION && far &&
            (strstr(name, "placement") || strstr(name, "async")))
            more = is;
        if (c == MEMORY_CHECKPOINT)
            more = 2 * workers * NAMES;
        const double most = sends && c == MEMORY_ACTIVATIONS ? 1.05 * is : is;
        if (!(e->bytes[c] <= most && is <= e->bytes[c] + more))
            fail_with("%s: %s estimated as %.0f bytes, the run took %.0f", name,
                      memory_category_name((enum memory_category)c), e->bytes[c], is);
    }
    assert_int_equal(e->workers, run->cluster.size);
}

/* Rooms for stages on any worker, notes of a step's micro-batches for batch norms, and activations
 * of micro-batches in flight during an evaluation. */
static void cyclic(void **state)
{
    (void)state;
    static const char *const placements[][2] = {
        {"single", "train.workers=1"}, {"dp", "train.workers=4"}, {"pp", "train.workers=4"},
        {"zero", "train.workers=4"},   {"mp", "train.workers=6"},
    };
    static const char *const text[] = {"strategy.precision=mixed", "model.tied=no", NULL};
    static const char *const images[] = {"model.preset=resnet8", "resnet.depths=2,2",
                                         "resnet.widths=4,8", NULL};
    make_folder("set");
    make_quarters("set/train-images-idx3-ubyte", "set/train-labels-idx1-ubyte", 64, 8, 1);
    for (int i = 0; i < 20; i++) {
        char placement[64];
        struct run run;
        struct estimate e;
        snprintf(placement, sizeof placement, "cdp.placement=%s", placements[i / 4][0]);
        const char *const options[] = {"strategy.preset=cdp", placement,
                                       placements[i / 4][1],  i % 2 ? "cdp.rule=v1" : "cdp.rule=v2",
                                       "optim.clip=0",        NULL};
        struct run_config *c = i % 4 < 2 ? configure(options) : configure_model(images, options);
        set(c, "train.time=virtual");
        set(c, "worker.step=1ms");
        set(c, "data.holdout=0.5");
        set(c, "train.eval_batches=6");
        if (i % 4 < 2)
            set_all(c, text, SIZE_MAX);
        else
            strcpy(c->data.train, at("set"));
        assert_ok(run_open(&run, c, NULL));
        assert_ok(estimate_run(&run, &e));
        assert_ok(run_train(&run));
        assert_estimate(&run, &e, placement);
        run_close(&run);
        free(c);
    }
}

/* A refusal by the method keeps the method's message, on any rank. */
static void refusals(void **state)
{
    (void)state;
    struct run run;
    struct run_config *c = configure((const char *[]){"strategy.preset=cdp", "train.workers=4",
                                                      "model.tied=no", "optim.clip=1", NULL});
    assert_fails(run_open(&run, c, NULL), SOTTO_EINVAL, "with cdp.rule = v2 a stage is updated");
    assert_int_equal(strncmp(sotto_error(), "optim.clip = 1: ", 16), 0);
    free(c);
}

static void as_estimated(void **state)
{
    (void)state;
    static const char *const methods[] = {"ddp",     "zero1",  "fsdp",        "dpu",
                                          "acco-wp", "acco",   "local-sgd",   "co2",
                                          "diloco",  "slowmo", "async-diloco"};
    const char *const shapes[][4] = {
        {"train.workers=1"},
        {"train.workers=4"},
        {"train.workers=6", "strategy.mesh=3x2", "strategy.precision=mixed"},
        {"train.workers=2", "train.recompute=true", "train.stages=3", "model.tied=no"},
        {"train.workers=2", far_device(), "train.stages=2"}, /* keeps more */
    };
    for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            if ((5 * m + i) % (size_t)LEAP != (size_t)share_first(LEAP, LEAP))
                continue;
            char preset[64];
            struct run run;
            struct estimate e;
            snprintf(preset, sizeof preset, "strategy.preset=%s", methods[m]);
            const char *options[MAX_OPTIONS] = {preset, "train.time=virtual", "worker.step=1ms"};
            for (int k = 0; k < 3; k++)
                options[3 + k] = shapes[i][k];
            struct run_config *c = configure(options);
            if (i == 3)
                set(c, shapes[i][3]);
            if (strcmp(methods[m], "async-diloco") == 0)
                set(c, "async-diloco.H=1"); /* the group saves before its last push, too */
            assert_ok(run_open(&run, c, NULL));
            assert_ok(estimate_run(&run, &e));
            assert_ok(run_train(&run));
            assert_estimate(&run, &e, preset);
            run_close(&run);
            free(c);
        }
    }
}

/* bf16 activations take half the memory, but for the statistics of norms and attention, which stay
 * fp32; the estimate knows it, and training goes nearly the same way. */
static void half_activations(void **state)
{
    (void)state;
    double bytes[2], loss[2];
    for (int half = 0; half < 2; half++) {
        struct run run;
        struct estimate e;
        struct run_config *c = configure(
            (const char *[]){half ? "train.activations=bf16" : "train.activations=fp32",
                             "train.steps=20", "train.save_every=0", "optim.lr=3e-3", NULL});
        assert_ok(run_open(&run, c, NULL));
        assert_ok(estimate_run(&run, &e));
        assert_ok(run_train(&run));
        assert_estimate(&run, &e, half ? "bf16" : "fp32");
        bytes[half] = (double)run.result.worker[0].memory[MEMORY_ACTIVATIONS];
        loss[half] = run.result.evaluation.loss;
        run_close(&run);
        free(c);
    }
    assert_true(bytes[1] >= 0.5 * bytes[0] && bytes[1] < 0.55 * bytes[0]);
    assert_true(loss[1] != loss[0] && fabs(loss[1] - loss[0]) < 0.01 * loss[0]);
}

/* Products, attention and convolutions take scratch for their threads, of bf16 also to widen it:
 * far more than the little that assert_estimate lets pass. */
static void scratch_of_kernels(void **state)
{
    (void)state;
    static const char *const wide[] = {"model.layers=1", "model.width=256", "model.heads=2",
                                       "model.positions=64", NULL};
    static const char *const resnet[] = {"model.preset=resnet8", "resnet.depths=1,1",
                                         "resnet.widths=32,64", NULL};
    static const char *const threads[] = {"train.threads=1", "train.threads=2", "train.threads=9"};
    make_folder("pictures");
    make_quarters("pictures/train-images-idx3-ubyte", "pictures/train-labels-idx1-ubyte", 64, 16,
                  1);
    EACH_SHARED(i, LEAP, 24) {
        const bool half = i % 2, images = i / 6 % 2, far = i / 12;
        struct run run;
        struct estimate e;
        struct run_config *c = configure_model(
            images ? resnet : wide,
            (const char *[]){threads[i / 2 % 3], half ? "train.activations=bf16" : "train.steps=1",
                             half ? "strategy.precision=mixed" : "train.keep=1",
                             far ? far_device() : "train.device=cpu", "train.batch=8", NULL});
        set(c, "train.eval_batches=1");
        if (images)
            strcpy(c->data.train, at("pictures"));
        assert_ok(run_open(&run, c, NULL));
        assert_ok(estimate_run(&run, &e));
        assert_ok(run_train(&run));
        assert_estimate(&run, &e, threads[i / 2 % 3]);
        run_close(&run);
        free(c);
    }
}

static double activations(const struct run *run, double *together)
{
    struct estimate e;
    assert_ok(estimate_run(run, &e));
    *together = e.total;
    return e.bytes[MEMORY_ACTIVATIONS];
}

/* Many threads keep results that fewer compute again, if there is memory. */
static void kept_by_many(void **state)
{
    (void)state;
    const struct available much = {1e12, "the test"};
    double all;
    struct run run;
    struct run_config *c = configure((const char *[]){"train.threads=8", "train.device=cpu", NULL});
    assert_ok(run_open(&run, c, NULL));
    assert_false(run.keeps_all);
    const double least = activations(&run, &all);
    run.config.train.threads = 9;
    estimate_choose(&run, &much);
    assert_true(run.keeps_all && activations(&run, &all) > 1.3 * least);
    const struct available little = {1.2 * all, "the test"}, enough = {1.4 * all, "the test"};
    estimate_choose(&run, &enough);
    assert_true(run.keeps_all);
    estimate_choose(&run, &little);
    assert_true(!run.keeps_all && activations(&run, &all) == least);
    run.config.train.recompute = true;
    estimate_choose(&run, &much);
    assert_false(run.keeps_all);
    run_close(&run);
    free(c);
}

/* Logits of many rows and of an odd vocabulary are most of a head's scratch; a GPU has room of its
 * own for logits, in the type of its factors. */
static void scratch_of_logits(void **state)
{
    (void)state;
    static const char *const narrow[] = {"model.layers=1", "model.width=32", "model.heads=2",
                                         "model.positions=64", NULL};
    write_tokens(at("wide.tok"), 20000, 1003);
    const int cases = strcmp(test_device(), "cuda") ? 4 : 8; /* more rows than it holds at once */
    for (int i = 0; i < cases; i++) {
        struct run run;
        struct estimate e;
        struct run_config *c = configure_model(
            narrow, (const char *[]){i & 1 ? "train.activations=bf16" : "train.activations=fp32",
                                     i & 2 ? "strategy.precision=mixed" : "strategy.precision=fp32",
                                     i & 4 ? "train.batch=160" : "train.batch=20",
                                     "train.save_every=0", NULL});
        strcpy(c->data.train, at("wide.tok"));
        assert_ok(run_open(&run, c, NULL));
        assert_int_equal(run.model.config.vocab, 1003);
        assert_ok(estimate_run(&run, &e));
        assert_true(e.bytes[MEMORY_SCRATCH] > 2e6 * c->train.batch / 20);
        assert_ok(run_train(&run));
        assert_estimate(&run, &e, i & 2 ? "logits, bf16 weights" : "logits");
        run_close(&run);
        free(c);
    }
}

/* Only the first group sends its slices to be saved: more groups make a checkpoint no larger. */
static void further_groups(void **state)
{
    (void)state;
    static const char *const meshes[][2] = {{"train.workers=4", "strategy.mesh=2x2"},
                                            {"train.workers=8", "strategy.mesh=4x2"}};
    double checkpoint[2], total[2];
    for (int i = 0; i < 2; i++) {
        struct run run;
        struct estimate e;
        struct run_config *c =
            configure((const char *[]){"strategy.preset=zero1", meshes[i][0], meshes[i][1], NULL});
        assert_ok(run_open(&run, c, NULL));
        assert_ok(estimate_run(&run, &e));
        checkpoint[i] = e.bytes[MEMORY_CHECKPOINT];
        total[i] = e.total;
        run_close(&run);
        free(c);
    }
    assert_true(checkpoint[0] > 1e5 && fabs(checkpoint[1] - checkpoint[0]) < 1e4);
    assert_true(total[1] > 1.8 * total[0]);
}

/* More rows than are tried are extrapolated on a line: the same as trying them. */
static void more_rows(void **state)
{
    (void)state;
    struct run run;
    struct run_config *c = configure((const char *[]){"train.batch=1", NULL});
    assert_ok(run_open(&run, c, NULL));
    struct estimate_model few, many;
    struct estimate_what what = {.e = {4096, 16, DTYPE_F32, false}, .slots = 1, .evaluates = true};
    assert_ok(estimate_model(&run.model, what, &few));
    what.e.rows *= 3;
    assert_ok(estimate_model(&run.model, what, &many));
    assert_true(many.activations > 2.99 * few.activations && many.scratch > few.scratch);
    assert_true(many.activations < 3.01 * few.activations && many.scratch < 3.01 * few.scratch);
    run_close(&run);
    free(c);
}

static void too_large(void **state)
{
    (void)state;
    struct run run;
    struct run_config *c = configure(
        (const char *[]){"train.batch=1048576", "model.width=4096", "model.layers=64", NULL});
    assert_fails(run_open(&run, c, NULL), SOTTO_ENOMEM, "this run needs about ");
    assert_non_null(strstr(sotto_error(), " left: activations "));
    assert_non_null(strstr(sotto_error(), ", optimizer "));
    assert_non_null(strstr(sotto_error(), ", parameters "));
    assert_null(strstr(sotto_error(), " 0 bytes"));
    assert_non_null(strstr(sotto_error(), ". A smaller train.batch or train.seq, or "));
    assert_false(file_exists(c->train.out));
    free(c);
    c = configure((const char *[]){"train.batch=1", "model.width=8192", "model.layers=1000", NULL});
    assert_fails(run_open(&run, c, NULL), SOTTO_ENOMEM, "this run needs about ");
    assert_non_null(strstr(sotto_error(), " left: optimizer "));
    assert_non_null(strstr(sotto_error(), ". A smaller model, or MPI ranks on several machines"));
    free(c);
}

/* The advice is to shrink the largest part of the memory. */
static void advice(void **state)
{
    (void)state;
    static const char *const large[] = {"model.layers=2", "model.width=512", "model.heads=2",
                                        "model.positions=16", NULL};
    static const char *const narrow[] = {"model.layers=1", "model.width=16", "model.heads=2",
                                         "model.positions=64", NULL};
    static const char *const resnet[] = {"model.preset=resnet8", "resnet.depths=1,1",
                                         "resnet.widths=32,64", NULL};
    static const struct {
        const char *const *model;
        const char *options[2], *says;
    } cases[] = {
        {large, {"train.workers=1"}, ". A smaller model, or MPI ranks on several machines"},
        {large, {"train.workers=2"}, ". A smaller model, fewer workers, or a shard method"},
        {narrow, {"train.batch=64"}, ". A smaller train.batch or train.seq, or"},
        {narrow, {"train.threads=64"}, ". A smaller train.threads, each of which"},
        {narrow,
         {"train.batch=512", "train.threads=4"},
         ". A smaller train.batch or train.seq, or"},
        {resnet, {"train.batch=64"}, ". A smaller train.batch, or train.recompute"},
    };
    make_folder("views");
    make_quarters("views/train-images-idx3-ubyte", "views/train-labels-idx1-ubyte", 128, 16, 1);
    assert_int_equal(setenv("SOTTO_APART_MEMORY", "64K", 1), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run run;
        struct run_config *c = configure_model(
            cases[i].model, (const char *[]){"train.device=apart", "train.check_memory=false",
                                             cases[i].options[0], cases[i].options[1], NULL});
        if (cases[i].model == resnet)
            strcpy(c->data.train, at("views"));
        assert_ok(run_open(&run, c, NULL));
        assert_fails(estimate_check(&run), SOTTO_ENOMEM, cases[i].says);
        run_close(&run);
        free(c);
    }
    assert_int_equal(unsetenv("SOTTO_APART_MEMORY"), 0);
}

/* A checkpoint's memory is in the account while it is written, and no longer. */
static void on_saved(void *arg, int64_t step, const char *folder)
{
    int *saves = arg;
    (void)step, (void)folder;
    (*saves)++;
}

static void on_step(void *arg, const struct run_step *s)
{
    (void)arg;
    assert_int_equal(s->worker->training.memory.now[MEMORY_CHECKPOINT], 0);
    if (s->step > 3)
        assert_true(s->worker->training.memory.peak[MEMORY_CHECKPOINT] >=
                    4 * table_count(s->worker->run->table));
}

static void given_back(void **state)
{
    (void)state;
    int saves = 0;
    struct run run;
    struct run_watch watch = {.step = on_step, .saved = on_saved, .arg = &saves};
    struct run_config *c =
        configure((const char *[]){"train.workers=2", "train.steps=6", "train.save_every=3", NULL});
    assert_ok(run_open(&run, c, &watch));
    assert_ok(run_train(&run));
    assert_int_equal(saves, 2);
    run_close(&run);
    free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_estimated),   cmocka_unit_test(half_activations),
        cmocka_unit_test(more_rows),      cmocka_unit_test(too_large),
        cmocka_unit_test(given_back),     cmocka_unit_test(cyclic),
        cmocka_unit_test(refusals),       cmocka_unit_test(scratch_of_kernels),
        cmocka_unit_test(kept_by_many),   cmocka_unit_test(scratch_of_logits),
        cmocka_unit_test(further_groups), cmocka_unit_test(advice),
    };
    return run_cases(tests, SANITIZED ? 3 : 1, make_data, scratch_remove);
}
