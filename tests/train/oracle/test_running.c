/* Runs of a model over images with running statistics: each worker has its own, the mean is
 * evaluated and published, and a resumed run continues with the same bits. */
#include "train/fixture.h"

#include "hf/weights.h"
#include "io/safetensors.h"
#include "nn/mlp.h"
#include "train/plan/estimate.h"
#include "train/run/run_worker.h"

enum { BATCH = 6, IMAGES = 60, CLASSES = 3, HIDDEN = 10, STATE = 2 * HIDDEN };

/* Image i of the n-th micro-batch of a rank, or of those in order. */
struct images {
    struct loader base;
    uint64_t first;
};

static void fill_from(const struct loader *loader, uint64_t first, int rows, struct batch *b)
{
    b->rows = rows;
    mlp_batch(b, CLASSES, ((const struct images *)loader)->first + first);
}

static enum sotto_status fill(const struct loader *loader, struct loader_place p, int rows, int t,
                              struct batch *b)
{
    (void)t;
    fill_from(loader, (uint64_t)(p.index * p.size + p.rank) * (uint64_t)rows, rows, b);
    return SOTTO_OK;
}

static int64_t batches(const struct loader *loader, int rows, int t)
{
    (void)loader, (void)t;
    return (IMAGES + rows - 1) / rows;
}

static enum sotto_status fill_in_order(const struct loader *loader, int64_t index, int rows, int t,
                                       struct batch *b)
{
    (void)t;
    fill_from(loader, (uint64_t)index * (uint64_t)rows, rows, b);
    return SOTTO_OK;
}

static double share(const struct loader *loader, int rank, int size)
{
    (void)loader, (void)rank;
    return (double)IMAGES / size;
}

static int64_t amount(const struct loader *loader)
{
    (void)loader;
    return IMAGES;
}

static enum sotto_status check(const struct loader *loader, int size, int t)
{
    (void)loader, (void)size, (void)t;
    return SOTTO_OK;
}

static void close_images(struct loader *loader)
{
    free(loader);
}

static const struct loader_ops images_ops = {.fill = fill,
                                             .batches = batches,
                                             .fill_in_order = fill_in_order,
                                             .share = share,
                                             .amount = amount,
                                             .check = check,
                                             .close = close_images};

static struct loader *open_images(const struct model *model, uint64_t first)
{
    struct images *images = calloc(1, sizeof *images);
    *images =
        (struct images){.base = {.ops = &images_ops, .sample = model->sample}, .first = first};
    return &images->base;
}

/* Opens a run of the image model: first with a model and data that a configuration can name, which
 * are then replaced. `from`: the checkpoint to resume, "": none. */
static void open_run(struct run *run, const char *out, const char *const *options, const char *from,
                     const struct run_watch *watch)
{
    static const char *const basic[] = {
        "model.layers=1",  "model.width=16",       "model.heads=2",      "model.positions=8",
        "train.threads=1", "train.eval_batches=0", "train.eval_every=2", "data.holdout=0.1",
        "optim.warmup=0",  "optim.lr=0.02",        "train.log_every=1",  "train.batch=6",
        "train.keep=0",    "train.stages=2",
    };
    struct run_config *c = malloc(sizeof *c);
    *c = configure_run(out);
    set_all(c, basic, sizeof basic / sizeof *basic);
    set_all(c, options, 8);
    assert_ok(run_open(run, c, watch));
    free(c);
    model_free(&run->model);
    assert_ok(mlp_model(&run->model, &run->config.model, NULL, 2, run->cluster.size));
    loader_close(run->valid);
    loader_close(run->train);
    run->train = open_images(&run->model, 0);
    run->valid = open_images(&run->model, 1 << 20);
    free(run->start);
    run->start = calloc(table_count(&run->model.table), sizeof *run->start);
    run->start_state = calloc(STATE, sizeof *run->start_state);
    if (!*from) {
        model_randomize(&run->model, 3, run->start);
        model_state_start(&run->model, run->start_state);
        return;
    }
    char path[FILE_PATH_ROOM];
    strcpy(run->checkpoint, from);
    assert_ok(weights_load(&run->model, from, run->start));
    assert_ok(weights_load_state(&run->model, from, run->start_state));
    assert_ok(file_join(path, from, "state.safetensors"));
    assert_ok(state_file_open(&run->state, path));
}

struct seen {
    char saved[8][FILE_PATH_ROOM]; /* checkpoints by step */
    double last;                   /* evaluation          */
};

static void on_saved(void *arg, int64_t step, const char *folder)
{
    struct seen *seen = arg;
    snprintf(seen->saved[step], sizeof seen->saved[step], "%s", folder);
}

static uint64_t train(const char *out, const char *const *options, const char *from,
                      struct seen *seen)
{
    struct run run;
    const struct run_watch watch = {.saved = on_saved, .arg = seen};
    struct estimate e;
    open_run(&run, out, options, from, &watch);
    assert_ok(estimate_run(&run, &e));
    assert_ok(run_train(&run));
    double parameters = 0, activations = 0; /* as was estimated of a model of such samples */
    for (int r = 0; r < run.cluster.size; r++) {
        parameters += (double)run.result.worker[r].memory[MEMORY_PARAMETERS];
        activations += (double)run.result.worker[r].memory[MEMORY_ACTIVATIONS];
    }
    assert_true(e.bytes[MEMORY_PARAMETERS] == parameters);
    assert_true(e.bytes[MEMORY_ACTIVATIONS] == activations);
    const uint64_t hash = run.result.hash;
    seen->last = run.result.evaluation.loss;
    assert_int_equal(run.result.evaluation.targets, IMAGES);
    run_close(&run);
    return hash;
}

static void read_floats(const char *folder, const char *file, const char *name, float *out,
                        size_t count)
{
    struct safetensors set;
    char path[FILE_PATH_ROOM];
    assert_ok(file_join(path, folder, file));
    assert_ok(safetensors_open(&set, path));
    const struct safetensors_entry *e = safetensors_find(&set, name);
    assert_non_null(e);
    assert_int_equal(e->count, count);
    assert_ok(safetensors_read_f32(e, out));
    safetensors_close(&set);
}

/* The loss of a published model over the held-out images. */
static double evaluate_saved(const char *folder)
{
    struct memory memory = {0};
    struct device dev;
    struct pool pool;
    struct model m;
    struct evaluation e;
    float x[2048], kept[STATE];
    assert_ok(mlp_model(&m, &(struct model_config){0}, NULL, 1, 1));
    assert_true(table_count(&m.table) <= 2048);
    assert_ok(weights_load(&m, folder, x));
    assert_ok(weights_load_state(&m, folder, kept));
    assert_ok(device_open(&dev, "cpu", &memory, 1));
    pool_init(&pool, &dev, MEMORY_ACTIVATIONS);
    const struct view theta = {x, DTYPE_F32, PLACE_HOST};
    struct loader *images = open_images(&m, 1 << 20);
    const struct evaluation_range range = {
        .rows = BATCH, .t = 1, .state = {kept, DTYPE_F32, PLACE_HOST}, .parts = 1};
    assert_ok(evaluate(&m, &dev, &pool, &theta, images, range, &e));
    loader_close(images);
    pool_free(&pool);
    device_close(&dev);
    model_free(&m);
    return e.loss;
}

/* Every worker has its own statistics; their mean is evaluated and published, under the same
 * names. */
static void averaged(void **state)
{
    (void)state;
    struct seen seen = {0};
    float own[3 * STATE], mean[2][HIDDEN];
    const char *options[] = {"train.workers=3", "train.steps=6", NULL};
    train("averaged", options, "", &seen);
    const char *folder = seen.saved[6];
    read_floats(folder, "state.safetensors", "running_own.values", own, 3 * STATE);
    read_floats(folder, "model.safetensors", "bn.running_mean", mean[0], HIDDEN);
    read_floats(folder, "model.safetensors", "bn.running_var", mean[1], HIDDEN);
    assert_memory_not_equal(own, own + STATE, STATE * sizeof *own);
    for (int i = 0; i < STATE; i++) {
        const double want = ((double)own[i] + own[STATE + i] + own[2 * STATE + i]) / 3;
        assert_true(fabs(mean[i / HIDDEN][i % HIDDEN] - want) < 1e-6);
        assert_true(i < HIDDEN || mean[1][i % HIDDEN] > 0);
    }
    assert_true(fabs(seen.last - evaluate_saved(folder)) < 1e-6 * seen.last);
}

/* Gone on from in the middle: the same bits. With another number of workers: from the mean. */
static void resumed(void **state)
{
    (void)state;
    static const char *const methods[] = {"ddp", "fsdp", "local-sgd"};
    for (int m = 0; m < 3; m++) {
        char preset[64], names[3][32];
        struct seen whole = {0}, rest = {0}, other = {0};
        snprintf(preset, sizeof preset, "strategy.preset=%s", methods[m]);
        for (int i = 0; i < 3; i++)
            snprintf(names[i], sizeof names[i], "%s.%d", methods[m], i);
        const char *options[] = {preset,
                                 "train.workers=2",
                                 "train.steps=6",
                                 "train.save_every=3",
                                 m == 1 ? "train.recompute=true" : "train.recompute=false",
                                 NULL};
        const uint64_t want = train(names[0], options, "", &whole);
        const uint64_t have = train(names[1], options, whole.saved[3], &rest);
        assert_true(want == have);
        assert_true(rest.last == whole.last);
        options[1] = "train.workers=1";
        options[2] = "train.steps=4";
        float own[STATE], mean[HIDDEN];
        const uint64_t alone = train(names[2], options, whole.saved[3], &other);
        assert_true(alone != want);
        read_floats(other.saved[4], "state.safetensors", "running_own.values", own, STATE);
        read_floats(whole.saved[3], "model.safetensors", "bn.running_mean", mean, HIDDEN);
        for (int i = 0; i < HIDDEN; i++) /* a micro-batch has moved it by a tenth */
            assert_true(fabsf(own[i] - mean[i]) < 0.3f && own[i] != mean[i]);
    }
}

/* It learns what it is shown. */
static void learns(void **state)
{
    (void)state;
    struct seen few = {0}, many = {0};
    train("few", (const char *[]){"train.steps=1", "train.workers=2", NULL}, "", &few);
    train("many",
          (const char *[]){"train.steps=7", "train.workers=2", "strategy.accumulate=8", NULL}, "",
          &many);
    assert_true(many.last < 0.8 * few.last);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(averaged),
        cmocka_unit_test(resumed),
        cmocka_unit_test(learns),
    };
    return cmocka_run_group_tests(tests, make_data, scratch_remove);
}
