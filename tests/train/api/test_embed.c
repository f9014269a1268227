/* The public training interface (sotto/train.h) with a quadratic whose every step is known. */
#define _GNU_SOURCE /* memmem */
#include "train/api/embed_lab.h"

#include <unistd.h>

#include "base/log.h"

static const char *const synchronous[] = {"ddp", "zero1", "fsdp"};

static void closed_form(void **state)
{
    (void)state;
    EACH_SHARED(variant, STRIDE, 3 * 3 * 2 * 2 * 2) {
        const char *method = synchronous[variant % 3];
        const int workers = 1 << variant / 3 % 3, accumulate = 1 + variant / 9 % 2;
        const bool tokens = variant / 18 % 2, stages = variant / 36;
        struct lab lab = lab_new();
        struct seen seen = {0};
        struct sotto_result result = {.struct_size = sizeof result};
        char settings[256];
        float x[COUNT];
        double want[COUNT], loss[ROUNDS];
        lab.tied = stages && variant % 2;
        snprintf(settings, sizeof settings, "strategy=%s workers=%d accumulate=%d weight=%s",
                 method, workers, accumulate, tokens ? "tokens" : "microbatch");
        assert_ok(train(&lab, stages, settings, x, &seen, &result));
        float begin[COUNT];
        start_at(begin);
        for (int i = 0; i < COUNT; i++)
            want[i] = begin[i];
        sequential(workers, accumulate, tokens, want, loss);
        for (int t = 0; t < ROUNDS; t++)
            if (fabs(seen.loss[t] - loss[t]) > 1e-5 * loss[t])
                fail_with("%s: loss %d is %.9g, by the formula %.9g", settings, t, seen.loss[t],
                          loss[t]);
        for (int i = 0; i < COUNT; i++) /* eight steps of fp32 */
            if (fabs(x[i] - want[i]) > 2e-6)
                fail_with("%s: x[%d] is %.9g, by the formula %.9g", settings, i, x[i], want[i]);
        assert_int_equal(seen.calls, ROUNDS);
        assert_int_equal(lab.opened, workers);
        assert_int_equal(result.step, ROUNDS);
        assert_int_equal(result.workers, workers);
        assert_int_equal(seen.last.microbatches, workers * accumulate);
        assert_true(result.loss == seen.last.loss && seen.last.grad_norm >= 0);
        assert_true(seen.last.lr == 0.05 * 0.25);
    }
}

static void threads_equal_virtual(void **state)
{
    (void)state;
    EACH_SHARED(variant, STRIDE, 3 * 3 * 2 * 2) {
        struct lab lab = lab_new();
        struct seen real = {0}, simulated = {0};
        float x[COUNT], y[COUNT];
        char settings[256], more[400];
        snprintf(settings, sizeof settings,
                 "strategy=%s workers=%d kind=adamw momentum=0 precision=%s accumulate=2",
                 synchronous[variant % 3], 1 << variant / 3 % 3,
                 variant / 9 % 2 ? "mixed" : "fp32");
        snprintf(more, sizeof more,
                 "%s time=virtual worker.step=10ms link.intra=1GB/s,1us worker.speed=%s", settings,
                 variant % 2 ? "1" : "0.5");
        assert_ok(train(&lab, variant / 18, settings, x, &real, NULL));
        assert_ok(train(&lab, variant / 18, more, y, &simulated, NULL));
        assert_memory_equal(x, y, sizeof x);
        assert_memory_equal(real.loss, simulated.loss, sizeof real.loss);
    }
}

/* The methods that the library lists, but those that want a problem of several stages. */
static const char *method(int i)
{
    int n = 0;
    for (const char *name; (name = sotto_strategy_name(n)); n++)
        if (strcmp(name, "cdp") != 0 && i-- == 0)
            return name;
    return NULL;
}

/* Every one learns, in real and in virtual time. */
static void every_method(void **state)
{
    (void)state;
    int n = 0;
    for (; method(n); n++) {
        for (int time = 0; time < 2; time++) {
            struct lab lab = lab_new();
            struct seen seen = {0};
            float x[COUNT];
            char settings[256];
            snprintf(
                settings, sizeof settings,
                "strategy=%s workers=2 steps=40 schedule=constant step_every=1000 step_factor=0.1%s%s",
                method(n), own_settings(method(n), false),
                time ? " time=virtual worker.step=1ms" : "");
            assert_ok(train(&lab, time, settings, x, &seen, NULL));
            double far = 0, near = 0; /* from the mean of c over a long time, which is about 0 */
            for (int i = 0; i < COUNT; i++) {
                far += cos(i) * cos(i);
                near += (double)x[i] * x[i];
            }
            if (!(near < far / 2))
                fail_with("%s: |x|^2 goes from %g to %g", settings, far, near);
        }
    }
    assert_true(n >= 3);
    while (sotto_strategy_name(n))
        n++;
    assert_null(sotto_strategy_name(n + 1));
    assert_null(sotto_strategy_name(-1));
}

/* bf16 inside, fp32 for the callbacks: 8 bytes a parameter for that. */
static void mixed_precision(void **state)
{
    (void)state;
    struct lab lab = lab_new();
    struct sotto_result mixed = {.struct_size = sizeof mixed}, full = mixed;
    float x[COUNT], y[COUNT];
    assert_ok(train(&lab, true, "workers=2 precision=mixed", x, NULL, &mixed));
    assert_ok(train(&lab, true, "workers=2", y, NULL, &full));
    for (int i = 0; i < COUNT; i++) /* gradients of 8 bits */
        assert_true(fabsf(x[i] - y[i]) < 0.02f);
    const size_t padded = 16 + 2 + 14; /* stages of 15, 1 and 13, cut in two */
    const size_t shown = strcmp(test_device(), "cpu") == 0 ? 0 : 8 * padded; /* of a device's */
    assert_int_equal(mixed.memory[SOTTO_MEMORY_ACTIVATIONS], 8 * padded + shown);
    assert_int_equal(mixed.memory[SOTTO_MEMORY_PARAMETERS], 2 * padded);
    assert_int_equal(full.memory[SOTTO_MEMORY_ACTIVATIONS], shown);
    assert_int_equal(full.memory[SOTTO_MEMORY_PARAMETERS], 4 * padded);
    assert_string_equal(sotto_memory_name(SOTTO_MEMORY_GRADIENTS), "gradients");
}

static void virtual_costs(void **state)
{
    (void)state;
    struct lab lab = lab_new();
    struct sotto_result r = {.struct_size = sizeof r};
    float x[COUNT];
    for (int stages = 0; stages < 2; stages++) {
        assert_ok(train(&lab, stages, "time=virtual worker.step=10ms accumulate=2 worker.speed=0.5",
                        x, NULL, &r));
        assert_true(fabs(r.cost.compute - ROUNDS * 2 * 0.02) < 1e-9);
        assert_true(fabs(r.cost.seconds - r.cost.compute) < 1e-9);
        assert_true(r.cost.inside == 0 && r.cost.between == 0);
    }
    /* one worker of two is slow and the other waits; every byte is between nodes */
    assert_ok(train(&lab, false,
                    "time=virtual worker.step=10ms worker.speed=1,0.5 workers=2 nodes=2", x, NULL,
                    &r));
    assert_true(fabs(r.cost.seconds - ROUNDS * 0.02) < 1e-9);
    assert_true(fabs(r.cost.compute - ROUNDS * 0.015) < 1e-9);
    assert_true(fabs((r.cost.waited_others + r.cost.waited_wire) - ROUNDS * 0.005) < 1e-9);
    assert_int_equal(r.cost.inside, 0);
    assert_true(r.cost.between >= ROUNDS * COUNT * 4);
    /* without worker.step it is measured */
    assert_ok(train(&lab, true, "time=virtual workers=2", x, NULL, &r));
    assert_true(r.cost.compute > 0 && r.cost.compute < 1);
}

/* The message begins with the worker and the step, whatever the method. */
static void failing_callbacks(void **state)
{
    (void)state;
    static const struct {
        enum sotto_status code;
        const char *says;
    } cases[] = {
        {SOTTO_EIO, "micro-batch 2: the disk of 2 is full"},
        {SOTTO_EPEER, " callback failed (peer)"},
        {SOTTO_ENUMERIC, "the loss of micro-batch 2 is "},
        {SOTTO_EINVAL, "micro-batch 2: a callback sets -3 targets"},
    };
    for (int i = 0; method(i); i++) {
        for (int variant = (i + share_first(STRIDE, STRIDE)) % STRIDE; variant < 4 * 2 * 2;
             variant += STRIDE) {
            struct lab lab = lab_new();
            float x[COUNT], begin[COUNT];
            char settings[256];
            lab.fail_rank = 2;
            lab.fail_index = 2;
            lab.how = variant % 4;
            snprintf(settings, sizeof settings, "workers=4 strategy=%s%s%s", method(i),
                     own_settings(method(i), false),
                     variant / 8 ? " time=virtual worker.step=1ms" : "");
            start_at(begin);
            assert_fails(train(&lab, variant / 4 % 2, settings, x, NULL, NULL), cases[lab.how].code,
                         cases[lab.how].says);
            if (strncmp(sotto_error(), "worker 2: step ", 15) != 0 &&
                strncmp(sotto_error(), "worker 2: group 2, step ", 24) != 0)
                fail_with("%s: %s", settings, sotto_error());
            if (cases[lab.how].code == SOTTO_ENUMERIC && /* what to try is said */
                !strstr(sotto_error(), "; try a lower optim.lr (now ") &&
                !strstr(sotto_error(), "; no step was done yet"))
                fail_with("%s: %s", settings, sotto_error());
            assert_int_equal(lab.opened, 4);
            assert_memory_equal(x, begin, sizeof x); /* not half trained */
        }
    }
    for (int time = 0; time < 2; time++) {
        struct lab lab = lab_new();
        float x[COUNT];
        lab.open_fails = 1;
        assert_fails(
            train(&lab, true, time ? "workers=3 time=virtual" : "workers=3", x, NULL, NULL),
            SOTTO_EIO, "worker 1: no data for 1");
    }
}

static void wrong_problems(void **state)
{
    (void)state;
    struct sotto_tensor t[3] = {{"a", {2, 3}, 0}, {"b", {2}, 0}, {"c", {1}, 0}};
    struct sotto_problem p = {.struct_size = sizeof p,

                              .tensors = t,
                              .count = 3,
                              .gradient = gradient};
    assert_int_equal(sotto_problem_count(&p), 9);
#define assert_unsound(part) (assert_int_equal(sotto_problem_count(&p), 0), assert_says(part))
#define assert_says(part)                                                                          \
    (strstr(sotto_error(), part) ? (void)0 : fail_with("'%s' is not in: %s", part, sotto_error()))
    t[1].name = "a";
    assert_unsound("tensors 0 and 1 are both called 'a'");
    t[1].name = "";
    assert_unsound("tensor 1 has no name");
    t[1].name = "b\n";
    assert_unsound("character 1");
    char longest[97];
    memset(longest, 'x', 96);
    longest[96] = '\0';
    t[1].name = longest;
    assert_unsound("96 characters");
    longest[95] = '\0';
    assert_int_equal(sotto_problem_count(&p), 9);
    t[1].name = "b";
    t[1].shape[0] = -2;
    assert_unsound("'b': dimension 0 is -2");
    t[1].shape[0] = 0;
    t[1].shape[1] = 4;
    assert_unsound("'b': dimension 1 is 4");
    t[1].shape[0] = t[1].shape[1] = INT64_MAX / 2;
    assert_unsound("'b' is too large");
    t[1].shape[0] = 2;
    t[1].shape[1] = 0;
    t[2].stage = 1;
    assert_unsound("'c' is of stage 1, but stages need forward");
    p.gradient = NULL;
    assert_unsound("wants a gradient callback, or forward and backward");
    p.forward = forward;
    assert_unsound("wants a gradient callback, or forward and backward");
    p.backward = backward;
    assert_int_equal(sotto_problem_count(&p), 9);
    t[2].stage = 2;
    assert_unsound("'c' is of stage 2 after stage 0");
    t[2].stage = -1;
    assert_unsound("'c' is of stage -1 after stage 0");
    t[2].stage = 1;
    p.work = (double[]){1, -1};
    assert_unsound("work of stage 1 is -1");
    p.work = NULL;
    p.count = 0;
    assert_unsound("no tensors");
    struct sotto_training training = {.struct_size = sizeof training, .problem = &p};
    assert_fails(sotto_train(&training, NULL), SOTTO_EINVAL, "no tensors");
    p.count = 3;
    assert_fails(sotto_train(&training, NULL), SOTTO_EINVAL, "no parameters");
}

/* Programs that were compiled with another header: an older one, which knew fewer members and has
 * something else behind them, and newer ones. */
static void other_sizes(void **state)
{
    (void)state;
    struct lab lab = lab_new();
    struct sotto_options *o = options_of("workers=2");
    float x[COUNT], y[COUNT];
    struct {
        struct sotto_problem is;
        char more[16];
    } problem = {.is = problem_of(&lab, true)};
    struct {
        struct sotto_result is;
        char more[16];
    } result = {.is.struct_size = sizeof(struct sotto_result)};
    struct sotto_training t = {
        .struct_size = sizeof t, .problem = &problem.is, .options = o, .parameters = x};
    start_at(x);
    assert_ok(sotto_train(&t, &result.is));
    assert_int_equal(result.is.struct_size, sizeof result.is);

    const size_t old = offsetof(struct sotto_problem, edges);
    memset((char *)&problem + old, 0xa5, sizeof problem - old);
    problem.is.struct_size = old;
    result.is.struct_size = offsetof(struct sotto_result, cluster) + SOTTO_CLUSTER_ROOM;
    memset((char *)&result + result.is.struct_size, 0x5a, sizeof result - result.is.struct_size);
    t.parameters = y;
    start_at(y);
    assert_int_equal(sotto_problem_count(&problem.is), COUNT);
    assert_ok(sotto_train(&t, &result.is));
    assert_memory_equal(x, y, sizeof x);
    for (size_t i = result.is.struct_size; i < sizeof result; i++)
        assert_int_equal(((char *)&result)[i], 0x5a);

    memset((char *)&problem + old, 0, sizeof problem - old);
    problem.is.struct_size = sizeof problem;
    result.is.struct_size = sizeof result;
    start_at(y);
    assert_ok(sotto_train(&t, &result.is));
    assert_memory_equal(x, y, sizeof x);
    assert_int_equal(result.more[3], 0);
    problem.more[3] = 1;
    assert_fails(sotto_train(&t, NULL), SOTTO_EINVAL, "members that this version");
    problem.is.struct_size = 0;
    assert_fails(sotto_train(&t, NULL), SOTTO_EINVAL, "struct_size of a sotto_problem is 0");
    problem.is.struct_size = sizeof problem.is;
    result.is.struct_size = 8;
    assert_fails(sotto_train(&t, &result.is), SOTTO_EINVAL, "struct_size of a sotto_result is 8");
    t.struct_size = 0;
    assert_fails(sotto_train(&t, NULL), SOTTO_EINVAL, "struct_size of a sotto_training is 0");
    sotto_options_destroy(o);
}

static void options(void **state)
{
    (void)state;
    struct sotto_options *o, *other;
    char text[64];
    assert_ok(sotto_options_create(&o));
    assert_fails(sotto_options_set(o, "strategy.accumulat", "2"), SOTTO_EINVAL,
                 "did you mean 'strategy.accumulate'?");
    assert_fails(sotto_options_set(o, "train.strategy", "ddp"), SOTTO_EINVAL,
                 "did you mean 'strategy.preset'?");
    assert_fails(sotto_options_set(o, "stratgy", "ddp"), SOTTO_EINVAL,
                 "unknown key 'stratgy': did you mean 'strategy'?");
    assert_fails(sotto_options_set(o, "acumulate", "2"), SOTTO_EINVAL,
                 "did you mean 'strategy.accumulate'?");
    assert_fails(sotto_options_set(o, "model.layers", "2"), SOTTO_EINVAL, "unknown key");
    assert_fails(sotto_options_set(o, "train.out", "here"), SOTTO_EINVAL, "unknown key");
    assert_fails(sotto_options_set(o, "steps", "many"), SOTTO_EINVAL, "want an integer");
    assert_ok(sotto_options_set(o, "strategy", "no-such"));
    assert_fails(sotto_run(o, NULL, NULL), SOTTO_EINVAL, "no such method");
    static const char good[] = "[strategy]\npreset = fsdp\n[optim]\nlr = 0.25\n",
                      bad[] = "[model]\nlayers = 3\n";
    assert_ok(file_write(at("o.ini"), good, sizeof good - 1));
    assert_ok(sotto_options_load(o, at("o.ini")));
    assert_ok(file_write(at("bad.ini"), bad, sizeof bad - 1));
    assert_fails(sotto_options_load(o, at("bad.ini")), SOTTO_EINVAL, "bad.ini:1: unknown section");
    char *words[] = {"program", "--steps=12", "file", "--nodes=3", "--", "--steps=9"};
    int n = 6;
    assert_ok(sotto_options_parse(o, &n, words));
    assert_int_equal(n, 3);
    assert_string_equal(words[1], "file");
    assert_string_equal(words[2], "--steps=9"); /* a name, behind the "--" */
    char *wrong[] = {"--steps"};
    n = 1;
    assert_fails(sotto_options_parse(o, &n, wrong), SOTTO_EINVAL, "want --key=value");
    assert_ok(sotto_options_copy(&other, o));
    assert_ok(sotto_options_set(o, "steps", "13"));
    static const char *const want[][2] = {{"train.steps", "12"},
                                          {"strategy", "fsdp"},
                                          {"lr", "0.25"},
                                          {"train.nodes", "3"},
                                          {"seed", "1"}};
    for (int i = 0; i < 5; i++) {
        assert_ok(sotto_options_get(other, want[i][0], text, sizeof text));
        assert_string_equal(text, want[i][1]);
    }
    assert_fails(sotto_options_get(o, "strategy", text, 4), SOTTO_EINVAL, "room for 3");
    assert_fails(sotto_options_get(o, "train.batch", text, sizeof text), SOTTO_EINVAL,
                 "unknown key 'train.batch'");
    char *late[] = {"--H=7", "--strategy=diloco"}; /* the method's key comes first */
    n = 2;
    assert_fails(sotto_options_set(o, "H", "7"), SOTTO_EINVAL, "key 'H' belongs to ");
    assert_non_null(strstr(sotto_error(), "diloco"));
    assert_ok(sotto_options_parse(o, &n, late));
    assert_ok(sotto_options_get(o, "diloco.H", text, sizeof text));
    assert_string_equal(text, "7");
    assert_ok(sotto_options_set(o, "strategy", "co2"));
    assert_ok(sotto_options_set(o, "tau", "auto"));
    assert_ok(sotto_options_get(o, "tau", text, sizeof text)); /* not local's */
    assert_string_equal(text, "auto");
    sotto_options_destroy(o);
    sotto_options_destroy(other);
    o = options_of("worker.step=10ms");
    assert_fails(sotto_run(o, NULL, NULL), SOTTO_EINVAL, "worker.step is for train.time = virtual");
    sotto_options_destroy(o);
    o = options_of("device=null");
    assert_fails(sotto_run(o, NULL, NULL), SOTTO_EINVAL, "callbacks need cpu or reference");
    sotto_options_destroy(o);
    o = options_of("workers=2 link.inter=fast");
    assert_fails(sotto_run(o, NULL, NULL), SOTTO_EINVAL, "link.inter: ");
    sotto_options_destroy(o);
}

/* A loop of the caller's own, over trainers. */
struct own {
    struct sotto_problem problem;
    const char *save, *load; /* paths, NULL: none */
    int64_t save_at, until;
    double lr; /* negative: the schedule's */
    int stop_rank;
    float x[COUNT];
    double mean_rank;
    int64_t steps[MOST_WORKERS]; /* that each worker made */
    double seconds[MOST_WORKERS];
};

static enum sotto_status own_rounds(struct own *own, struct sotto_worker *w,
                                    struct sotto_trainer *t)
{
    const int rank = sotto_worker_rank(w);
    double ranks[2] = {rank, 1};
    struct sotto_round r = {.struct_size = sizeof r};
    TRY(sotto_worker_sum(w, ranks, 2));
    if (own->load)
        TRY(sotto_trainer_load(t, own->load));
    sotto_trainer_set_lr(t, own->lr);
    if (rank == own->stop_rank)
        sotto_trainer_stop(t);
    while (sotto_trainer_step(t) < own->until && !r.stop) {
        TRY(sotto_trainer_round(t, &r));
        if (own->save && r.step == own->save_at)
            TRY(sotto_trainer_save(t, own->save));
    }
    own->steps[rank] = sotto_trainer_step(t);
    own->seconds[rank] = r.cost.seconds;
    TRY(sotto_trainer_parameters(t, rank == 0 ? own->x : NULL));
    if (rank == 0)
        own->mean_rank = ranks[0] / ranks[1];
    return own->load || sotto_worker_seconds(w) >= r.cost.seconds
               ? SOTTO_OK
               : sotto_fail(SOTTO_EINVAL, "time goes backwards");
}

static enum sotto_status own_job(struct sotto_worker *w, void *arg)
{
    struct own *own = arg;
    struct sotto_trainer *t;
    float x[COUNT + 2] = {0}; /* a changed problem may be larger */
    start_at(x);
    TRY(sotto_trainer_create(&t, w, &own->problem, x));
    return sotto_trainer_destroy(t, own_rounds(own, w, t));
}

static struct own own_of(struct lab *lab, bool stages)
{
    return (struct own){
        .problem = problem_of(lab, stages), .until = ROUNDS, .lr = -1, .stop_rank = -1};
}

static void own_loop(void **state)
{
    (void)state;
    struct lab lab = lab_new();
    struct own own = own_of(&lab, true), slow = own, one = own;
    struct sotto_options *o = options_of("workers=3 strategy=zero1");
    float x[COUNT], begin[COUNT];
    start_at(begin);
    assert_ok(train(&lab, true, "workers=3 strategy=zero1", x, NULL, NULL));
    assert_ok(sotto_run(o, own_job, &own));
    assert_memory_equal(own.x, x, sizeof x);
    assert_true(own.mean_rank == 1);
    slow.lr = 0;
    assert_ok(sotto_run(o, own_job, &slow));
    assert_memory_equal(slow.x, begin, sizeof begin);
    one.stop_rank = 2;
    assert_ok(sotto_run(o, own_job, &one));
    for (int r = 0; r < 3; r++)
        assert_int_equal(one.steps[r], 1);
    sotto_options_destroy(o);
    o = options_of("strategy=zero1");
    one.stop_rank = 0;
    assert_ok(sotto_run(o, own_job, &one)); /* alone, too */
    assert_int_equal(one.steps[0], 1);
    sotto_options_destroy(o);
    assert_int_equal(lab.trouble, 0);
}

/* Whether its rounds depend on when messages arrive. */
static bool depends_on_time(const char *method)
{
    static const char *const names[] = {"dpu", "acco-wp", "acco", "async-diloco"};
    for (int i = 0; i < 4; i++)
        if (strcmp(names[i], method) == 0)
            return true;
    return false;
}

/* A run that is saved and loaded ends in the same bits as one that never stopped. */
static void resume(void **state)
{
    (void)state;
    for (int i = 0; method(i); i++) {
        for (int variant = (i + share_first(LEAP, LEAP)) % LEAP;
             variant < 4 && !depends_on_time(method(i)); variant += LEAP) {
            struct lab lab = lab_new();
            char settings[256];
            snprintf(settings, sizeof settings,
                     "workers=4 strategy=%s kind=adamw optim.momentum=0 precision=%s%s%s",
                     method(i), variant & 1 ? "mixed" : "fp32", own_settings(method(i), true),
                     variant & 2 ? " time=virtual worker.step=1ms" : "");
            struct own straight = own_of(&lab, variant & 1), before = straight, after = straight;
            struct sotto_options *o = options_of(settings);
            before.save = at("own.safetensors");
            before.save_at = before.until = 3;
            after.load = before.save;
            assert_ok(sotto_run(o, own_job, &straight));
            assert_ok(sotto_run(o, own_job, &before));
            assert_ok(sotto_run(o, own_job, &after));
            if (memcmp(after.x, straight.x, sizeof after.x) != 0)
                fail_with("%s: other bits after a load", settings);
            assert_memory_not_equal(before.x, straight.x, sizeof before.x);
            sotto_options_destroy(o);
        }
    }
}

/* Saving takes no time of training, gives nobody a lead and hides nothing of an exchange that is
 * under way; nor does going on from what was saved. */
static void saving_takes_no_time(void **state)
{
    (void)state;
    struct lab lab = lab_new();
    struct own straight = own_of(&lab, false), saves = straight, before = straight,
               after = straight;
    struct sotto_options *o =
        options_of("workers=3 nodes=3 strategy=co2 tau=2 time=virtual worker.step=10ms "
                   "worker.speed=1,1,0.5 link.inter=1MB/s,12ms");
    saves.save = before.save = at("time.safetensors");
    saves.save_at = before.save_at = before.until = 4;
    after.load = before.save;
    assert_ok(sotto_run(o, own_job, &straight));
    assert_ok(sotto_run(o, own_job, &saves));
    assert_ok(sotto_run(o, own_job, &before));
    assert_ok(sotto_run(o, own_job, &after));
    for (int r = 0; r < 3; r++) {
        assert_true(straight.seconds[r] > 0.01 * ROUNDS);
        assert_true(fabs(saves.seconds[r] - straight.seconds[r]) < 1e-7);
        assert_true(fabs(after.seconds[r] - straight.seconds[r]) < 1e-7);
    }
    sotto_options_destroy(o);
}

/* Another number of workers goes on from the same place; another problem does not. */
static void resume_elsewhere(void **state)
{
    (void)state;
    struct lab lab = lab_new();
    struct own before = own_of(&lab, true), after = before, other = before;
    struct sotto_options *four = options_of("workers=4 strategy=fsdp"),
                         *two = options_of("workers=2 strategy=fsdp accumulate=2");
    before.save = at("four.safetensors");
    before.save_at = before.until = 3;
    after.load = other.load = before.save;
    after.until = 3;
    assert_ok(sotto_run(four, own_job, &before));
    assert_ok(sotto_run(two, own_job, &after));
    assert_memory_equal(after.x, before.x, sizeof after.x);
    after.until = ROUNDS;
    assert_ok(sotto_run(two, own_job, &after));
    double want[COUNT], loss[ROUNDS];
    float begin[COUNT];
    start_at(begin);
    for (int i = 0; i < COUNT; i++)
        want[i] = begin[i];
    sequential(4, 1, false, want, loss); /* micro-batches 8r .. are the same four as before */
    for (int i = 0; i < COUNT; i++)
        assert_true(fabs(after.x[i] - want[i]) < 2e-6);
    struct sotto_tensor changed[TENSORS];
    memcpy(changed, staged, sizeof changed);
    changed[0].shape[0] = 5;
    other.problem.tensors = changed;
    other.until = 0;
    assert_fails(sotto_run(two, own_job, &other), SOTTO_EFORMAT,
                 "state 'parameters.w' is F32 [8] in the file, this run has F32 [10]");
    other.problem.tensors = staged;
    other.problem.count = TENSORS - 1; /* stages are still three */
    assert_fails(sotto_run(two, own_job, &other), SOTTO_EFORMAT, "this run has no state '");
    other.load = at("nowhere.safetensors");
    assert_fails(sotto_run(two, own_job, &other), SOTTO_EIO, "nowhere.safetensors");
    sotto_options_destroy(four);
    sotto_options_destroy(two);
}

static enum sotto_status run_own(const char *settings, struct own *own)
{
    struct sotto_options *o = options_of(settings);
    const enum sotto_status st = sotto_run(o, own_job, own);
    sotto_options_destroy(o);
    return st;
}

/* Another method goes on from the same parameters; what it has no use for is dropped. An optimizer
 * with state stays. */
static void resume_otherwise(void **state)
{
    (void)state;
    static const char *const settings[] = {
        "workers=2 strategy=ddp",
        "workers=2 strategy=ddp optim.momentum=0", /* its velocity is dropped */
        "workers=2 strategy=demo optim.momentum=0",
        "workers=3 strategy=random optim.momentum=0",
        "workers=2 strategy=local-sgd tau=3",
        "workers=2 strategy=demo kind=adamw optim.momentum=0 base=decoupled-adamw",
        "workers=2 strategy=zero1 kind=adamw optim.momentum=0",
    };
    enum { MANY = sizeof settings / sizeof *settings, ADAMW = MANY - 2 };
    struct lab lab = lab_new();
    EACH_SHARED(i, STRIDE, MANY * MANY) {
        const char *from = settings[i / MANY], *to = settings[i % MANY];
        struct own before = own_of(&lab, true), after = before;
        before.save = after.load = at("other.safetensors");
        before.save_at = before.until = 3;
        after.until = 3;
        assert_ok(run_own(from, &before));
        const bool keeps = i / MANY >= ADAMW || !strstr(from, "momentum=0");
        if (keeps && (i / MANY >= ADAMW) != (i % MANY >= ADAMW)) {
            assert_fails(run_own(to, &after), SOTTO_EINVAL, "and keeps it, since the checkpoint");
            if (i % MANY == 2)
                assert_non_null(
                    strstr(sotto_error(), "demo.base = decoupled-adamw continues with it"));
            continue;
        }
        if (run_own(to, &after) != SOTTO_OK)
            fail_with("%s after %s: %s", to, from, sotto_error());
        assert_memory_equal(after.x, before.x, sizeof after.x);
        after.until = ROUNDS;
        assert_ok(run_own(to, &after));
    }
}

/* A file that says that its optimizer has state, and has none of it. */
static void no_state(void **state)
{
    (void)state;
    struct lab lab = lab_new();
    struct own before = own_of(&lab, true), after = before;
    char text[1 << 14];
    before.save = after.load = at("lacks.safetensors");
    before.save_at = before.until = after.until = 3;
    assert_ok(run_own("workers=2 optim.momentum=0", &before));
    FILE *file = fopen(before.save, "r+");
    assert_non_null(file);
    const size_t n = fread(text, 1, sizeof text, file);
    char *kind = memmem(text, n, "optim.kind", 10);
    assert_non_null(kind);
    kind = memchr(kind, '1', 20);
    assert_non_null(kind);
    assert_int_equal(fseek(file, kind - text, SEEK_SET), 0);
    assert_int_equal(fputc('0', file), '0');
    assert_int_equal(fclose(file), 0);
    assert_fails(run_own("workers=2 kind=adamw optim.momentum=0", &after), SOTTO_EFORMAT,
                 "the optimizer was adamw, and the file has none of its state ('m.w' and the "
                 "others)");
}

/* sotto_train keeps a checkpoint, stops when asked, and goes on to the same bits. */
static void checkpoint(void **state)
{
    (void)state;
    struct lab lab = lab_new();
    struct sotto_problem p = problem_of(&lab, true);
    struct sotto_options *o =
        options_of("workers=2 strategy=zero1 kind=adamw momentum=0 save_every=2");
    struct seen straight = {0}, cut = {.stop_at = 4};
    struct sotto_result result = {.struct_size = sizeof result};
    float x[COUNT], y[COUNT];
    struct sotto_training t = {.struct_size = sizeof t,
                               .problem = &p,
                               .options = o,
                               .parameters = x,
                               .observe = observe,
                               .observer = &straight};
    start_at(x);
    assert_ok(sotto_train(&t, NULL));
    t.checkpoint = at("train.safetensors");
    t.parameters = y;
    t.observer = &cut;
    start_at(y);
    assert_fails(sotto_train(&t, &result), SOTTO_ESTOPPED, "stopped at step 5");
    assert_int_equal(result.step, 5);
    assert_int_equal(cut.calls, 5);
    float stopped[COUNT];
    memcpy(stopped, y, sizeof y);
    start_at(y); /* not what it goes on from */
    assert_ok(sotto_train(&t, &result));
    assert_int_equal(cut.calls, ROUNDS);
    assert_memory_equal(x, y, sizeof x);
    assert_memory_not_equal(stopped, y, sizeof y);
    assert_memory_equal(straight.loss, cut.loss, sizeof cut.loss);
    assert_true(result.cost.inside > 0 && cut.last.cost.inside == straight.last.cost.inside);
    start_at(y); /* nothing is left to do but to hand out the parameters */
    assert_ok(sotto_train(&t, &result));
    assert_int_equal(result.step, ROUNDS);
    assert_int_equal(cut.calls, ROUNDS);
    assert_memory_equal(x, y, sizeof x);
    t.checkpoint = at("no/such/folder");
    assert_fails(sotto_train(&t, NULL), SOTTO_EIO, "no/such: No such file");
    sotto_options_destroy(o);
}

struct gone {
    char folder[FILE_PATH_ROOM], away[FILE_PATH_ROOM], other[FILE_PATH_ROOM];
    int from, to; /* steps between which the folder is gone */
    int found;    /* after that step the file was in the other one */
};

static int move_folder(void *observer, const struct sotto_round *r)
{
    struct gone *g = observer;
    g->found += file_exists(g->other);
    if (r->step == g->from)
        assert_int_equal(rename(g->folder, g->away), 0);
    else if (r->step == g->to)
        assert_int_equal(rename(g->away, g->folder), 0);
    return 0;
}

/* A checkpoint that cannot be written in its place is written in another one, until it can be; at
 * the end training fails with its name, and goes on with that to the same bits. */
static void saved_in_another_place(void **state)
{
    (void)state;
    struct lab lab = lab_new();
    struct sotto_problem p = problem_of(&lab, true);
    struct sotto_options *o = options_of("workers=2 strategy=zero1 save_every=1");
    float x[COUNT], y[COUNT];
    char here[FILE_PATH_ROOM], path[FILE_PATH_ROOM];
    struct gone g = {.from = 2, .to = 5};
    struct sotto_training t = {
        .struct_size = sizeof t, .problem = &p, .options = o, .parameters = x};
    start_at(x);
    assert_ok(sotto_train(&t, NULL));
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(scratch), 0);
    strcpy(g.folder, at("gone/deep"));
    strcpy(g.away, at("away"));
    strcpy(g.other, at("rescued.state"));
    assert_ok(file_make_directories(g.folder));
    assert_ok(file_join(path, g.folder, "rescued.state"));
    t.parameters = y;
    t.checkpoint = path;
    t.observe = move_folder;
    t.observer = &g;
    start_at(y);
    assert_ok(sotto_train(&t, NULL));
    assert_memory_equal(x, y, sizeof x);
    assert_int_equal(g.found, g.to - g.from); /* 2, 3, 4 */
    assert_true(file_exists(path) && !file_exists(g.other));

    assert_int_equal(remove(path), 0);
    assert_ok(file_remove_tree(g.away));
    g.to = -1;
    start_at(y);
    assert_fails(sotto_train(&t, NULL), SOTTO_EIO,
                 "step 8, with which training ends, is saved in ");
    assert_true(file_exists(g.other));
    t.checkpoint = g.other;
    t.observe = NULL;
    assert_ok(sotto_train(&t, NULL)); /* nothing is left to do but to hand out the parameters */
    assert_memory_equal(x, y, sizeof x);
    assert_int_equal(chdir(here), 0);
    sotto_options_destroy(o);
}

struct by_time {
    const char *checkpoint;
    int calls, found; /* it was there */
};

static int look_for_file(void *observer, const struct sotto_round *r)
{
    struct by_time *b = observer;
    (void)r;
    b->calls++;
    b->found += file_exists(b->checkpoint);
    return 0;
}

/* save_minutes, of 15 unless said otherwise; saving changes no bit. */
static void saved_by_time(void **state)
{
    (void)state;
    static const char *const methods[] = {"workers=1", "workers=2 strategy=zero1",
                                          "workers=2 strategy=local-sgd tau=2",
                                          "workers=2 strategy=ddp time=virtual worker.step=1ms"};
    for (int i = 0; i < 4; i++) {
        float x[2][COUNT];
        for (int soon = 0; soon < 2; soon++) {
            struct lab lab = lab_new();
            struct sotto_problem p = problem_of(&lab, true);
            char settings[128], name[32];
            snprintf(name, sizeof name, "by-time.%d.%d", i, soon);
            snprintf(settings, sizeof settings, "%s%s", methods[i],
                     soon ? " save_minutes=1e-9" : "");
            struct sotto_options *o = options_of(settings);
            struct by_time b = {.checkpoint = at(name)};
            struct sotto_training t = {.struct_size = sizeof t,
                                       .problem = &p,
                                       .options = o,
                                       .parameters = x[soon],
                                       .observe = look_for_file,
                                       .observer = &b,
                                       .checkpoint = b.checkpoint};
            start_at(x[soon]);
            assert_ok(sotto_train(&t, NULL));
            assert_int_equal(b.calls, ROUNDS);
            assert_int_equal(b.found > 0, soon);
            assert_true(i == 2 || b.found == (soon ? ROUNDS - 1 : 0));
            sotto_options_destroy(o);
        }
        assert_memory_equal(x[0], x[1], sizeof x[0]);
    }
}

static void hear(const char *line, void *arg)
{
    snprintf(arg, 64, "%s", line);
}

struct heard {
    int warnings;
    char last[512];
};

static void hear_warning(const char *line, void *arg)
{
    struct heard *h = arg;
    h->warnings++;
    snprintf(h->last, sizeof h->last, "%s", line);
}

/* co2's late averages with AdamW's momentum, once for all workers; not without that momentum, for
 * one group, or for a method that waits. */
static void late_momentum(void **state)
{
    (void)state;
    static const char *const calm[] = {
        "strategy=co2 tau=2 workers=2",
        "strategy=co2 tau=2 workers=2 kind=adamw momentum=0 beta1=0",
        "strategy=co2 tau=2 workers=2 kind=adamw momentum=0 beta1=0.5",
        "strategy=co2 tau=2 workers=1 kind=adamw momentum=0",
        "strategy=slowmo tau=2 workers=2 kind=adamw momentum=0"};
    struct lab lab = lab_new();
    struct heard heard = {0};
    float x[COUNT];
    sotto_log(hear_warning, &heard);
    for (int i = 0; i < 5; i++) {
        assert_ok(train(&lab, false, calm[i], x, NULL, NULL));
        if (heard.warnings)
            fail_with("%s: %s", calm[i], heard.last);
    }
    assert_ok(
        train(&lab, false, "strategy=co2 tau=2 workers=2 kind=adamw momentum=0", x, NULL, NULL));
    sotto_log(NULL, NULL);
    assert_int_equal(heard.warnings, 1);
    assert_non_null(
        strstr(heard.last, "co2 with adamw and optim.beta1 = 0.9: averages are applied"));
}

static void alone(void **state)
{
    (void)state;
    struct sotto_mpi *mpi;
    char line[64] = "";
    assert_ok(sotto_mpi_open(&mpi));
    assert_int_equal(sotto_mpi_rank(mpi), 0);
    assert_int_equal(sotto_mpi_size(mpi), 1);
    sotto_mpi_close(mpi);
    setenv("RANK", "1", 1); /* as torchrun does, whose processes MPI does not join */
    setenv("WORLD_SIZE", "2", 1);
    struct lab lab = lab_new();
    struct seen seen = {0};
    float x[COUNT];
    assert_fails(sotto_mpi_open(&mpi), SOTTO_EINVAL, "RANK=1 and WORLD_SIZE=2: this is one of 2");
    assert_null(mpi);
    assert_fails(train(&lab, 0, "strategy=ddp", x, &seen, NULL), SOTTO_EINVAL,
                 "MPI joins them: mpirun");
    unsetenv("RANK");
    assert_ok(sotto_mpi_open(&mpi));
    sotto_mpi_close(mpi);
    unsetenv("WORLD_SIZE");
    sotto_log(hear, line);
    log_warn("a line of %d words", 5);
    assert_string_equal(line, "a line of 5 words");
    sotto_log(NULL, NULL);
    log_warn("unheard");
    assert_string_equal(line, "a line of 5 words");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closed_form),      cmocka_unit_test(threads_equal_virtual),
        cmocka_unit_test(every_method),     cmocka_unit_test(mixed_precision),
        cmocka_unit_test(virtual_costs),    cmocka_unit_test(failing_callbacks),
        cmocka_unit_test(wrong_problems),   cmocka_unit_test(other_sizes),
        cmocka_unit_test(options),          cmocka_unit_test(own_loop),
        cmocka_unit_test(resume),           cmocka_unit_test(saving_takes_no_time),
        cmocka_unit_test(resume_elsewhere), cmocka_unit_test(resume_otherwise),
        cmocka_unit_test(no_state),         cmocka_unit_test(checkpoint),
        cmocka_unit_test(saved_by_time),    cmocka_unit_test(saved_in_another_place),
        cmocka_unit_test(late_momentum),    cmocka_unit_test(alone),
    };
    return run_cases(tests, SANITIZED ? 3 : 1, scratch_make, scratch_remove);
}
