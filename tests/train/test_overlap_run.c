/* Whole runs of dpu, acco-wp and acco: time on a simulated cluster; and counts, which repeat the
 * bits of a run and survive checkpoints. */
#include "train/fixture.h"

#include "train/run/run_worker.h"

static const char *const names[] = {"dpu", "acco-wp", "acco"};

/* `options`: assignments with spaces between them, on top of a model of some thousand parameters.
 */
static struct run_config configure(const char *out, const char *method, const char *options)
{
    char all[1024], *save = NULL;
    struct run_config c = configure_run(out);
    snprintf(all, sizeof all,
             "model.layers=2 model.width=16 model.heads=2 model.positions=16 train.batch=2 "
             "train.workers=4 train.time=virtual train.log_every=1 "
             "train.eval_batches=2 train.threads=2 data.holdout=0.1 optim.schedule=constant "
             "optim.lr=0.01 train.nodes=4 worker.step=50ms strategy.preset=%s %s",
             method, options);
    for (char *one = strtok_r(all, " ", &save); one; one = strtok_r(NULL, " ", &save))
        set(&c, one);
    return c;
}

struct outcome {
    struct run_result result; /* without its workers */
    double exposed;           /* the largest share of a worker's time */
};

/* To round `steps`; the learning rate does not know how many there are. */
static enum sotto_status train(const struct run_config *config, struct outcome *o, int64_t steps)
{
    struct run run;
    struct run_config c = *config;
    *o = (struct outcome){0};
    c.train.steps = steps;
    TRY(run_open(&run, &c, NULL));
    enum sotto_status st = run_train(&run);
    o->result = run.result;
    for (int r = 0; r < run.cluster.size && run.result.worker; r++) {
        const struct cost *cost = &run.result.worker[r].cost;
        double share = cost->seconds > 0 ? cost_exposed(cost) / cost->seconds : 0;
        o->exposed = share > o->exposed ? share : o->exposed;
    }
    o->result.worker = NULL;
    run_close(&run);
    return st;
}

static void named(char out[64], const char *a, const char *b, int n)
{
    snprintf(out, 64, "%s.%s.%d", a, b, n);
}

/* Communication as long as computing: hidden, but for the first micro-batch, when nothing is in
 * flight yet. */
static void communication_is_hidden(void **state)
{
    (void)state;
    static const char link[] = "link.inter=4MB/s,0.1ms";
    char out[64];
    struct outcome ddp, other;
    struct run_config c = configure("hidden.ddp", "ddp", link);
    assert_ok(train(&c, &ddp, 20));
    if (!(ddp.exposed > 0.1))
        fail_with("ddp waits only %.1f %% of its time", 100 * ddp.exposed);
    for (int m = 0; m < 3; m++) {
        named(out, "hidden", names[m], 0);
        c = configure(out, names[m], link);
        assert_ok(train(&c, &other, 20));
        if (!(other.exposed < 0.03))
            fail_with("%s waits %.1f %% of its time", names[m], 100 * other.exposed);
        if (!(other.result.samples / other.result.seconds >
              1.05 * ddp.result.samples / ddp.result.seconds))
            fail_with("%s is no faster than ddp: %g and %g samples a second", names[m],
                      other.result.samples / other.result.seconds,
                      ddp.result.samples / ddp.result.seconds);
    }
}

/* One worker of four takes four times as long. ddp's other three wait; here they continue, so that
 * in the time of the slow worker's micro-batch there are 3 * 4 + 1 instead of 4. */
static void slow_worker(void **state)
{
    (void)state;
    static const char slow[] = "worker.speed=1,1,1,0.25 link.inter=1GB/s";
    char out[64];
    struct outcome ddp, other; /* 40 rounds: the first gradient, which nothing hides, is a 40th */
    struct run_config c = configure("slow.ddp", "ddp", slow);
    assert_ok(train(&c, &ddp, 40));
    for (int m = 0; m < 3; m++) {
        named(out, "slow", names[m], 0);
        c = configure(out, names[m], slow);
        assert_ok(train(&c, &other, 40));
        double ratio =
            other.result.samples / other.result.seconds / (ddp.result.samples / ddp.result.seconds);
        if (!(fabs(ratio - 3.25) < 0.2))
            fail_with("%s: %g times the samples of ddp, want 3.25", names[m], ratio);
        if (!(other.exposed < 0.03))
            fail_with("%s waits %.1f %% of its time", names[m], 100 * other.exposed);
    }
}

static char *counts_of(const char *out)
{
    char path[96];
    snprintf(path, sizeof path, "%s/counts.tsv", out);
    return slurp(at(path));
}

/* How fast the links are no longer matters. */
static void replay_of(struct run_config *c, const char *out)
{
    char path[96];
    snprintf(path, sizeof path, "%s/counts.tsv", out);
    struct option_section sections[RUN_SECTIONS];
    run_sections(c, sections);
    assert_ok(option_set(sections, RUN_SECTIONS, "replay", at(path)));
    strcpy(c->link.inter, "");
}

/* A run's counts.tsv repeats the run, in real and in virtual time, stopped and resumed or not; and
 * the repeated run writes the same counts. */
static void counts_make_the_run(void **state)
{
    (void)state;
    static const char *const times[] = {
        "worker.speed=1,0.6,2.5,0.3 worker.jitter=0.2 link.inter=2MB/s,1ms strategy.accumulate=2",
        "train.time=real worker.step= link.inter=50MB/s,0.1ms strategy.precision=mixed"};
    EACH_SHARED(m, LEAP, 3)
        for (int time = 0; time < 2; time++) {
            char out[64], again[64], part[64], options[160];
            struct outcome whole, other;
            snprintf(options, sizeof options, "%s%s", times[time], m == 0 ? " dpu.warmup=2" : "");
            named(out, "counts", names[m], time);
            struct run_config c = configure(out, names[m], options);
            assert_ok(train(&c, &whole, 8));
            char *counts = counts_of(out);

            named(again, "again", names[m], time);
            c = configure(again, names[m], options);
            c.train.time = time ? TIME_VIRTUAL : TIME_REAL;
            strcpy(c.worker.speed, "1");
            strcpy(c.worker.step, time ? "50ms" : "");
            c.worker.jitter = 0;
            replay_of(&c, out);
            assert_ok(train(&c, &other, 8));
            if (other.result.hash != whole.result.hash)
                fail_with("%s, %d: not the bits of the run that is replayed", names[m], time);
            assert_int_equal(other.result.samples, whole.result.samples);

            for (int k = time ? 5 : 1; k <= 5; k += 4) {
                named(part, "part", names[m], 10 * time + k);
                c = configure(part, names[m], options);
                replay_of(&c, out);
                assert_ok(train(&c, &other, k));
                c.train.resume = true;
                assert_ok(train(&c, &other, 8));
                if (other.result.hash != whole.result.hash)
                    fail_with("%s, %d: resumed behind %d, it ends elsewhere", names[m], time, k);
                char *resumed = counts_of(part);
                assert_string_equal(resumed, counts);
                free(resumed);
            }
            free(counts);
        }
}

/* Every other method and number of workers continues from the checkpoint. zero1 and fsdp see the
 * same gradients in another order, and end at the same loss; the model's embedding is tied: fsdp
 * keeps that stage. */
static void others_go_on(void **state)
{
    (void)state;
    static const char *const next[] = {"zero1", "fsdp", "ddp", "dpu", "acco-wp", "acco"};
    static const char slow[] = "worker.speed=1,0.3 optim.kind=sgd optim.lr=0.3";
    EACH_SHARED(m, LEAP, 3)
        for (int workers = 2; workers <= 8; workers *= 4) {
            double loss = 0;
            for (int n = 0; n < (m == 2 ? 6 : 2); n++) {
                char out[64], options[128];
                struct outcome before, after;
                snprintf(out, sizeof out, "go.%s.%d.%s", names[m], workers, next[n]);
                struct run_config c = configure(out, names[m], slow);
                assert_ok(train(&c, &before, 3));
                snprintf(options, sizeof options,
                         "train.workers=%d train.nodes=%d optim.kind=sgd optim.lr=0.3", workers,
                         workers);
                c = configure(out, next[n], options);
                c.train.resume = true;
                assert_ok(train(&c, &after, 8));
                assert_int_equal(after.result.step, 8);
                const double now = after.result.evaluation.loss;
                if (n == 0)
                    loss = now;
                if (n < 3 && !(fabs(now - loss) < 1e-5))
                    fail_with("%s after %s with %d workers: loss %.9g, zero1's %.9g", next[n],
                              names[m], workers, now, loss);
                assert_ok(train(&c, &after, 10)); /* and once more */
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(communication_is_hidden),
        cmocka_unit_test(slow_worker),
        cmocka_unit_test(counts_make_the_run),
        cmocka_unit_test(others_go_on),
    };
    return run_cases(tests, SANITIZED ? 3 : 1, make_data, scratch_remove);
}
