/* Small ResNets and ViTs under every method: they learn, and a run that is gone on from has the
 * bits of one that was not interrupted; running statistics are averaged where one model is asked
 * for. */
#include "train/image_lab.h"

#include "hf/weights.h"
#include "train/run/run_worker.h"

enum { IMAGES = 64, SIDE = 8, TEST = 16 };

static int make_set(void **state)
{
    return make_image_set(state, SIDE, IMAGES, TEST);
}

static const char *const resnet[] = {"model.preset=resnet8", "resnet.depths=1,1",
                                     "resnet.widths=4,8", NULL};
static const char *const vit[] = {"model.preset=vit-tiny",
                                  "model.layers=2",
                                  "model.width=32",
                                  "model.heads=2",
                                  "model.init_std=0.1",
                                  "optim.lr=0.004",
                                  NULL};

static atomic_int stop;
static int64_t stop_at; /* a step; 0: none */

static void on_step(void *arg, const struct run_step *s)
{
    (void)arg;
    stop = stop_at && s->step >= stop_at;
}

/* In virtual time, which makes the methods that follow the clock repeatable. */
static struct run_result train(const char *out, const char *const *model,
                               const char *const *options)
{
    const struct run_watch watch = {.step = on_step, .stop = &stop};
    static const char *const basic[] = {
        "train.batch=8",    "train.threads=1",   "train.eval_batches=0",    "optim.warmup=0",
        "optim.lr=0.02",    "train.log_every=1", "train.workers=2",         "train.time=virtual",
        "worker.step=10ms", "train.keep=0",      "optim.schedule=constant", "train.save_every=0",
    };
    static struct run_config c;
    struct run *run = malloc(sizeof *run);
    c = configure_run(out);
    strcpy(c.data.train, at("set"));
    set_all(&c, basic, sizeof basic / sizeof *basic);
    set_all(&c, model, SIZE_MAX);
    set_all(&c, options, SIZE_MAX);
    stop = 0;
    assert_ok(run_open(run, &c, &watch));
    const enum sotto_status st = run_train(run);
    if (st != (stop_at ? SOTTO_ESTOPPED : SOTTO_OK))
        fail_with("%s: step %lld: %s", options[0], (long long)run->result.step, sotto_error());
    const struct run_result result = run->result;
    run_close(run);
    free(run);
    return result;
}

static void check_method(const char *preset, const char *own, const char *const *model, double goal)
{
    char strategy[64];
    snprintf(strategy, sizeof strategy, "strategy.preset=%s", preset);
    const char *options[] = {strategy, "train.steps=24", *own ? own : "train.log_every=1", NULL,
                             NULL};
    const struct run_result whole = train("whole", model, options);
    if (!(whole.evaluation.loss < goal))
        fail_with("%s: the loss is %g after %lld steps", preset, whole.evaluation.loss,
                  (long long)whole.step);
    stop_at = 9;
    train("part", model, options);
    stop_at = 0;
    options[3] = "train.resume=true";
    if (train("part", model, options).hash != whole.hash)
        fail_with("%s: gone on from, it has other bits", preset);
    assert_ok(file_remove_tree(at("whole")));
    assert_ok(file_remove_tree(at("part")));
}

/* ln 4 = 1.39 is where they begin. */
static void every_method(void **state)
{
    (void)state;
    static const struct {
        const char *name, *own;
    } methods[] = {{"ddp", ""},
                   {"zero1", ""},
                   {"fsdp", ""},
                   {"dpu", ""},
                   {"acco-wp", ""},
                   {"acco", ""},
                   {"local", "tau=3"},
                   {"co2", "tau=3"},
                   {"overlap-local", "tau=3"},
                   {"slowmo", "tau=3"},
                   {"diloco", "H=8"},
                   {"demo", ""},
                   {"random", "rate=0.5"},
                   {"striding", "rate=0.5"},
                   {"every", "every.n=3"}};
    EACH_SHARED(i, LEAP, sizeof methods / sizeof *methods)
        check_method(methods[i].name, methods[i].own, resnet, 1.3);
    check_method("ddp", "", vit, 1.3);
    check_method("fsdp", "", vit, 1.3);
}

/* What is published has the mean of the workers' own running statistics, counts their micro-batches
 * and gives the loss that was reported, loaded again. */
static void statistics_are_averaged(void **state)
{
    (void)state;
    static const char *const names[] = {"ddp", "fsdp", "local"};
    for (int i = 0; i < 3; i++) {
        char strategy[64];
        snprintf(strategy, sizeof strategy, "strategy.preset=%s", names[i]);
        const struct run_result r =
            train("run", resnet, (const char *[]){strategy, "train.steps=6", NULL});
        struct loaded_model l;
        assert_ok(loaded_model_open(&l, at("run"), "", 0, "cpu", 1));
        assert_evaluates(&l, 8, &r.evaluation);
        const int seen = table_find(&l.model.state,
                                    "resnet.embedder.embedder.normalization.num_batches_tracked");
        const float *kept = view_host(l.state.view);
        assert_true(kept[table_range(&l.model.state, seen).begin] == 6);
        struct safetensors set;
        char path[FILE_PATH_ROOM], folder[FILE_PATH_ROOM];
        float own[2][4], mean[4];
        assert_ok(safetensors_open(&set, at("run")));
        const struct safetensors_entry *entry =
            safetensors_find(&set, "resnet.embedder.embedder.normalization.running_mean");
        assert_ok(safetensors_read_f32(entry, mean));
        entry = safetensors_find(&set, "resnet.embedder.embedder.convolution.weight");
        assert_true(entry->shape[0] == 4 && entry->shape[1] == 1 && entry->shape[2] == 3);
        safetensors_close(&set);
        const int at_mean =
            table_find(&l.model.state, "resnet.embedder.embedder.normalization.running_mean");
        const size_t begin = table_range(&l.model.state, at_mean).begin;
        int64_t step;
        assert_ok(checkpoint_latest(at("run"), &step, folder));
        assert_ok(file_join(path, folder, "state.safetensors"));
        assert_ok(safetensors_open(&set, path));
        entry = safetensors_find(&set, "running_own.values");
        const size_t each = table_count(&l.model.state);
        assert_int_equal(entry->count, 2 * each);
        for (size_t w = 0; w < 2; w++)
            assert_ok(safetensors_read_f32_range(entry, w * each + begin, 4, own[w]));
        safetensors_close(&set);
        bool differ = false;
        for (int j = 0; j < 4; j++) {
            assert_true(fabsf((own[0][j] + own[1][j]) / 2 - mean[j]) < 1e-6f);
            differ |= own[0][j] != own[1][j];
        }
        assert_true(differ);
        loaded_model_close(&l);
        assert_ok(file_remove_tree(at("run")));
    }
}

enum { STAGES = 3, CYCLIC_STEPS = 10 };

static struct run_result train_cyclic(const char *out, const char *rule, const char *placement,
                                      bool resume)
{
    char options[3][64];
    const bool single = strcmp(placement, "single") == 0, mp = strcmp(placement, "mp") == 0;
    snprintf(options[0], sizeof *options, "cdp.rule=%s", rule);
    snprintf(options[1], sizeof *options, "cdp.placement=%s", placement);
    snprintf(options[2], sizeof *options, "train.workers=%d",
             single ? 1
             : mp   ? STAGES * (STAGES + 1) / 2
                    : STAGES);
    const char *const list[] = {"strategy.preset=cdp",
                                "train.steps=10",
                                options[0],
                                options[1],
                                options[2],
                                single ? "cdp.stages=3" : "train.log_every=1",
                                resume ? "train.resume=true" : "train.log_every=1",
                                NULL};
    return train(out, resnet, list);
}

/* What a model keeps: the first and the last of its layers that do. */
static void read_kept(const char *run, float out[25])
{
    static const char *const names[] = {
        "resnet.embedder.embedder.normalization.running_mean",
        "resnet.embedder.embedder.normalization.running_var",
        "resnet.encoder.stages.1.layers.0.layer.1.normalization.running_mean",
        "resnet.encoder.stages.1.layers.0.layer.1.normalization.running_var"};
    struct safetensors set;
    size_t at_ = 0;
    int64_t seen;
    assert_ok(safetensors_open(&set, at(run)));
    for (int i = 0; i < 4; i++) {
        const struct safetensors_entry *entry = safetensors_find(&set, names[i]);
        assert_non_null(entry);
        assert_true(at_ + entry->count <= 24);
        assert_ok(safetensors_read_f32(entry, out + at_));
        at_ += entry->count;
    }
    const struct safetensors_entry *entry =
        safetensors_find(&set, "resnet.embedder.embedder.normalization.num_batches_tracked");
    assert_non_null(entry);
    assert_ok(safetensors_read_i64(entry, &seen));
    assert_int_equal(seen, CYCLIC_STEPS);
    out[24] = (float)seen;
    safetensors_close(&set);
}

/* Statistics are the mean over a step's micro-batches in every placement; a step that is run again
 * moves them once. */
static void cyclic(void **state)
{
    (void)state;
    static const char *const rules[] = {"v2", "v1"};
    static const char *const placements[] = {"single", "dp", "pp", "zero", "mp"};
    for (int r = 0; r < 2; r++) {
        float want[25], kept[25];
        double loss = 0;
        for (int p = 0; p < 5; p++) {
            const struct run_result whole = train_cyclic("whole", rules[r], placements[p], false);
            read_kept("whole", kept);
            for (int i = 0; i < 25 && p > 0; i++)
                if (!(fabsf(kept[i] - want[i]) <= 1e-4f * (1 + fabsf(want[i]))))
                    fail_with("%s %s keeps %g, not %g", placements[p], rules[r], kept[i], want[i]);
            if (p > 0 && fabs(whole.evaluation.loss - loss) > 1e-4)
                fail_with("%s %s ends with %g, not %g", placements[p], rules[r],
                          whole.evaluation.loss, loss);
            if (p == 0) {
                memcpy(want, kept, sizeof want);
                loss = whole.evaluation.loss;
            }
            stop_at = 3;
            train_cyclic("part", rules[r], placements[p], false);
            stop_at = 0;
            if (train_cyclic("part", rules[r], placements[p], true).hash != whole.hash)
                fail_with("%s %s: gone on from, it has other bits", placements[p], rules[r]);
            assert_ok(file_remove_tree(at("whole")));
            assert_ok(file_remove_tree(at("part")));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_method),
        cmocka_unit_test(statistics_are_averaged),
        cmocka_unit_test(cyclic),
    };
    return run_cases(tests, SANITIZED ? 3 : 1, make_set, scratch_remove);
}
