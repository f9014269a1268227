/* Runs with cyclic data parallelism: all placements end with the same bits, parameters and state,
 * as one worker; a run resumed with a full pipeline ends with the bits of an uninterrupted run, in
 * any placement; activations of one worker take the paper's share. */
#include "train/fixture.h"

#include "train/run/run_worker.h"

enum { N = 7, STAGES = 4 };

static struct run_config configure(const char *out, const char *placement, const char *rule,
                                   int stages)
{
    static const char *const basic[] = {
        "model.layers=3", "model.width=16",       "model.heads=2",          "model.positions=16",
        "train.batch=2",  "train.log_every=1",    "train.eval_every=3",     "train.threads=1",
        "optim.lr=0.01",  "train.eval_batches=2", "data.holdout=0.1",       "train.keep=0",
        "model.tied=no",  "strategy.preset=cdp",  "optim.schedule=constant"};
    struct run_config c = configure_run(out);
    char text[64];
    set_all(&c, basic, sizeof basic / sizeof *basic);
    snprintf(text, sizeof text, "cdp.placement=%s", placement);
    set(&c, text);
    snprintf(text, sizeof text, "cdp.rule=%s", rule);
    set(&c, text);
    const bool single = strcmp(placement, "single") == 0, mp = strcmp(placement, "mp") == 0;
    snprintf(text, sizeof text, single ? "cdp.stages=%d" : "train.workers=%d",
             mp ? stages * (stages + 1) / 2 : stages);
    set(&c, text);
    return c;
}

static struct run_result train(const struct run_config *c, int64_t steps)
{
    struct run_config config = *c;
    struct run run;
    config.train.steps = steps;
    config.train.resume = true;
    assert_ok(run_open(&run, &config, &(struct run_watch){0}));
    assert_ok(run_train(&run));
    struct run_result result = run.result;
    result.worker = NULL;
    run_close(&run);
    return result;
}

static const char *const rules[] = {"v2", "v1", "sync"};
enum { SYNC = 2 };
static const char *const placements[] = {"single", "dp", "pp", "zero", "mp"};
enum { PLACEMENTS = sizeof placements / sizeof *placements };

/* True if two placements have the same bits: not with sync, nor in mp, where sums have another
 * order. */
static bool alike(int placement, int rule)
{
    return rule != SYNC && strcmp(placements[placement], "mp") != 0;
}

static uint64_t train_as(const char *out, int placement, int rule, int64_t steps)
{
    struct run_config c = configure(out, placements[placement], rules[rule], STAGES);
    return train(&c, steps).hash;
}

/* A run stops in every placement, another placement with the same bits resumes it, and back. */
static void resume(void **state)
{
    (void)state;
    for (int r = 0; r < 3; r++) {
        uint64_t hash = 0;
        for (int p = 0; p < PLACEMENTS - 2 * (r == SYNC); p++) {
            char out[32];
            snprintf(out, sizeof out, "through.%d.%d", r, p);
            const uint64_t through = train_as(out, p, r, N);
            assert_true(p == 0 || !alike(p, r) || through == hash);
            hash = through;
            int other = alike(p, r) ? (p + 1) % PLACEMENTS : p;
            other = alike(other, r) || other == p ? other : 0;
            snprintf(out, sizeof out, "part.%d.%d", r, p);
            train_as(out, p, r, 1 + p % 3);
            train_as(out, other, r, 4 + p % 2);
            const uint64_t resumed = train_as(out, p, r, N);
            if (resumed != hash)
                fail_with("%s %s: taken up twice, it ends elsewhere", placements[p], rules[r]);
        }
    }
}

/* With another number of workers or stages, or another rule, other tensors have an older version.
 * Tensors that a file lacks are the same in any placement. */
static void resume_otherwise(void **state)
{
    (void)state;
    static const struct {
        int from, stages, to; /* rules */
    } cases[] = {{0, 2, 0}, {0, 2, 1}, {1, 3, 0}, {SYNC, 2, 0}, {0, 5, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t hash = 0;
        for (int p = 0; p < PLACEMENTS; p++) {
            char out[32];
            snprintf(out, sizeof out, "cut.%zu.%d", i, p);
            struct run_config c = configure(out, "single", rules[cases[i].from], cases[i].stages);
            train(&c, 3);
            const uint64_t end = train_as(out, p, cases[i].to, 6);
            assert_true(p == 0 || !alike(p, cases[i].to) || end == hash);
            hash = end;
        }
    }
}

/* The place in the data in a checkpoint, in micro-batches. */
static int64_t place_in_data(const char *out, int step)
{
    char path[96];
    int64_t place = -1;
    struct state_visitor v;
    snprintf(path, sizeof path, "%s/checkpoints/step-%08d/state.safetensors", out, step);
    assert_ok(state_loader_open(&v, at(path)));
    assert_ok(state_count(&v, "microbatches", &place, 1000));
    state_free(&v);
    return place;
}

/* After a method whose number of micro-batches is no multiple of the stages, the first step is the
 * first with new data only. */
static void after_another_method(void **state)
{
    (void)state;
    for (int workers = 1; workers <= 4; workers++) {
        char out[32], text[64];
        snprintf(out, sizeof out, "after.%d", workers);
        snprintf(text, sizeof text, "train.workers=%d", workers);
        struct run_config c = configure(out, "single", "v2", STAGES), other = configure_run(out);
        other.model = c.model;
        other.optim = c.optim;
        set(&other, "train.batch=2");
        set(&other, "train.threads=1");
        set(&other, text);
        train(&other, 5);
        assert_int_equal(place_in_data(out, 5), 5 * workers);
        train(&c, 6);
        assert_int_equal(place_in_data(out, 6), STAGES * ((5 * workers + STAGES - 1) / STAGES + 1));
    }
}

static size_t activations(const char *rule, int stages)
{
    struct run_config c = configure("memory", "single", rule, stages);
    struct run run;
    snprintf(c.train.out, sizeof c.train.out, "%s.%s.%d", at("memory"), rule, stages);
    c.train.steps = 3;
    set(&c, "train.eval_every=0");
    set(&c, "model.layers=8");
    assert_ok(run_open(&run, &c, &(struct run_watch){0}));
    assert_ok(run_train(&run));
    const size_t bytes = run.result.worker[0].memory[MEMORY_ACTIVATIONS];
    run_close(&run);
    return bytes;
}

/* n + 1 halves of a micro-batch's activations against n; unequal blocks of stages make it a little
 * more or less. */
static void memory(void **state)
{
    (void)state;
    for (int n = 4; n <= 8; n += 4) {
        const double share = (double)activations("v2", n) / (double)activations("sync", n);
        const double want = (n + 1) / (2.0 * n);
        if (fabs(share - want) > 0.08)
            fail_with("%d stages: %.3f of sync's activations, not %.3f", n, share, want);
    }
}

/* zero: a worker has room for the largest of every other stage, with the version before only where
 * the rule needs one. */
static void rooms(void **state)
{
    (void)state;
    for (int r = 0; r < 2; r++) {
        struct run_config c = configure("rooms", "zero", rules[r], STAGES);
        struct run run;
        size_t largest[2] = {0, 0}, older[2] = {0, 0};
        snprintf(c.train.out, sizeof c.train.out, "%s.%d", at("rooms"), r);
        c.train.steps = 3;
        set(&c, "model.layers=2");
        assert_ok(run_open(&run, &c, &(struct run_watch){0}));
        assert_ok(run_train(&run));
        for (int k = 0; k < STAGES; k++) {
            const size_t count = table_stage_count(run.table, k);
            const bool two = r == 1 || k < STAGES - 1;
            largest[k % 2] = count > largest[k % 2] ? count : largest[k % 2];
            older[k % 2] = two && count > older[k % 2] ? count : older[k % 2];
        }
        const size_t one = (largest[0] + largest[1]) * sizeof(float);
        const size_t two = (older[0] + older[1]) * sizeof(float);
        assert_true(largest[0] != largest[1]);
        for (int w = 0; w < STAGES; w++) {
            const size_t *memory = run.result.worker[w].memory;
            assert_int_equal(memory[MEMORY_PARAMETERS], one + two);
            assert_int_equal(memory[MEMORY_GRADIENTS], one);
            assert_int_equal(memory[MEMORY_OPTIMIZER], 2 * one); /* AdamW */
        }
        run_close(&run);
    }
}

static double seconds(const char *method, const char *rule, int64_t steps)
{
    static const char *const basic[] = {
        "train.oracle=null", "null.parameters=40M", "train.time=virtual",
        "worker.step=800ms", "train.workers=4",     "train.nodes=4",
        "train.stages=4",    "train.eval_every=0",  "link.inter=1GB/s,10us"};
    struct run_config c = configure_run("time");
    struct run run;
    snprintf(c.train.out, sizeof c.train.out, "%s.%s%s.%lld", at("time"), method,
             rule ? strchr(rule, '=') + 1 : "", (long long)steps);
    snprintf(c.strategy.preset, sizeof c.strategy.preset, "%s", method);
    strcpy(c.train.device, "cpu");
    set_all(&c, basic, sizeof basic / sizeof *basic);
    if (rule)
        set(&c, rule);
    c.train.steps = steps;
    assert_ok(run_open(&run, &c, &(struct run_watch){0}));
    assert_ok(run_train(&run));
    const double result = run.result.seconds;
    run_close(&run);
    return result;
}

static double step_time(const char *method, const char *rule)
{
    return (seconds(method, rule, 16) - seconds(method, rule, 6)) / 10;
}

/* On links where ddp's sums end after backward: v1 has a time step for each message and computes
 * all the time, v2 waits if a stage is needed at once, and no worker waits for all others. */
static void steady_time(void **state)
{
    (void)state;
    const double ddp = step_time("ddp", NULL), sync = step_time("cdp", "cdp.rule=sync");
    const double v1 = step_time("cdp", "cdp.rule=v1"), v2 = step_time("cdp", "cdp.rule=v2");
    if (fabs(v1 - 0.8) > 1e-6 || v2 < v1 || v2 >= ddp || sync <= ddp)
        fail_with("a step takes %g s with v1, %g with v2, %g with sync, %g with ddp", v1, v2, sync,
                  ddp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resume),      cmocka_unit_test(resume_otherwise),
        cmocka_unit_test(memory),      cmocka_unit_test(rooms),
        cmocka_unit_test(steady_time), cmocka_unit_test(after_another_method),
    };
    return run_cases(tests, SANITIZED ? 3 : 1, make_data, scratch_remove);
}
