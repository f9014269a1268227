/* Runs of the replicate methods that are saved and resumed: in the middle of an outer round and
 * with an average under way they go on with the same bits; with other groups and other methods the
 * loss goes on. */
#include "train/fixture.h"

#include "train/run/run_worker.h"

enum { N = 8, OPTIONS = 6 };

/* Four workers; outer rounds of three steps. */
static struct run_config configure(const char *out)
{
    static const char *const basic[] = {
        "model.layers=1",   "model.width=16",      "model.heads=2",   "model.positions=16",
        "train.batch=2",    "train.log_every=1",   "train.steps=8",   "train.eval_every=3",
        "train.threads=1",  "optim.lr=0.01",       "train.stages=2",  "train.eval_batches=4",
        "data.holdout=0.1", "train.keep=0",        "train.workers=4", "optim.schedule=constant",
        "local.tau=3",      "overlap-local.tau=3", "slowmo.tau=3",    "co2.tau=3",
        "diloco.H=3",       "every.n=3",
    };
    struct run_config c = configure_run(out);
    set_all(&c, basic, sizeof basic / sizeof *basic);
    return c;
}

struct seen {
    int steps, stop_at; /* 0: never */
    atomic_int stop;
    double worst;  /* evaluation         */
    int64_t bytes; /* that rank 0 sent to other groups */
    double cosine; /* summed over the reports that have one ... */
    int cosines;   /* ... which are so many */
    struct run_result result;
};

static void on_step(void *arg, const struct run_step *s)
{
    struct seen *seen = arg;
    assert_true(isfinite(s->round.loss));
    seen->steps++;
    seen->bytes += s->cost.between;
    seen->cosine += s->cosine.mean * (double)s->cosine.n;
    seen->cosines += (int)s->cosine.n;
    if (s->step == seen->stop_at)
        seen->stop = 1;
}

static void on_evaluated(void *arg, int64_t step, const struct evaluation *e)
{
    struct seen *seen = arg;
    (void)step;
    seen->worst = fmax(seen->worst, e->loss);
}

static enum sotto_status train_until(const struct run_config *c, int64_t steps, int stop_at,
                                     struct seen *seen)
{
    struct run_config config = *c;
    struct run run;
    *seen = (struct seen){.stop_at = stop_at};
    struct run_watch watch = {
        .step = on_step, .evaluated = on_evaluated, .arg = seen, .stop = &seen->stop};
    config.train.steps = steps;
    config.train.resume = true;
    strategy_set_aside(&config.strategy, &config.strategy); /* tau and H are one method's */
    TRY(run_open(&run, &config, &watch));
    enum sotto_status st = run_train(&run);
    seen->result = run.result;
    seen->result.worker = NULL;
    run_close(&run);
    return st;
}

static enum sotto_status train(const struct run_config *c, int64_t steps, struct seen *seen)
{
    return train_until(c, steps, 0, seen);
}

/* A run of k steps that is resumed ends as one that went through. */
static void compare_resumed(struct run_config c, const char *name, uint64_t hash, int k)
{
    char folder[64];
    struct seen part, rest;
    snprintf(folder, sizeof folder, "%s.%d", name, k);
    strcpy(c.train.out, at(folder));
    assert_ok(train(&c, k, &part));
    assert_ok(train(&c, N, &rest));
    assert_int_equal(rest.steps, N - k);
    if (rest.result.hash != hash)
        fail_with("%s: resumed at %d, the run ends elsewhere", name, k);
}

/* An average takes 0.6 s beside steps of 0.1: it is under way whenever a checkpoint is made. */
static const char *const slow[OPTIONS] = {"train.time=virtual", "worker.step=100ms",
                                          "train.nodes=4", "link.inter=1GB/s,100ms"};

static void resume(void **state)
{
    (void)state;
    static const struct {
        const char *name, *options[OPTIONS];
    } variants[] = {
        {"local", {"strategy.preset=local-sgd"}},
        {"local.zero1", {"strategy.preset=local-sgd", "strategy.shard=zero1", "strategy.mesh=2x2"}},
        {"overlap", {"strategy.preset=overlap-local-sgd"}},
        {"overlap.fsdp",
         {"strategy.preset=overlap-local-sgd", "strategy.shard=fsdp", "strategy.mesh=2x2"}},
        {"overlap.ddp", {"strategy.preset=overlap-local-sgd", "strategy.mesh=2x2"}},
        {"slowmo", {"strategy.preset=slowmo", "strategy.precision=mixed"}},
        {"slowmo.fsdp", {"strategy.preset=slowmo", "strategy.shard=fsdp", "strategy.mesh=2x2"}},
        {"co2", {"strategy.preset=co2"}},
        {"co2.norm",
         {"strategy.preset=co2", "co2.penalty=norm", "strategy.shard=zero1", "strategy.mesh=2x2"}},
        {"co2.off", {"strategy.preset=co2", "co2.penalty=off", "strategy.shard=fsdp"}},
        {"co2.ddp", {"strategy.preset=co2", "co2.phi=0.01", "strategy.mesh=2x2"}},
        {"diloco", {"strategy.preset=diloco", "optim.kind=sgd", "optim.momentum=0.9"}},
        {"diloco.adam",
         {"strategy.preset=diloco", "diloco.outer=adam", "strategy.shard=zero1",
          "strategy.mesh=2x2", "diloco.dtype=bf16"}},
        {"diloco.drop",
         {"strategy.preset=diloco", "diloco.drop=0.5", "diloco.prune=0.5", "strategy.shard=fsdp",
          "strategy.mesh=2x2"}},
        {"diloco.plan", {"strategy.preset=diloco", "diloco.replicas=4x4,2x3,3x1"}},
        {"acco-wp", {"strategy.preset=acco-wp", "strategy.replicate=slowmo", "strategy.mesh=2x2"}},
        {"demo", {"strategy.preset=demo", "demo.chunk=8", "demo.message=0"}},
        {"demo.fsdp",
         {"strategy.preset=flexdemo", "demo.chunk=16", "demo.base=decoupled-adamw",
          "demo.sign=before", "strategy.mesh=2x2", "demo.message=0"}},
        {"diloco.back", {"strategy.preset=diloco", "diloco.replicas=4x3,2x3,4x1"}},
        {"random", {"strategy.preset=random"}},
        {"random.fsdp",
         {"strategy.preset=random", "strategy.shard=fsdp", "strategy.mesh=2x2",
          "random.sign=before"}},
        {"striding",
         {"strategy.preset=striding", "strategy.shard=zero1", "strategy.mesh=2x2",
          "striding.dtype=bf16", "striding.rate=0.2", "striding.message=0"}},
        {"every.fsdp",
         {"strategy.preset=every", "strategy.shard=fsdp", "strategy.mesh=2x2",
          "every.base=decoupled-adamw", "every.message=0"}},
    };
    EACH_SHARED(i, LEAP, sizeof variants / sizeof *variants) {
        struct seen whole, looked;
        struct run_config c = configure(variants[i].name);
        set_all(&c, variants[i].options, OPTIONS);
        if (i % 2)
            set_all(&c, slow, OPTIONS);
        assert_ok(train(&c, N, &whole));
        assert_int_equal(whole.steps, N);
        char folder[64];
        snprintf(folder, sizeof folder, "%s.looked", variants[i].name);
        strcpy(c.train.out, at(folder));
        c.train.eval_every = 1; /* whoever looks changes nothing */
        c.train.save_every = 2;
        assert_ok(train(&c, N, &looked));
        if (looked.result.hash != whole.result.hash)
            fail_with("%s: evaluations and checkpoints change the bits", variants[i].name);
        c.train.eval_every = c.train.save_every = 0;
        compare_resumed(c, variants[i].name, whole.result.hash, 4 + (int)i % 2); /* inside  */
        compare_resumed(c, variants[i].name, whole.result.hash, 6);              /* between */
    }
}

/* Methods that runs change between, and how many groups there are with each. */
static const struct {
    const char *name, *options[OPTIONS];
} methods[] = {
    {"ddp", {"strategy.preset=ddp"}},
    {"zero1.sync", {"strategy.preset=zero1", "strategy.mesh=2x2"}},
    {"local", {"strategy.preset=local-sgd"}},
    {"overlap", {"strategy.preset=overlap-local-sgd"}},
    {"slowmo", {"strategy.preset=slowmo", "strategy.shard=fsdp", "strategy.mesh=2x2"}},
    {"co2", {"strategy.preset=co2"}},
    {"random",
     {"strategy.preset=random", "random.base=decoupled-adamw", "random.sign=off",
      "random.rate=0.5"}},
    {"diloco", {"strategy.preset=diloco", "strategy.mesh=2x2", "diloco.outer_momentum=0.5"}},
    {"diloco.adam", {"strategy.preset=diloco", "diloco.outer=adam", "diloco.outer_lr=0.1"}},
};
enum { METHODS = sizeof methods / sizeof *methods };

/* `c` goes on from what is in folder `from`, for 10 steps. Returns the loss in the end. */
static double go_on(struct run_config c, const char *from, double before)
{
    struct seen on;
    char command[2 * FILE_PATH_ROOM + 16];
    snprintf(command, sizeof command, "cp -r %s %s", at(from), c.train.out);
    assert_int_equal(system(command), 0);
    enum sotto_status st = train(&c, 33, &on);
    if (st != SOTTO_OK)
        fail_with("%s after %s: %s", c.train.out, from, sotto_error());
    assert_int_equal(on.steps, 10);
    if (!(on.worst < before + 0.2)) /* an evaluation is of 128 tokens, and batches may halve */
        fail_with("%s after %s: the loss was %g and comes to %g", c.train.out, from, before,
                  on.worst);
    return on.result.evaluation.loss;
}

/* From every method in the middle of an outer round to every other, and to the same with other
 * numbers of groups and workers: the loss, which 23 steps have brought down from 3.4, goes on. In
 * 10 steps it falls by 0.1 and more; where an average is taken for another, it is above 6. */
static void changes(void **state)
{
    (void)state;
    static const char *const others[][OPTIONS] = {
        {"strategy.mesh=1x4", "strategy.shard=zero1"},
        {"strategy.mesh=4x1", "strategy.shard=ddp"},
        {"strategy.mesh=2x1", "train.workers=2", "strategy.shard=ddp"},
        {"strategy.mesh=3x2", "train.workers=6", "strategy.shard=fsdp"},
    };
    EACH_SHARED(i, LEAP, METHODS) {
        if (i == 1) /* leaves what ddp leaves */
            continue;
        char folder[64], name[64];
        struct seen first;
        snprintf(folder, sizeof folder, "from.%s", methods[i].name);
        struct run_config c = configure(folder);
        c.train.eval_every = 0;
        set_all(&c, methods[i].options, OPTIONS);
        assert_ok(train(&c, 23, &first));
        double loss[METHODS];
        for (int k = 0; k < METHODS; k++) {
            snprintf(name, sizeof name, "%s.to.%s", methods[i].name, methods[k].name);
            c = configure(name);
            c.train.eval_every = 1;
            set_all(&c, methods[k].options, OPTIONS);
            if (i + k ==
                2 * METHODS - 3) /* another outer optimizer is refused, as an inner one is */
                continue;
            loss[k] = go_on(c, folder, first.result.evaluation.loss);
        }
        if (!(fabs(loss[1] - loss[0]) < 1e-4)) /* groups in step are one group */
            fail_with("after %s, ddp comes to %g, zero1 x sync to %g", folder, loss[0], loss[1]);
        for (int k = 0; k < 4; k++) {
            snprintf(name, sizeof name, "%s.to.%d", methods[i].name, k);
            c = configure(name);
            c.train.eval_every = 1;
            set_all(&c, methods[i].options, OPTIONS);
            set_all(&c, others[k], OPTIONS);
            go_on(c, folder, first.result.evaluation.loss);
        }
    }
}

/* demo, random and striding take m over from each other: with all of it exchanged they are one
 * rule, whose first step has it in it. One that adds up other things is dropped. */
static void momenta_go_on(void **state)
{
    (void)state;
    static const char *const names[] = {"demo", "random", "striding"};
    char folder[64], option[64];
    for (int i = 0; i < 3; i++) {
        double loss[4];
        struct seen seen;
        snprintf(folder, sizeof folder, "m.%s", names[i]);
        struct run_config from = configure(folder);
        set(&from, "optim.lr=0.02");
        set(&from, "optim.warmup=0");
        from.train.eval_every = 0;
        for (int k = -1; k < 4; k++) { /* itself, then each of them, and one with other momenta */
            struct run_config c = from;
            const char *now = names[k < 0 ? i : k % 3];
            snprintf(option, sizeof option, "strategy.preset=%s", now);
            set(&c, option);
            snprintf(option, sizeof option, "%s.sign=off", now);
            set(&c, option);
            snprintf(option, sizeof option, "%s.rate=%s", now, k < 0 ? "0.0625" : "1");
            set(&c, option);
            if (k < 0) {
                assert_ok(train(&c, 8, &seen));
                continue;
            }
            if (k == 3)
                set(&c, "demo.momentum=scaled");
            snprintf(option, sizeof option, "m.%s.%d", names[i], k);
            strcpy(c.train.out, at(option));
            char command[2 * FILE_PATH_ROOM + 16];
            snprintf(command, sizeof command, "cp -r %s %s", at(folder), c.train.out);
            assert_int_equal(system(command), 0);
            assert_ok(train(&c, 9, &seen));
            loss[k] = seen.result.evaluation.loss;
        }
        for (int k = 0; k < 2; k++) /* sums in other orders; there and back by the transform */
            if (!(fabs(loss[k] - loss[2]) < 1e-5))
                fail_with("%s goes on as %s: %g, not %g", names[i], names[k], loss[k], loss[2]);
        if (!(fabs(loss[3] - loss[2]) > 1e-3))
            fail_with("%s: %g with m, %g without", names[i], loss[2], loss[3]);
    }
}

/* In the middle of a round of co2, to every other penalty. */
static void another_penalty(void **state)
{
    (void)state;
    static const char *const penalties[] = {"elementwise", "norm", "off"};
    struct seen first = {0};
    for (int i = 0; i < 9; i++) {
        char folder[64], name[64], option[64];
        snprintf(folder, sizeof folder, "penalty.%d", i / 3);
        struct run_config c = configure(folder);
        set(&c, "strategy.preset=co2");
        snprintf(option, sizeof option, "co2.penalty=%s", penalties[i / 3]);
        set(&c, option);
        if (i % 3 == 0)
            assert_ok(train(&c, 23, &first));
        snprintf(name, sizeof name, "penalty.%d.to.%d", i / 3, i % 3);
        strcpy(c.train.out, at(name));
        snprintf(option, sizeof option, "co2.penalty=%s", penalties[i % 3]);
        set(&c, option);
        c.train.eval_every = 1;
        go_on(c, folder, first.result.evaluation.loss);
    }
}

/* co2 goes on with the tau that it is told, not with the one that it had: no more averages. */
static void another_tau(void **state)
{
    (void)state;
    struct seen first, on;
    struct run_config c = configure("tau");
    set(&c, "strategy.preset=co2");
    set(&c, "co2.penalty=off"); /* which would send the first step's displacement */
    set_all(&c, slow, OPTIONS);
    c.train.eval_every = 0;
    assert_ok(train(&c, 6, &first)); /* the average of step 6 has just begun */
    assert_true(first.bytes > 0);
    set(&c, "co2.tau=1000");
    assert_ok(train(&c, 20, &on));
    assert_int_equal(on.bytes, 0);
}

/* tau = auto: evaluations and checkpoints between the steps that are timed are no part of them, a
 * run that knows tau goes on with it, and one that was still measuring measures again. */
static void measured_tau(void **state)
{
    (void)state;
    struct seen quiet, other;
    struct run_config c = configure("auto");
    set(&c, "strategy.preset=co2");
    set_all(&c, slow, OPTIONS);
    set(&c, "co2.tau=auto");
    set(&c,
        "link.inter=1GB/s,50ms"); /* done before workers compare for the first time, in step 9 */
    c.train.eval_every = 0;
    assert_ok(train(&c, 48, &quiet));
    for (int k = 2; k <= 3; k++) {
        strcat(c.train.out, ".busy");
        c.train.eval_every = k;
        c.train.save_every = 5 - k;
        assert_ok(train(&c, 12, &other));
        assert_ok(train(&c, 48, &other));
        assert_true(other.result.hash == quiet.result.hash);
    }
    strcat(c.train.out, ".cut");
    c.train.eval_every = c.train.save_every = 0;
    assert_ok(train(&c, 5, &other)); /* its exchange is under way */
    assert_ok(train(&c, 48, &other));
    assert_true(other.bytes > quiet.bytes / 2);
}

/* Who wants to stop is heard where all groups come together: at a boundary, or with the average
 * that is under way from one boundary to the next. */
static void stops(void **state)
{
    (void)state;
    static const struct {
        const char *method;
        int step;
    } cases[] = {{"local-sgd", 3},         {"slowmo", 3}, {"diloco", 3}, {"every", 3},
                 {"overlap-local-sgd", 6}, {"co2", 6}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[64], preset[64];
        struct seen part, whole;
        snprintf(name, sizeof name, "stop.%zu", i);
        snprintf(preset, sizeof preset, "strategy.preset=%s", cases[i].method);
        struct run_config c = configure(name);
        set(&c, preset);
        /* On one thread: the flag is a signal handler's, not another thread's. */
        set_all(&c, slow, OPTIONS);
        c.train.log_every = N; /* a reported round is told when the slowest worker has done it */
        assert_fails(train_until(&c, N, 1, &part), SOTTO_ESTOPPED, "stopped at step");
        assert_int_equal(part.steps, cases[i].step);
        assert_ok(train(&c, N, &part));
        strcat(c.train.out, ".whole");
        assert_ok(train(&c, N, &whole));
        assert_true(part.result.hash == whole.result.hash);
    }
}

/* The metric of what groups moved is in the reports behind the exchanges and, over the whole run,
 * in the end; it moves nothing, and goes on behind a checkpoint. */
static void alike(void **state)
{
    (void)state;
    struct seen plain, one, part, rest;
    struct run_config c = configure("alike");
    set(&c, "strategy.preset=diloco");
    assert_ok(train(&c, N, &plain));
    assert_true(isnan(plain.result.cosine) && plain.cosines == 0);
    set(&c, "diloco.cosine=true");
    c.train.log_every = 2;
    strcpy(c.train.out, at("alike.one"));
    assert_ok(train(&c, N, &one));
    assert_true(one.result.hash == plain.result.hash);
    assert_int_equal(one.cosines, 2);
    assert_true(one.result.cosine > 0 && one.result.cosine < 1);
    assert_true(fabs(one.result.cosine - one.cosine / 2) < 1e-12);
    strcpy(c.train.out, at("alike.two"));
    assert_ok(train(&c, 4, &part));
    assert_ok(train(&c, N, &rest));
    assert_true(part.cosines == 1 && rest.cosines == 1);
    assert_true(rest.result.cosine == one.result.cosine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resume),          cmocka_unit_test(changes),
        cmocka_unit_test(momenta_go_on),   cmocka_unit_test(another_tau),
        cmocka_unit_test(another_penalty), cmocka_unit_test(measured_tau),
        cmocka_unit_test(stops),           cmocka_unit_test(alike),
    };
    return run_cases(tests, SANITIZED ? 3 : 1, make_data, scratch_remove);
}
