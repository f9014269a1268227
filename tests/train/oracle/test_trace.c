/* Traces of activations: several micro-batches in flight have the sum of each one's activations.
 * With one worker and equal stages, cyclic data parallelism has activations of (n + 1)/2
 * micro-batches in a time step, plain data parallelism of n. */
#include "train/fixture.h"

#include "train/run/run_worker.h"

enum { MOST = 8, STEPS = 3, ROWS = 4 * STEPS * 2 * MOST * MOST };

struct row {
    int batch, stage;
    bool backward;
    size_t live, peak;
};

struct traced {
    struct row row[ROWS];
    int rows;
    size_t live; /* as the run reports it */
};

static struct traced *read_trace(const char *out, int worker)
{
    struct traced *t = calloc(1, sizeof *t);
    char name[64], pass[16], line[160];
    assert_non_null(t);
    snprintf(name, sizeof name, "%s/trace-%d.tsv", out, worker);
    FILE *f = fopen(at(name), "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    assert_string_equal(line, "worker\tseconds\tbatch\tstage\tpass\tlive\tpeak\n");
    double before = 0;
    while (fgets(line, sizeof line, f)) {
        struct row *r = &t->row[t->rows++];
        double seconds;
        int who;
        assert_true(t->rows < ROWS);
        assert_int_equal(sscanf(line, "%d\t%lf\t%d\t%d\t%15s\t%zu\t%zu\n", &who, &seconds,
                                &r->batch, &r->stage, pass, &r->live, &r->peak),
                         7);
        r->backward = strcmp(pass, "backward") == 0;
        assert_true(who == worker && r->peak >= r->live && seconds >= before);
        before = seconds;
    }
    fclose(f);
    return t;
}

static struct run_config configure(const char *out, const char *const *options)
{
    static const char *const basic[] = {
        "model.layers=8",   "model.width=32",  "model.heads=2",          "model.positions=16",
        "train.batch=2",    "train.threads=1", "train.steps=3",          "model.tied=no",
        "train.trace=true", "data.holdout=0",  "optim.schedule=constant"};
    struct run_config c = configure_run(out);
    set_all(&c, basic, sizeof basic / sizeof *basic);
    set_all(&c, options, 8);
    return c;
}

static struct traced *train(const char *out, const struct run_config *c)
{
    struct run run;
    assert_ok(run_open(&run, c, &(struct run_watch){0}));
    assert_ok(run_train(&run));
    struct traced *t = read_trace(out, 0);
    t->live = run.result.worker[0].live;
    assert_true(t->live <= run.result.worker[0].memory[MEMORY_ACTIVATIONS]);
    run_close(&run);
    return t;
}

static int runs;

static struct traced *train_single(const char *rule, int n, bool null)
{
    char out[32], rule_is[32], stages[32];
    snprintf(out, sizeof out, "single.%d", runs++);
    snprintf(rule_is, sizeof rule_is, "cdp.rule=%s", rule);
    snprintf(stages, sizeof stages, "cdp.stages=%d", n);
    struct run_config c = configure(
        out, (const char *[]){"strategy.preset=cdp", "cdp.placement=single", rule_is, stages,
                              null ? "train.oracle=null" : NULL, "train.time=virtual",
                              "worker.step=1ms", "train.device=cpu"});
    c.null.parameters = null ? n * 10 : 0;
    c.null.activation_bytes = null ? n * 1000 : 0;
    return train(out, &c);
}

/* The place of a row in its micro-batch's 2n tasks, and the schedule's time step. */
static int task(const struct row *r, int n)
{
    return r->backward ? 2 * n - r->stage : r->stage - 1;
}

static int time_step(const struct row *r, int n, bool cyclic)
{
    return 2 * n * (r->batch / n) + (cyclic ? 2 * (r->batch % n) : 0) + task(r, n);
}

/* Activations of a single micro-batch after each of its tasks. */
static void one_alone(int n, size_t behind[2 * MOST])
{
    char out[32], stages[32];
    snprintf(out, sizeof out, "alone.%d", runs++);
    snprintf(stages, sizeof stages, "train.stages=%d", n);
    const struct run_config c = configure(out, (const char *[]){stages, NULL});
    struct traced *t = train(out, &c);
    assert_int_equal(t->rows, STEPS * 2 * n);
    for (int i = 0; i < t->rows; i++) {
        assert_int_equal(task(&t->row[i], n), i % (2 * n));
        assert_int_equal(t->row[i].batch, i / (2 * n));
        behind[i % (2 * n)] = t->row[i].live;
    }
    assert_true(behind[n - 1] > behind[0] && behind[2 * n - 1] == 0);
    free(t);
}

/* After every time step activations are the sum over the micro-batches in flight, to the byte: the
 * paper's figure 4 adds up curves of a single micro-batch. */
static void sums_of_one(void **state)
{
    (void)state;
    static const char *const rules[] = {"v2", "v1", "sync"};
    for (int n = 3; n <= 4; n++) {
        size_t behind[2 * MOST];
        one_alone(n, behind);
        for (int r = 0; r < 3; r++) {
            const bool cyclic = r < 2;
            struct traced *t = train_single(rules[r], n, false);
            for (int i = 0; i < t->rows; i++) {
                const int time = time_step(&t->row[i], n, cyclic);
                if (i + 1 < t->rows && time_step(&t->row[i + 1], n, cyclic) == time)
                    continue;
                size_t sum = 0;
                for (int m = 0; m < n; m++) {
                    const int at = time - (cyclic ? 2 * m : 0);
                    sum += at >= 0 ? behind[at % (2 * n)] : 0;
                }
                assert_int_equal(t->row[i].live, sum);
            }
            free(t);
        }
    }
}

/* The most bytes of a time step whose tasks run at once: bytes before the step, and of its
 * forwards. */
static size_t at_once(const struct traced *t, int n, bool cyclic)
{
    size_t most = 0, now = 0;
    for (int i = 0; i < t->rows; i++) {
        const size_t before = i ? t->row[i - 1].live : 0;
        if (!i || time_step(&t->row[i], n, cyclic) != time_step(&t->row[i - 1], n, cyclic))
            now = before;
        if (!t->row[i].backward)
            now += t->row[i].live - before;
        most = now > most ? now : most;
    }
    return most;
}

/* Stages of 1000 declared bytes each. Tasks of a time step run in turn, backwards first, so that
 * one worker needs less than if all ran at once. */
static void equal_stages(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST; n++) {
        struct traced *v2 = train_single("v2", n, true), *sync = train_single("sync", n, true);
        const int half = (n * n + 1) / 2;
        assert_int_equal(at_once(v2, n, true), n * (n + 1) / 2 * 1000);
        assert_int_equal(at_once(sync, n, false), n * n * 1000);
        assert_int_equal(v2->live, half * 1000);
        assert_int_equal(sync->live, n * n * 1000);
        free(v2);
        free(sync);
    }
}

/* A model's, whose first and last stage are a little smaller, and with gradients between stages. */
static void stages_of_a_model(void **state)
{
    (void)state;
    for (int n = 4; n <= 8; n += 4) {
        size_t behind[2 * MOST];
        one_alone(n, behind);
        struct traced *v2 = train_single("v2", n, false), *sync = train_single("sync", n, false);
        const double one = (double)behind[n - 1];
        const double most = (double)at_once(v2, n, true) / one, live = (double)v2->live / one,
                     plain = (double)sync->live / one;
        if (fabs(most - (n + 1) / 2.0) > 0.03 * n || live < n / 2.0 || live > (n + 1) / 2.0 ||
            plain < n || plain > n + 0.2)
            fail_with("%d stages: %.3f micro-batches at once, %.3f in turn, %.3f with sync", n,
                      most, live, plain);
        free(v2);
        free(sync);
    }
}

/* Evaluations add activations to those of micro-batches in flight, and are no part of training's
 * peak. */
static void evaluations(void **state)
{
    (void)state;
    size_t most = 0;
    struct run_config c = configure(
        "evaluated", (const char *[]){"strategy.preset=cdp", "cdp.placement=single", "cdp.stages=4",
                                      "data.holdout=0.1", "train.eval_every=1", NULL});
    struct traced *t = train("evaluated", &c);
    for (int i = 0; i < t->rows; i++)
        most = t->row[i].peak > most ? t->row[i].peak : most;
    assert_int_equal(t->live, most);
    free(t);
}

/* Every worker has a file of its own, and micro-batches are numbered over all workers. */
static void workers(void **state)
{
    (void)state;
    struct run_config c =
        configure("two", (const char *[]){"train.workers=2", "train.stages=2", NULL});
    free(train("two", &c));
    for (int w = 0; w < 2; w++) {
        struct traced *t = read_trace("two", w);
        assert_int_equal(t->rows, STEPS * 4);
        for (int i = 0; i < t->rows; i++)
            assert_int_equal(t->row[i].batch, i / 4 * 2 + w);
        free(t);
    }
    c = configure("off", (const char *[]){"train.trace=false", NULL});
    struct run run;
    assert_ok(run_open(&run, &c, &(struct run_watch){0}));
    assert_ok(run_train(&run));
    run_close(&run);
    assert_false(file_exists(at("off/trace-0.tsv")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_one),       cmocka_unit_test(equal_stages),
        cmocka_unit_test(stages_of_a_model), cmocka_unit_test(evaluations),
        cmocka_unit_test(workers),
    };
    return cmocka_run_group_tests(tests, make_data, scratch_remove);
}
