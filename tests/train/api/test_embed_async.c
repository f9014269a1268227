/* The public training interface (sotto/train.h) where groups have no rounds in common: each worker
 * asks for its own group's, and all meet where one says so. */
#include "train/api/embed_lab.h"

enum { K = 3, WORKERS = 4, H = 2, T = ROUNDS, PUSHES = K * T / H, MOST_LOOKS = 64 };
static const double speeds[K] = {1, 0.83, 0.31};
#define COMMON "strategy=async-diloco workers=3 H=2"
#define VIRTUAL COMMON " time=virtual worker.step=10ms worker.speed=1,0.83,0.31"

/* A loop of the caller's own. */
struct own {
    struct sotto_problem problem;
    const char *save, *load, *pushes; /* paths, NULL: none */
    bool ends;                        /* where all meet for the first time */
    bool early;                       /* saves before the first round, and trains nothing */
    int stop_rank;                    /* asks to stop with its first round, -1: none */
    bool looks;                       /* at the parameters, wherever it may */
    float x[COUNT];
    struct sotto_push push[2 * PUSHES];
    int n;
    struct {
        int64_t step;
        float x[COUNT];
    } look[WORKERS][MOST_LOOKS]; /* of each worker */
    int looked[WORKERS], pulled[WORKERS], rounds[WORKERS], evaluations[WORKERS], met[WORKERS];
    bool stopped[WORKERS];
    double seconds[WORKERS];
};

static enum sotto_status hear(struct own *own, struct sotto_trainer *t)
{
    const int last = sizeof own->push / sizeof *own->push - 1; /* of a long run that is stopped */
    for (bool found = true; found;) {
        struct sotto_push *p = &own->push[own->n < last ? own->n : last];
        *p = (struct sotto_push){.struct_size = sizeof *p};
        TRY(sotto_trainer_pushed(t, p, &found));
        own->n += found;
    }
    return SOTTO_OK;
}

static enum sotto_status look(struct own *own, int rank, struct sotto_trainer *t,
                              const struct sotto_round *r)
{
    const int n = own->looked[rank]++;
    own->look[rank][n].step = r->step;
    return sotto_trainer_parameters(t, own->look[rank][n].x);
}

static enum sotto_status own_rounds(struct own *own, struct sotto_worker *w,
                                    struct sotto_trainer *t)
{
    const int rank = sotto_worker_rank(w);
    struct sotto_round r = {.struct_size = sizeof r};
    if (own->load)
        TRY(sotto_trainer_load(t, own->load));
    if (rank == own->stop_rank)
        sotto_trainer_stop(t);
    if (own->early)
        return sotto_trainer_save(t, own->save);
    while (!r.over && !(own->ends && own->met[rank])) {
        TRY(sotto_trainer_round(t, &r));
        own->rounds[rank] += !r.idle;
        own->pulled[rank] += r.pulled;
        own->evaluations[rank] += r.evaluate && !r.meet;
        own->met[rank] += r.meet && !r.over;
        own->stopped[rank] |= r.stop;
        if (rank == 0)
            TRY(hear(own, t));
        if (own->looks && (r.pulled || r.meet))
            TRY(look(own, rank, t, &r));
        if (own->save && r.meet)
            TRY(sotto_trainer_save(t, own->save));
    }
    own->seconds[rank] = r.cost.seconds;
    if (own->pushes)
        TRY(sotto_trainer_pushes(t, own->pushes));
    return sotto_trainer_parameters(t, rank == 0 ? own->x : NULL);
}

static enum sotto_status own_job(struct sotto_worker *w, void *arg)
{
    struct own *own = arg;
    struct sotto_trainer *t;
    float x[COUNT];
    start_at(x);
    TRY(sotto_trainer_create(&t, w, &own->problem, x));
    return sotto_trainer_destroy(t, own_rounds(own, w, t));
}

static struct own *own_of(struct lab *lab)
{
    struct own *own = calloc(1, sizeof *own);
    assert_non_null(own);
    lab->wanders = true;
    own->problem = problem_of(lab, false);
    own->stop_rank = -1;
    return own;
}

static enum sotto_status run_own(const char *settings, struct own *own)
{
    struct sotto_options *o = options_of(settings);
    const enum sotto_status st = sotto_run(o, own_job, own);
    sotto_options_destroy(o);
    return st;
}

static struct own *ran(struct lab *lab, const char *settings)
{
    struct own *own = own_of(lab);
    assert_ok(run_own(settings, own));
    return own;
}

/* By the formula, in the order of the groups' clocks: outer SGD of rate 0.7 and weight 1/sqrt(K),
 * inner SGD with momentum, which a group keeps. */
struct sequence {
    double x0[COUNT];
    struct {
        double x[COUNT], pulled[COUNT], v[COUNT], time;
        int64_t shard, first;
    } group[K];
    int64_t given[K];
};

static void take(struct sequence *s, int g)
{
    int least = 0;
    for (int i = 1; i < K; i++)
        least = s->given[i] < s->given[least] ? i : least;
    s->group[g].shard = least;
    s->group[g].first = s->given[least];
    s->given[least] += H;
    memcpy(s->group[g].x, s->x0, sizeof s->x0);
    memcpy(s->group[g].pulled, s->x0, sizeof s->x0);
    s->group[g].time += H * 0.01 / speeds[g];
}

static void task(struct sequence *s, int g)
{
    double *x = s->group[g].x, *v = s->group[g].v;
    for (int64_t at = s->group[g].first; at < s->group[g].first + H; at++) {
        const int64_t number = at * K + s->group[g].shard;
        for (int i = 0; i < COUNT; i++) {
            v[i] = 0.5 * v[i] + a_of(i) * a_of(i) * (x[i] - c_of(number, i));
            x[i] -= 0.05 * pow(0.5, (double)(at / 3)) * v[i];
        }
    }
    for (int i = 0; i < COUNT; i++)
        s->x0[i] -= 0.7 / sqrt(K) * (s->group[g].pulled[i] - x[i]);
}

static void by_formula(struct sequence *s, int *order)
{
    float begin[COUNT];
    start_at(begin);
    *s = (struct sequence){0};
    for (int i = 0; i < COUNT; i++)
        s->x0[i] = begin[i];
    for (int g = 0; g < K; g++)
        take(s, g);
    for (int n = 0; n < PUSHES; n++) {
        int g = 0;
        for (int i = 1; i < K; i++)
            g = s->group[i].time < s->group[g].time ? i : g;
        task(s, g);
        order[n] = g;
        const double done = s->group[g].time;
        take(s, g);
        if (s->group[g].first >= T) /* nothing is left for it */
            s->group[g].time = INFINITY;
        else
            s->group[g].time = done + H * 0.01 / speeds[g];
    }
}

static void sequential_oracle(void **state)
{
    (void)state;
    struct lab lab = lab_new();
    struct own *own = ran(&lab, VIRTUAL " outer=sgd eval_every=4");
    struct sequence want;
    int order[PUSHES], pulled = 0, rounds = 0, evaluations = 0;
    by_formula(&want, order);
    for (int i = 0; i < COUNT; i++)
        if (fabs(own->x[i] - want.x0[i]) > 2e-6)
            fail_with("x[%d] is %.9g, by the formula %.9g", i, own->x[i], want.x0[i]);
    assert_int_equal(own->n, PUSHES);
    for (int n = 0; n < PUSHES; n++) {
        const struct sotto_push *p = &own->push[n];
        if (p->number != n || p->group != order[n] || p->rounds != H || p->microbatches != H ||
            p->step != (n + 1) * H / K)
            fail_with("push %d is number %lld of group %d, not %d: %lld rounds, step %lld", n,
                      (long long)p->number, p->group, order[n], (long long)p->rounds,
                      (long long)p->step);
        assert_true(p->idle == 0 && p->time > 0 && p->staleness < PUSHES);
        assert_true(fabs(p->seconds - H * 0.01 / speeds[p->group]) < 1e-9);
    }
    for (int r = 0; r < K; r++) {
        assert_false(own->stopped[r]);
        assert_int_equal(own->met[r], 0); /* but in the end */
        assert_int_equal(own->rounds[r], H * own->pulled[r]);
        pulled += own->pulled[r];
        rounds += own->rounds[r];
        evaluations += own->evaluations[r];
    }
    assert_true(own->rounds[0] > 2 * own->rounds[2]);
    assert_int_equal(pulled, PUSHES);
    assert_int_equal(rounds, K * T);
    assert_int_equal(evaluations, T / 4);
    assert_int_equal(lab.trouble, 0);
    free(own);
}

static void same_pushes(const char *what, const struct own *a, int from, const struct own *b)
{
    if (a->n - from != b->n)
        fail_with("%s: %d pushes, not %d", what, b->n, a->n - from);
    for (int i = 0; i < b->n; i++) {
        const struct sotto_push *p = &a->push[from + i], *q = &b->push[i];
        if (p->number != q->number || p->group != q->group || p->loss != q->loss ||
            fabs(p->time - q->time) > 1e-7)
            fail_with("%s: push %lld of group %d at %.9g s, not %lld of group %d at %.9g s", what,
                      (long long)q->number, q->group, q->time, (long long)p->number, p->group,
                      p->time);
    }
}

/* The same bits and times again, also with looks at the parameters, with meetings, and from what
 * was saved there on. */
static void repeats(void **state)
{
    (void)state;
    static const char *const settings[] = {
        VIRTUAL,
        VIRTUAL " kind=adamw optim.momentum=0 dylu=true staleness=true precision=mixed",
        VIRTUAL " outer=nesterov grace=0.03",
    };
    for (int i = 0; i < 3; i++) {
        char saving[400];
        struct lab lab = lab_new();
        struct own *straight = ran(&lab, settings[i]), *again = own_of(&lab), *saves = own_of(&lab),
                   *before = own_of(&lab), *after = own_of(&lab);
        again->looks = true;
        assert_ok(run_own(settings[i], again));
        assert_memory_equal(again->x, straight->x, sizeof again->x);
        same_pushes("looked at", straight, 0, again);
        for (int r = 0; r < K; r++)
            assert_int_equal(again->looked[r], again->pulled[r] + 1);
        snprintf(saving, sizeof saving, "%s save_every=3", settings[i]);
        saves->save = before->save = after->load = at("async.safetensors");
        assert_ok(run_own(saving, saves));
        assert_memory_equal(saves->x, straight->x, sizeof saves->x);
        assert_true(saves->met[0] >= 2 && saves->met[0] == saves->met[2]);
        same_pushes("saved", straight, 0, saves);
        before->ends = true;
        assert_ok(run_own(saving, before));
        assert_true(before->n > 0 && before->n < straight->n);
        assert_memory_not_equal(before->x, straight->x, sizeof before->x);
        assert_ok(run_own(settings[i], after));
        assert_memory_equal(after->x, straight->x, sizeof after->x);
        same_pushes("loaded", straight, before->n, after);
        before->early = true;
        assert_ok(run_own(settings[i], before));
        memset(after->x, 0, sizeof after->x);
        after->n = 0;
        assert_ok(run_own(settings[i], after));
        assert_memory_equal(after->x, straight->x, sizeof after->x);
        same_pushes("loaded at the start", straight, 0, after);
        for (int r = 0; r < K; r++)
            if (fabs(saves->seconds[r] - straight->seconds[r]) > 1e-7 ||
                fabs(after->seconds[r] - straight->seconds[r]) > 1e-7)
                fail_with("%s: worker %d trains %.9g s, with saves %.9g s, loaded %.9g s",
                          settings[i], r, straight->seconds[r], saves->seconds[r],
                          after->seconds[r]);
        assert_int_equal(lab.trouble, 0);
        free(straight);
        free(again);
        free(saves);
        free(before);
        free(after);
    }
}

/* What a group sees behind a pull is what the run has come to: a later group sees more of it. */
static void looks(void **state)
{
    (void)state;
    struct lab lab = lab_new();
    struct own *own = own_of(&lab);
    own->looks = true;
    /* one group that moves x0 to where it is: SGD */
    assert_ok(run_own(COMMON " outer=sgd async-diloco.weight=1 outer_lr=1 workers=1", own));
    double x[COUNT], loss[ROUNDS];
    float begin[COUNT];
    start_at(begin);
    for (int i = 0; i < COUNT; i++)
        x[i] = begin[i];
    sequential(1, 1, false, x, loss);
    for (int i = 0; i < COUNT; i++)
        assert_true(fabs(own->x[i] - x[i]) < 2e-6);
    const int n = own->looked[0];
    assert_int_equal(n, T / H + 1);
    assert_memory_equal(own->look[0][n - 1].x, own->x, sizeof own->x);
    assert_memory_equal(own->look[0][n - 2].x, own->x, sizeof own->x);
    for (int i = 0; i + 1 < n; i++)
        assert_int_equal(own->look[0][i].step, (i + 1) * H);
    free(own);
}

/* The workers of a group look together, and see the same; the others go on. */
static void groups_look(void **state)
{
    (void)state;
    static const char *const settings[] = {
        "strategy=async-diloco shard=fsdp mesh=2x2 workers=4 H=3",
        "strategy=async-diloco shard=zero1 mesh=2x2 workers=4 H=3 time=virtual worker.step=10ms "
        "worker.speed=1,1,0.4,0.4 save_every=3",
        "strategy=async-diloco shard=acco mesh=2x2 workers=4 H=3 time=virtual worker.step=10ms "
        "worker.speed=1,1,0.4,0.4 save_every=3",
    };
    for (int i = 0; i < 3; i++) {
        struct lab lab = lab_new();
        struct own *own = own_of(&lab);
        own->looks = true;
        assert_ok(run_own(settings[i], own));
        for (int r = 0; r < WORKERS; r += 2) {
            assert_true(own->looked[r] > 1 && own->looked[r] == own->looked[r + 1]);
            assert_memory_equal(own->look[r], own->look[r + 1],
                                (size_t)own->looked[r] * sizeof *own->look[r]);
            assert_memory_equal(own->look[r][own->looked[r] - 1].x, own->x, sizeof own->x);
        }
        assert_true(i == 0 || (own->met[0] > 0 && own->rounds[0] > own->rounds[2]));
        assert_int_equal(own->rounds[0] + own->rounds[2], 2 * T);
        free(own);
    }
}

/* Threads decide the order, and a file of it repeats it; in groups of two, too. */
static void replays(void **state)
{
    (void)state;
    static const char *const settings[] = {COMMON,
                                           "strategy=async-diloco shard=zero1 mesh=2x2 "
                                           "workers=4 H=2",
                                           "strategy=async-diloco shard=fsdp mesh=2x2 workers=4 "
                                           "H=3 kind=adamw optim.momentum=0"};
    for (int i = 0; i < 3; i++) {
        struct lab lab = lab_new();
        struct sotto_problem p = problem_of(&lab, true);
        float x[COUNT], y[COUNT];
        char replay[512];
        struct seen seen = {0};
        struct sotto_options *o = options_of(settings[i]);
        struct sotto_result result = {.struct_size = sizeof result};
        struct sotto_training t = {.struct_size = sizeof t,
                                   .problem = &p,
                                   .options = o,
                                   .parameters = x,
                                   .observe = observe,
                                   .observer = &seen,
                                   .pushes = at("order.tsv")};
        start_at(x);
        assert_ok(sotto_train(&t, &result));
        assert_int_equal(result.step, T);
        assert_true(seen.last.step == T && seen.last.loss == result.loss && seen.last.lr > 0);
        sotto_options_destroy(o);
        snprintf(replay, sizeof replay, "%s replay=%s time=virtual worker.step=1ms", settings[i],
                 at("order.tsv"));
        assert_ok(train(&lab, true, replay, y, NULL, NULL));
        assert_memory_equal(x, y, sizeof x);
    }
}

/* sotto_train stops when asked, and goes on from its file to the same bits. */
static void checkpoint(void **state)
{
    (void)state;
    for (int time = 0; time < 2; time++) {
        struct lab lab = lab_new();
        struct sotto_problem p = problem_of(&lab, false);
        struct sotto_options *o = options_of(time ? VIRTUAL " save_every=2" : COMMON);
        struct seen straight = {0}, cut = {.stop_at = 3};
        struct sotto_result result = {.struct_size = sizeof result};
        float x[COUNT], y[COUNT];
        char path[64];
        snprintf(path, sizeof path, "train.%d.safetensors", time);
        struct sotto_training t = {.struct_size = sizeof t,
                                   .problem = &p,
                                   .options = o,
                                   .parameters = x,
                                   .observe = observe,
                                   .observer = &straight};
        lab.wanders = true;
        start_at(x);
        assert_ok(sotto_train(&t, NULL));
        assert_int_equal(straight.calls, PUSHES);
        t.checkpoint = at(path);
        t.parameters = y;
        t.observer = &cut;
        start_at(y);
        enum sotto_status st = sotto_train(&t, &result);
        if (time || st != SOTTO_OK) { /* rank 0's thread may hear of it behind all others' work */
            assert_fails(st, SOTTO_ESTOPPED, "stopped at step ");
            assert_true(result.step >= 3 && result.step < T);
        }
        start_at(y); /* not what it goes on from */
        cut.stop_at = 0;
        assert_ok(sotto_train(&t, &result));
        assert_int_equal(result.step, T);
        assert_int_equal(cut.calls, PUSHES);
        if (time)
            assert_memory_equal(x, y, sizeof x);
        memcpy(x, y, sizeof x);
        start_at(y); /* nothing is left to do but to hand out the parameters */
        assert_ok(sotto_train(&t, &result));
        assert_int_equal(cut.calls, PUSHES);
        assert_memory_equal(x, y, sizeof x);
        sotto_options_destroy(o);
    }
}

/* A worker asks to stop: all meet for it. */
static void stops(void **state)
{
    (void)state;
    for (int time = 0; time < 2; time++) {
        struct lab lab = lab_new();
        struct own *own = own_of(&lab);
        own->stop_rank = 1;
        assert_ok(run_own(time ? VIRTUAL " steps=3000" : COMMON " steps=3000", own));
        for (int r = 0; r < K; r++) {
            assert_true(own->stopped[r]);
            if (time)
                assert_true(own->rounds[r] <= 8);
        }
        free(own);
    }
}

/* One group fails: all end and tell of it, or the others do its work. */
static void one_fails(void **state)
{
    (void)state;
    for (int time = 0; time < 2; time++) {
        struct lab lab = lab_new();
        struct own *own = own_of(&lab);
        const char *settings = time ? VIRTUAL : COMMON;
        char drop[400];
        lab.fail_rank = 2;
        lab.fail_index = 1;
        assert_fails(run_own(settings, own), SOTTO_EIO,
                     "worker 2: group 2, step 2: micro-batch 1: the disk of 2 is full");
        free(own);
        own = own_of(&lab);
        snprintf(drop, sizeof drop, "%s lost=drop", settings);
        assert_ok(run_own(drop, own));
        assert_int_equal(own->rounds[0] + own->rounds[1], K * T);
        assert_int_equal(own->pulled[2], 0);
        free(own);
        assert_int_equal(lab.trouble, 0);
        assert_int_equal(lab.opened, lab.closed);
    }
}

/* Calls that make sense where all meet alone. */
static enum sotto_status wrong_call(struct sotto_worker *w, void *arg)
{
    const int *which = arg;
    struct lab lab = lab_new();
    struct sotto_problem p = problem_of(&lab, false);
    struct sotto_round r = {.struct_size = sizeof r};
    struct sotto_trainer *t;
    float x[COUNT];
    lab.wanders = true;
    start_at(x);
    TRY(sotto_trainer_create(&t, w, &p, x));
    enum sotto_status st = sotto_trainer_parameters(t, x); /* before the first round */
    for (int i = 0; i < (*which == 4 ? H : 1) && st == SOTTO_OK; i++)
        st = sotto_trainer_round(t, &r);
    if (st == SOTTO_OK)
        st = *which == 0   ? sotto_trainer_parameters(t, x)
             : *which == 1 ? sotto_trainer_save(t, at("wrong.safetensors"))
             : *which == 2 ? sotto_trainer_load(t, at("wrong.safetensors"))
             : *which == 3 ? sotto_trainer_pushes(t, at("wrong.tsv"))
             : *which == 4 ? sotto_trainer_parameters(t, x) /* it has pulled: fine */
                           : SOTTO_OK;
    return sotto_trainer_destroy(t, st);
}

static enum sotto_status wrong_job(struct sotto_worker *w, void *arg)
{
    return wrong_call(w, arg);
}

static void wrong_calls(void **state)
{
    (void)state;
    static const char *const says[] = {
        "meet (round.meet), or the own group has pulled (round.pulled)",
        "sotto_trainer_save after a round of group 0 alone",
        "asynchronous groups load before their first round",
        "sotto_trainer_pushes after a round of group 0 alone",
        "sotto_trainer_destroy after a round of group 0 alone",
        "sotto_trainer_destroy after a round of group 0 alone",
    };
    struct lab lab = lab_new();
    struct sotto_problem p = problem_of(&lab, false);
    float x[COUNT];
    struct sotto_options *o = options_of(VIRTUAL);
    for (int which = 0; which < 6; which++)
        assert_fails(sotto_run(o, wrong_job, &which), SOTTO_EINVAL, says[which]);
    sotto_options_destroy(o);
    o = options_of("strategy=zero1 workers=2");
    struct sotto_training t = {.struct_size = sizeof t,
                               .problem = &p,
                               .options = o,
                               .parameters = x,
                               .pushes = at("none.tsv")};
    start_at(x);
    assert_fails(sotto_train(&t, NULL), SOTTO_EINVAL, "zero1 has no pushes");
    sotto_options_destroy(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequential_oracle),
        cmocka_unit_test(repeats),
        cmocka_unit_test(looks),
        cmocka_unit_test(groups_look),
        cmocka_unit_test(replays),
        cmocka_unit_test(checkpoint),
        cmocka_unit_test(stops),
        cmocka_unit_test(one_fails),
        cmocka_unit_test(wrong_calls),
    };
    return run_cases(tests, SANITIZED ? 3 : 1, scratch_make, scratch_remove);
}
