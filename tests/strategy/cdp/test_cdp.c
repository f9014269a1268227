/* Cyclic data parallelism: every placement makes the steps of a plain loop over the rule, to the
 * bit where it adds up in their order. */
#include "strategy/cdp/cdp_lab.h"

#include "io/state.h"
#include "strategy/cdp/cdp_replay.h"

enum { STEPS = 6 };

struct case_ {
    struct cdp_case is;
    bool virtual_; /* the engine; else threads */
    int import_at; /* step in front of which the run's own parameters are imported; 0: none */
    bool again;    /* steps after `import_at` are made twice, from the saved state */
    int change_at; /* step in front of which `then` continues; 0: none */
    struct cdp_case then;   /* another rule or placement, with as many workers */
    struct state_visitor v; /* of it: the workers' visits in turn */

    /* Results. */
    float x[STEPS + 1][CHAIN_MOST];
    double loss[STEPS], norm[STEPS];
};

static double lr(int64_t t)
{
    return 0.05 * (1 + 0.5 * cos(2.0 * (double)t));
}

static enum sotto_status look(struct case_ *c, struct worker *w, struct strategy *s, int t)
{
    float x[CHAIN_MOST];
    const struct view *stage;
    TRY(s->ops->export(s, x));
    if (w->rank == 0)
        memcpy(c->x[t], x, sizeof x);
    TRY(s->ops->gather(s, &stage)); /* in whose middle a pipeline stays filled */
    for (int k = 0; k < c->is.n; k++) {
        float theta[CHAIN_EACH];
        chain_read(((struct shard *)s)->is.dev, stage[k], CHAIN_EACH, theta);
        for (int i = 0; i < CHAIN_EACH; i++) {
            const float want = x[k * CHAIN_EACH + i];
            if (theta[i] != (c->is.mixed ? bf16_widen(bf16_round(want)) : want))
                return fail(SOTTO_EINVAL, "worker %d gathers another %d of stage %d", w->rank, i,
                            k);
        }
    }
    return SOTTO_OK;
}

/* Saves the workers' states, one after the other in one process. */
static enum sotto_status save(struct case_ *c, struct worker *w, struct strategy *s)
{
    if (w->rank == 0)
        TRY(state_saver_init(&c->v));
    for (int r = 0; r < w->size; r++) {
        TRY(comm_barrier(w->world));
        if (r != w->rank)
            continue;
        c->v.skip_common = r != 0;
        TRY(s->ops->visit(s, &c->v));
    }
    TRY(comm_barrier(w->world));
    if (w->rank == 0) {
        TRY(state_saver_write(&c->v, at("state")));
        state_free(&c->v);
    }
    return comm_barrier(w->world);
}

static enum sotto_status load(struct strategy *s, const float *x)
{
    struct state_visitor v;
    TRY(s->ops->import(s, x));
    TRY(state_loader_open(&v, at("state")));
    TRY(s->ops->visit(s, &v));
    TRY(state_loader_finish(&v));
    state_free(&v);
    return SOTTO_OK;
}

static enum sotto_status steps(struct case_ *c, struct seat *p, struct worker *w, int from, int to)
{
    for (int t = from; t < to; t++) {
        struct round r;
        TRY(p->s->ops->round(p->s, &(struct plan){.lr = lr(t), .want_norm = t % 2}, &r));
        if (w->rank == 0) {
            c->loss[t] = r.loss;
            c->norm[t] = r.grad_norm;
        }
        assert_int_equal(r.microbatches, c->is.n);
        assert_int_equal(r.agreed->microbatches, c->is.n);
        TRY(look(c, w, p->s, t + 1));
    }
    return SOTTO_OK;
}

static enum sotto_status import_own(struct seat *p)
{
    float x[CHAIN_MOST];
    TRY(p->s->ops->export(p->s, x));
    return p->s->ops->import(p->s, x);
}

/* A step, and then some whose end is forgotten. */
static enum sotto_status step_and_back(struct case_ *c, struct seat *p, struct worker *w)
{
    const int now = c->import_at + 1;
    float x[CHAIN_MOST];
    TRY(steps(c, p, w, now - 1, now));
    TRY(p->s->ops->export(p->s, x));
    TRY(save(c, w, p->s));
    TRY(steps(c, p, w, now, STEPS));
    return load(p->s, x);
}

/* Continues from the current state with another method. */
static enum sotto_status go_on(struct case_ *c, struct seat *p, struct worker *w)
{
    float x[CHAIN_MOST];
    TRY(p->s->ops->export(p->s, x));
    TRY(save(c, w, p->s));
    seat_close(p);
    TRY(seat_open(p, &c->then, w));
    return load(p->s, x);
}

static enum sotto_status work(struct worker *w, void *arg)
{
    struct case_ *c = arg;
    struct seat p;
    float x[CHAIN_MOST];
    enum sotto_status st;
    TRY_DONE(seat_open(&p, &c->is, w));
    chain_start(x, table_count(&p.chain.table));
    TRY_DONE(p.s->ops->import(p.s, x));
    TRY_DONE(steps(c, &p, w, 0, c->import_at));
    TRY_DONE(c->import_at ? import_own(&p) : SOTTO_OK);
    TRY_DONE(c->again ? step_and_back(c, &p, w) : SOTTO_OK);
    TRY_DONE(steps(c, &p, w, 0, c->change_at));
    TRY_DONE(c->change_at ? go_on(c, &p, w) : SOTTO_OK);
    TRY_DONE(steps(c, &p, w, c->import_at + c->again + c->change_at, STEPS));
done:
    if (st != SOTTO_OK)
        mesh_abort(&p.mesh, st);
    seat_close(&p);
    if (st == SOTTO_OK && p.memory.total)
        st = fail(SOTTO_EINVAL, "%zu bytes were not freed", (size_t)p.memory.total);
    return st;
}

static enum sotto_status run_case(struct case_ *c)
{
    struct engine_config engine = {.workers = cdp_case_workers(&c->is)};
    return (c->virtual_ ? engine_virtual : engine_threads)(&engine, work, c);
}

static enum replay_rule rule_of(const struct cdp_case *c)
{
    return strcmp(c->rule, "v2") == 0   ? REPLAY_V2
           : strcmp(c->rule, "v1") == 0 ? REPLAY_V1
                                        : REPLAY_SYNC;
}

/* A state has theta_{t-1} of the stages for which its rule needs it: all, all but the last, none.
 * Stages without theta_{t-1} continue with theta_t. */
static void change_rule(struct replay *r, const struct case_ *c, struct device *dev)
{
    const size_t from = r->rule == REPLAY_V1   ? r->theta.count
                        : r->rule == REPLAY_V2 ? (size_t)(c->is.n - 1) * CHAIN_EACH
                                               : 0;
    dev->ops->copy(dev, view_at(r->before.view, from), view_at(r->theta.view, from),
                   r->theta.count - from);
    r->rule = rule_of(&c->then);
}

/* The rule alone. */
static void replay(const struct case_ *c, struct case_ *out)
{
    struct worker w;
    struct memory memory = {0};
    struct device dev;
    struct chain chain;
    struct strategy_config config;
    struct optim_config optim;
    float x[CHAIN_MOST];
    cdp_case_configure(&c->is, &config, &optim);
    assert_ok(strategy_resolve(&config, cdp_case_workers(&c->is)));
    assert_ok(worker_alone(&w));
    assert_ok(device_open(&dev, test_device(), &memory, 1));
    assert_ok(chain_open(&chain, &dev, &w, c->is.n, 1, c->is.tied));
    chain_start(x, table_count(&chain.table));
    struct replay r = {.rule = rule_of(&c->is),
                       .n = c->is.n,
                       .size = 1,
                       .tokens = c->is.tokens,
                       .bf16 = c->is.mixed,
                       .alone =
                           strcmp(c->is.placement, "dp") == 0 && strcmp(c->is.rule, "sync") == 0,
                       .turns = strcmp(c->is.placement, "mp") == 0,
                       .sums = strategy_grad_type(&config),
                       .lr = lr,
                       .optim = &optim};
    replay_open(&r, &chain.base, &dev, x);
    for (int t = 0; t < STEPS; t++) {
        if (t == c->import_at)
            dev.ops->copy(&dev, r.before.view, r.theta.view, r.theta.count);
        if (c->change_at && t == c->change_at)
            change_rule(&r, c, &dev);
        replay_step(&r, &chain.base, &dev);
        dev.ops->read(&dev, out->x[t + 1], r.x.view, r.x.count);
        out->loss[t] = r.loss;
        out->norm[t] = r.norm;
    }
    replay_close(&r);
    chain_close(&chain);
    device_close(&dev);
    comm_free(w.world);
    assert_int_equal(memory.total, 0);
}

static const char *describe(const struct case_ *c)
{
    static char text[200];
    snprintf(text, sizeof text, "%s %s, %d stages, %s%s%s%s", c->is.placement, c->is.rule, c->is.n,
             c->is.kind == OPTIM_SGD ? "sgd" : "adamw", c->is.tied ? ", tied" : "",
             c->is.mixed ? ", mixed" : "", c->is.tokens ? ", tokens" : "");
    return text;
}

static void equal_replay(struct case_ *c, float tolerance)
{
    static struct case_ want;
    const size_t count = (size_t)c->is.n * CHAIN_EACH;
    const enum sotto_status st = run_case(c);
    if (st != SOTTO_OK)
        fail_with("%s: %s", describe(c), sotto_error());
    replay(c, &want);
    for (int t = 0; t < STEPS; t++) {
        if (fabs(c->loss[t] - want.loss[t]) > 1e-6 * fabs(want.loss[t]))
            fail_with("%s: loss %d is %.9g, not %.9g", describe(c), t, c->loss[t], want.loss[t]);
        if (t % 2 && fabs(c->norm[t] - want.norm[t]) > 1e-6 * want.norm[t])
            fail_with("%s: norm %d is %.9g, not %.9g", describe(c), t, c->norm[t], want.norm[t]);
        for (size_t i = 0; i < count; i++)
            if (!(fabsf(c->x[t + 1][i] - want.x[t + 1][i]) <= tolerance))
                fail_with("%s: x[%zu] is %.9g behind step %d, not %.9g", describe(c), i,
                          c->x[t + 1][i], t, want.x[t + 1][i]);
    }
}

static const char *const rules[] = {"v2", "v1", "sync"};

/* With sync all want a stage at once. */
static bool has_sync(const char *placement)
{
    return strcmp(placement, "mp") != 0 && strcmp(placement, "zero") != 0;
}

static void equals_rule(const char *placement)
{
    static const int sizes[] = {1, 2, 3, 4, 8};
    const int step = LEAP == 1 ? 1 : 7; /* which meets all sizes */
    EACH_SHARED(variant, step, 30) {
        static struct case_ c;
        if (variant % 3 == 2 && !has_sync(placement))
            continue;
        c = (struct case_){.virtual_ = variant % 2};
        c.is = (struct cdp_case){.placement = placement,
                                 .rule = rules[variant % 3],
                                 .n = sizes[variant / 6],
                                 .kind = variant / 3 % 2 ? OPTIM_ADAMW : OPTIM_SGD,
                                 .nan_at = -1};
        equal_replay(&c, 0);
    }
}

static void single(void **state)
{
    (void)state;
    equals_rule("single");
}

static void dp(void **state)
{
    (void)state;
    equals_rule("dp");
}

static void pp(void **state)
{
    (void)state;
    equals_rule("pp");
}

static void zero(void **state)
{
    (void)state;
    equals_rule("zero");
}

static void mp(void **state)
{
    (void)state;
    equals_rule("mp");
}

/* Rounded parameters, weights, clipping, and tensors that two stages share. */
static void variants(const char *placement, bool tied)
{
    EACH_SHARED(variant, LEAP, 24) {
        static struct case_ c;
        if (variant % 3 == 2 && !has_sync(placement))
            continue;
        c.is = (struct cdp_case){.placement = placement,
                                 .rule = rules[variant % 3],
                                 .n = variant < 12 ? 3 : 5,
                                 .kind = variant % 2 ? OPTIM_ADAMW : OPTIM_SGD,
                                 .tied = tied && variant / 3 % 2,
                                 .mixed = variant / 3 % 4 == 2,
                                 .tokens = variant / 3 % 4 == 3,
                                 .nan_at = -1};
        equal_replay(&c, 0);
    }
    for (int n = 1; n <= 4; n++)
        for (int rule = n > 1; rule < 2 + has_sync(placement); rule++) {
            static struct case_ c;
            c.is = (struct cdp_case){
                .placement = placement, .rule = rules[rule], .n = n, .clip = 0.1, .nan_at = -1};
            equal_replay(&c, 1e-6f); /* the norm is a sum of stages */
        }
}

static void single_variants(void **state)
{
    (void)state;
    variants("single", true);
}

static void dp_variants(void **state)
{
    (void)state;
    variants("dp", true);
}

static void pp_variants(void **state)
{
    (void)state;
    variants("pp", false);
}

static void zero_variants(void **state)
{
    (void)state;
    variants("zero", false);
}

static void mp_variants(void **state)
{
    (void)state;
    variants("mp", false);
}

/* Imported parameters replace both versions; the optimizer keeps its state on any device. Steps
 * repeated from a saved state are the same. */
static void imports(void **state)
{
    (void)state;
    static const char *const placements[] = {"single", "dp", "pp", "mp", "zero"};
    const int step = LEAP == 1 ? 1 : 3; /* which meets all placements */
    EACH_SHARED(variant, step, 20) {
        static struct case_ c;
        c = (struct case_){.virtual_ = variant / 2 % 2, .import_at = 3, .again = variant % 2};
        c.is = (struct cdp_case){.placement = placements[variant / 4],
                                 .rule = rules[variant / 2 % 2],
                                 .n = 4,
                                 .kind = OPTIM_ADAMW,
                                 .mixed = variant / 2 % 2,
                                 .nan_at = -1};
        equal_replay(&c, 0);
    }
}

/* A run continues with another rule, and in another placement, from the versions in the file. */
static void changes(void **state)
{
    (void)state;
    static const char *const placements[] = {"dp", "pp", "zero", "single", "mp"};
    static const int next[] = {1, 2, 0, 3, 4};
    const int step = LEAP == 1 ? 1 : 3;
    EACH_SHARED(variant, step, 20) {
        static struct case_ c;
        const int p = variant / 4;
        c = (struct case_){.virtual_ = variant % 2, .change_at = 3};
        c.is = (struct cdp_case){.placement = placements[p],
                                 .rule = rules[variant % 2],
                                 .n = 4,
                                 .kind = OPTIM_ADAMW,
                                 .mixed = variant / 2 % 2,
                                 .nan_at = -1};
        c.then = c.is;
        c.then.placement = placements[next[p]];
        c.then.rule = rules[!(variant % 2)];
        equal_replay(&c, 0);
    }
}

static void no_number(void **state)
{
    (void)state;
    for (int virtual_ = 0; virtual_ < 2; virtual_++) {
        static struct case_ c;
        c = (struct case_){.is = {.placement = "dp", .rule = "v2", .n = 3, .nan_at = 7},
                           .virtual_ = virtual_};
        assert_fails(run_case(&c), SOTTO_ENUMERIC, "worker 1: the loss of micro-batch 2 is");
    }
}

static enum sotto_status refuse(struct worker *w, void *arg)
{
    const struct cdp_case *c = arg;
    struct seat p;
    const enum sotto_status st = seat_open(&p, c, w);
    if (st != SOTTO_OK)
        mesh_abort(&p.mesh, st);
    seat_close(&p);
    return st;
}

static void refuses(void **state)
{
    (void)state;
    static const struct {
        int workers;
        const char *options[3], *why;
    } cases[] = {
        {2, {"replicate=diloco"}, "cdp x diloco: a stage is updated while"},
        {4, {"mesh=2x2"}, "cdp needs one group of workers, strategy.mesh = 2x2 has 2"},
        {2, {"accumulate=3"}, "strategy.accumulate = 3: a step of cdp has one micro-batch"},
        {2, {"cdp.placement=single"}, "cdp.placement = single needs one worker, there are 2"},
        {5, {"cdp.placement=mp"}, "and there are 5; take 3 workers for 2 stages, or 6 for 3"},
        {6, {"cdp.placement=mp", "cdp.rule=sync"}, "mp needs v1 or v2"},
        {3, {"cdp.placement=zero", "cdp.rule=sync"}, "zero needs v1 or v2"},
        {2, {"cdp.stages=3"}, "cdp.stages = 3 has no effect with placement = dp; it is for single"},
        {2, {"cdp.stages=4"}, "cdp.stages = 4 has no effect with placement = dp; it is for single"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct strategy_config config;
        strategy_defaults(&config);
        snprintf(config.shard, sizeof config.shard, "cdp");
        assert_ok(set_options(&config, cases[i].options, 3));
        assert_fails(strategy_resolve(&config, cases[i].workers), SOTTO_EINVAL, cases[i].why);
    }
    struct strategy_config alone;
    strategy_defaults(&alone);
    snprintf(alone.shard, sizeof alone.shard, "cdp");
    assert_ok(set_options(&alone, (const char *const[]){"cdp.placement=single"}, 1));
    assert_ok(strategy_resolve(&alone, 1));
    assert_int_equal(strategy_stages(&alone), 4);
    struct cdp_case c = {.placement = "dp", .rule = "v2", .n = 3, .clip = 1, .nan_at = -1};
    struct engine_config engine = {.workers = 3};
    assert_fails(engine_threads(&engine, refuse, &c), SOTTO_EINVAL,
                 "optim.clip = 1: with cdp.rule = v2 a stage is updated before");
    c = (struct cdp_case){.placement = "pp", .rule = "v1", .n = 3, .tied = true, .nan_at = -1};
    assert_fails(engine_threads(&engine, refuse, &c), SOTTO_EINVAL,
                 "stage 3 shares a tensor with stage 1, which cdp.placement = pp puts on another");
    c.placement = "zero";
    assert_fails(
        engine_threads(&engine, refuse, &c), SOTTO_EINVAL,
        "stage 3 shares a tensor with stage 1, which cdp.placement = zero puts on another");
    c.placement = "mp";
    engine.workers = 6;
    assert_fails(engine_threads(&engine, refuse, &c), SOTTO_EINVAL,
                 "stage 3 shares a tensor with stage 1, which cdp.placement = mp puts on another");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(single),      cmocka_unit_test(dp),
        cmocka_unit_test(pp),          cmocka_unit_test(single_variants),
        cmocka_unit_test(dp_variants), cmocka_unit_test(pp_variants),
        cmocka_unit_test(zero),        cmocka_unit_test(zero_variants),
        cmocka_unit_test(mp),          cmocka_unit_test(mp_variants),
        cmocka_unit_test(imports),     cmocka_unit_test(changes),
        cmocka_unit_test(no_number),   cmocka_unit_test(refuses),
    };
    return run_cases(tests, 1, scratch_make, scratch_remove);
}
