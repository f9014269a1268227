/* How long runs last: budgets of tokens, samples and seconds, alone and with others, resumed; and
 * what local methods report of all their groups. */
#include "train/fixture.h"

#include <math.h>
#include <stdatomic.h>

#include "base/json.h"
#include "base/log.h"
#include "train/config/budget.h"
#include "train/run/run_worker.h"

/* Four workers of 2 x 16 tokens: 8 sequences and 128 tokens a round. Worker 3 is slow. */
static struct run_config configure(const char *method)
{
    static const char *const basic[] = {
        "model.layers=1",         "model.width=16", "model.heads=2",
        "model.positions=16",     "train.batch=2",  "train.log_every=1",
        "train.time=virtual",     "train.keep=0",   "train.threads=1",
        "optim.lr=0.01",          "data.holdout=0", "train.workers=4",
        "optim.warmup=2",         "local.tau=3",    "overlap-local.tau=3",
        "slowmo.tau=3",           "co2.tau=3",      "diloco.H=3",
        "worker.step=100ms",      "train.stages=2", "train.nodes=4",
        "worker.speed=1,1,1,0.5",
    };
    static int folders;
    char folder[32];
    snprintf(folder, sizeof folder, "run.%d", folders++);
    struct run_config c = configure_run(folder);
    set_all(&c, basic, sizeof basic / sizeof *basic);
    strcpy(c.strategy.preset, method);
    return c;
}

struct seen {
    int64_t stop_at;
    atomic_int stop;
};

static void on_step(void *arg, const struct run_step *s)
{
    struct seen *seen = arg;
    seen->stop |= s->step == seen->stop_at;
    assert_true(s->steps >= s->step);
}

static enum sotto_status train(struct run_config c, int64_t stop_at, struct run_result *out)
{
    struct run run;
    struct seen seen = {.stop_at = stop_at};
    struct run_watch watch = {.step = on_step, .arg = &seen, .stop = &seen.stop};
    strategy_set_aside(&c.strategy, &c.strategy); /* tau and H are one method's */
    TRY(run_open(&run, &c, &watch));
    enum sotto_status st = run_train(&run);
    *out = run.result;
    out->seconds = run.result.worker[3].cost.seconds;
    out->worker = NULL;
    run_close(&run);
    return st;
}

static void arithmetic(void **state)
{
    (void)state;
    struct train_config c = {.steps = -1, .seq = 16};
    const struct budget_spent none = {0}, some = {10, 1280, 80, 9, 4.5};
    budget_resolve(&c);
    assert_int_equal(c.steps, 1000);
    assert_int_equal(budget_rounds(&c, &none, 8), 1000);
    c = (struct train_config){.steps = -1, .tokens = 128 * 7, .seq = 16};
    budget_resolve(&c);
    assert_int_equal(c.steps, -1);
    assert_int_equal(budget_rounds(&c, &none, 8), 7);
    c.tokens++;
    assert_int_equal(budget_rounds(&c, &none, 8), 8);
    assert_int_equal(budget_rounds(&c, &some, 999), 8);
    c.samples = 40;
    assert_int_equal(budget_rounds(&c, &some, 8), 5); /* the first that is reached */
    c.steps = 3;
    assert_int_equal(budget_rounds(&c, &some, 8), 3);
    c = (struct train_config){.steps = -1, .seconds = 20};
    assert_int_equal(budget_rounds(&c, &none, 8), BUDGET_UNKNOWN);
    assert_int_equal(budget_rounds(&c, &some, 8), 40);
    /* A real clock shows a little before the first round is timed. */
    const struct budget_spent begun = {.rounds = 1, .tokens = 128, .samples = 8, .seconds = 1e-6};
    assert_int_equal(budget_rounds(&c, &begun, 8), BUDGET_UNKNOWN);
    for (int64_t n = 1; n < 2000; n++) { /* what is reached is reached, for whatever counts */
        const struct budget_spent spent = {n, 97 * n, n, 0, 0};
        c = (struct train_config){.steps = -1, .tokens = 97 * n};
        assert_int_equal(budget_rounds(&c, &spent, 1), n);
        c.tokens--;
        assert_int_equal(budget_rounds(&c, &spent, 1), n);
        c.tokens += 2;
        assert_true(budget_rounds(&c, &spent, 1) == n + 1);
    }
}

/* A budget in tokens or samples makes the rounds, and the learning rates, that their number would;
 * a run that is stopped and resumed too. */
static void tokens_are_steps(void **state)
{
    (void)state;
    static const char *const methods[] = {"ddp", "fsdp", "local-sgd", "co2", "diloco"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        struct run_config c = configure(methods[i]);
        struct run_result steps, tokens, samples, resumed;
        c.train.steps = 11;
        assert_ok(train(c, 0, &steps));
        c = configure(methods[i]);
        c.train.tokens = 128 * 10 + 1;
        assert_ok(train(c, 0, &tokens));
        c = configure(methods[i]);
        c.train.samples = 8 * 11;
        assert_ok(train(c, 0, &samples));
        c = configure(methods[i]);
        c.train.tokens = 128 * 11;
        c.train.resume = true;
        assert_fails(train(c, 4, &resumed), SOTTO_ESTOPPED, "of 11;");
        assert_ok(train(c, 0, &resumed));
        if (tokens.step != 11 || tokens.hash != steps.hash)
            fail_with("%s: tokens end at step %lld", methods[i], (long long)tokens.step);
        if (samples.step != 11 || samples.hash != steps.hash)
            fail_with("%s: samples end at step %lld", methods[i], (long long)samples.step);
        if (resumed.step != 11 || resumed.hash != steps.hash)
            fail_with("%s: resumed, it ends elsewhere, at step %lld", methods[i],
                      (long long)resumed.step);
        assert_int_equal(tokens.tokens, 128 * 11);
    }
}

/* acco makes a micro-batch whenever there is time: the run ends with the round that reaches the
 * limit. */
static void counted_tokens(void **state)
{
    (void)state;
    struct run_config c = configure("acco");
    struct run_result r;
    set(&c, "link.intra=1MB/s,30ms");
    set(&c, "link.inter=1MB/s,30ms");
    c.train.samples = 400;
    assert_ok(train(c, 0, &r));
    assert_true(r.complete && r.samples >= 400);
    assert_true((double)r.samples < 400 * (1 + 1.5 / (double)r.step));
}

/* A round of the slow worker takes 0.2 s: 6 s are 30 rounds, or one more. */
static void seconds(void **state)
{
    (void)state;
    static const char *const methods[] = {"ddp", "acco", "local-sgd", "co2", "diloco"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        struct run_config c = configure(methods[i]);
        struct run_result r;
        c.train.seconds = 6;
        assert_ok(train(c, 0, &r));
        if (!r.complete || r.seconds < 5.5 || r.seconds > 7)
            fail_with("%s: 6 s end after %g s, at step %lld", methods[i], r.seconds,
                      (long long)r.step);
    }
}

static struct run_config configure_apart(const char *method, bool slow)
{
    struct run_config c = configure(method);
    static const char *const rare[] = {"local.tau=500", "overlap-local.tau=500", "slowmo.tau=500",
                                       "co2.tau=500", "diloco.H=500"};
    for (size_t i = 0; i < sizeof rare / sizeof *rare; i++)
        set(&c, rare[i]);
    set(&c, "worker.step=50ms");
    set(&c, "link.inter=100Mbit/s,5ms");
    set(&c, slow ? "worker.speed=1,1,1,0.5" : "worker.speed=1");
    c.train.seconds = 3;
    return c;
}

/* Groups without an exchange so far know when the time is up: in a run of 3 s only the last round
 * and its exchange end later; the same in each run, and resumed. */
static void seconds_apart(void **state)
{
    (void)state;
    static const char *const methods[] = {"ddp", "acco", "co2", "local-sgd", "slowmo", "diloco"};
    EACH_SHARED(i, LEAP, 2 * (sizeof methods / sizeof *methods)) {
        const char *method = methods[i / 2];
        struct run_config c = configure_apart(method, i % 2);
        struct run_result r, again;
        assert_ok(train(c, 0, &r));
        if (!r.complete || r.seconds < 2.9 || r.seconds > 3.2)
            fail_with("%s: 3 s end after %g s, at step %lld", method, r.seconds, (long long)r.step);
        assert_ok(train(configure_apart(method, i % 2), 0, &again));
        assert_true(again.step == r.step && again.hash == r.hash);
        c = configure_apart(method, i % 2);
        c.train.resume = true;
        c.train.seconds = 1;
        assert_ok(train(c, 0, &again));
        c.train.seconds = 3;
        assert_ok(train(c, 0, &again));
        if (again.seconds < 2.9 || again.seconds > 3.2)
            fail_with("%s: resumed, 3 s end after %g s", method, again.seconds);
    }
}

/* The first and the last value of a metric, and how many lines have it. */
static int metric(const char *folder, const char *key, double *first, double *last)
{
    char path[FILE_PATH_ROOM], line[4096];
    int n = 0;
    double step = 0;
    assert_ok(file_join(path, folder, "metrics.jsonl"));
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        json_t *o;
        assert_ok(json_parse(&o, line, strlen(line) - 1, path));
        const json_t *value = json_object_get(o, key);
        if (json_is_number(value)) {
            *last = json_number_value(value);
            if (n++ == 0)
                *first = *last;
            assert_true(json_number_value(json_object_get(o, "step")) >= step);
            step = json_number_value(json_object_get(o, "step"));
        }
        json_decref(o);
    }
    fclose(f);
    return n;
}

/* Later rounds take longer than earlier ones: the run is expected to be longer than it becomes. Its
 * real length is reported, and its last round exchanges. */
static void uneven_pace(void **state)
{
    (void)state;
    static const char *const methods[] = {"ddp", "acco", "diloco"};
    int late = 0;
    EACH_SHARED(i, LEAP, 30) {
        struct run_config c = configure_apart(methods[i % 3], false);
        struct run_result r;
        double first, last;
        char seed[40];
        snprintf(seed, sizeof seed, "worker.jitter_seed=%d", i);
        set(&c, seed);
        set(&c, "worker.jitter=3");
        c.train.seconds = 0.5;
        assert_ok(train(c, 0, &r));
        assert_int_equal(r.steps, r.step);
        late += r.seconds > 0.6;
        metric(c.train.out, "comm/between", &first, &last);
        if (last < 1e4) /* the parameters of four groups */
            fail_with("%s, seed %d: groups have sent %g bytes at the end", methods[i % 3], i, last);
    }
    assert_true(LEAP > 1 || late > 5);
}

/* Groups compute unequal counts: the report has the sum of all groups. */
static void unequal_groups(void **state)
{
    (void)state;
    struct run_config c = configure("co2");
    struct run_result r;
    double first, last;
    set(&c, "strategy.shard=acco");
    set(&c, "strategy.mesh=2x2");
    set(&c, "worker.speed=1,1,1,0.2");
    set(&c, "link.inter=1MB/s,300ms");
    c.train.steps = 7;
    c.train.save_every = 4;
    assert_ok(train(c, 0, &r));
    char path[FILE_PATH_ROOM], line[256];
    assert_ok(file_join(path, c.train.out, "counts.tsv"));
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    long sum = 4, first_group = 2, n[4] = {0}; /* one each before the first line */
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "%ld %ld %ld %ld", n, n + 1, n + 2, n + 3) == 4)
            sum += n[0] + n[1] + n[2] + n[3], first_group += n[0] + n[1];
    fclose(f);
    sum -= n[0] + n[1] + n[2] + n[3]; /* the last are in no update yet */
    assert_true(sum != 2 * (first_group - n[0] - n[1]));
    assert_int_equal(r.samples, sum * c.train.batch);
    assert_int_equal(r.tokens, r.samples * 16);
    assert_int_equal(metric(c.train.out, "train/tokens", &first, &last), 7);
    assert_int_equal(last, r.tokens);
}

/* Before the first step the loss over all groups is ddp's, for any split of the work; reports are
 * in the order of steps, each once, also between an exchange, a checkpoint and the end. */
static void loss_of_all_groups(void **state)
{
    (void)state;
    static const char *const methods[] = {"local-sgd", "overlap-local-sgd", "slowmo", "co2",
                                          "diloco"};
    struct run_config c = configure("ddp");
    struct run_result r;
    double ddp, first, last;
    c.train.steps = 1;
    assert_ok(train(c, 0, &r));
    assert_int_equal(metric(c.train.out, "train/loss", &ddp, &last), 1);
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        for (int save = 0; save < 3; save++) {
            c = configure(methods[i]);
            c.train.steps = 11;
            c.train.save_every = save ? 3 + save : 0;
            assert_ok(train(c, 0, &r));
            assert_int_equal(metric(c.train.out, "train/loss", &first, &last), 11);
            if (fabs(first - ddp) > 1e-6)
                fail_with("%s: the first loss is %g, not %g", methods[i], first, ddp);
        }
    c = configure("diloco");
    set(&c, "diloco.H=1000");
    c.train.steps = 300; /* more reports than wait */
    assert_ok(train(c, 0, &r));
    assert_int_equal(metric(c.train.out, "train/loss", &first, &last), 300);
}

static void keep_line(enum log_level level, const char *line, void *arg)
{
    (void)level;
    snprintf(arg, 256, "%s", line);
}

/* A run shorter than H exchanges once, at its end, and prints a line about that. */
static void shorter_than_an_outer_round(void **state)
{
    (void)state;
    struct run_config c = configure("diloco");
    struct run_result r;
    char line[256] = "";
    double first, last;
    set(&c, "diloco.H=50");
    set(&c, "train.tokens=640");
    log_set(keep_line, line);
    assert_ok(train(c, 0, &r));
    log_set(NULL, NULL);
    assert_non_null(strstr(line, "diloco.H = 50 is more than the 5 steps of this run: its groups "
                                 "exchange once, at the end"));
    assert_int_equal(r.step, 5);
    metric(c.train.out, "comm/bytes", &first, &last);
    assert_true(first == 0 && last > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arithmetic),
        cmocka_unit_test(tokens_are_steps),
        cmocka_unit_test(counted_tokens),
        cmocka_unit_test(seconds),
        cmocka_unit_test(unequal_groups),
        cmocka_unit_test(seconds_apart),
        cmocka_unit_test(loss_of_all_groups),
        cmocka_unit_test(uneven_pace),
        cmocka_unit_test(shorter_than_an_outer_round),
    };
    return run_cases(tests, SANITIZED ? 3 : 1, make_data, scratch_remove);
}
