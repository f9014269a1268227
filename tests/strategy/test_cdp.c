/* Cyclic data parallelism: every placement makes the steps of a plain loop over the rule, to the
 * bit where sums have its order; a run that is taken up in the middle goes on with the same bits;
 * dp sends at most one gradient and one stage of parameters in a time step and calls no
 * collective. */
#include <pthread.h>

#include "strategy/chain.h"

#include "io/state.h"
#include "strategy/cdp_replay.h"
#include "strategy/shard/cdp.h"

enum { STEPS = 6 };

struct case_ {
    const char *placement, *rule;
    int n;
    int kind; /* optimizer */
    bool tied, mixed, tokens;
    double clip;
    int64_t nan_at;
    bool virtual_; /* the engine; else threads */

    /* What came out. */
    float x[STEPS + 1][CHAIN_MOST];
    double loss[STEPS], norm[STEPS];
    bool quiet;             /* nobody looks between steps */
    int64_t sent[2];        /* sums and parameters, messages of all workers */
    int64_t bytes[2], wire; /* ... and their bytes, of these alone and of all messages */
    _Atomic int64_t collectives;
    pthread_mutex_t lock;
};

static int workers(const struct case_ *c)
{
    return strcmp(c->placement, "single") == 0 ? 1 : c->n;
}

static double lr(int64_t t)
{
    return 0.05 * (1 + 0.5 * cos(2.0 * (double)t));
}

static void configure(const struct case_ *c, struct strategy_config *config,
                      struct optim_config *optim)
{
    strategy_defaults(config);
    optim_defaults(optim);
    snprintf(config->preset, sizeof config->preset, "cdp");
    set_own(config, "cdp", "rule", "%s", c->rule);
    set_own(config, "cdp", "placement", "%s", c->placement);
    if (strcmp(c->placement, "single") == 0)
        set_own(config, "cdp", "stages", "%d", c->n);
    config->precision = c->mixed ? PRECISION_MIXED : PRECISION_FP32;
    config->weight = c->tokens ? WEIGHT_TOKENS : WEIGHT_MICROBATCH;
    optim->kind = c->kind;
    optim->momentum = c->kind == OPTIM_SGD ? 0.9 : 0;
    optim->weight_decay = 0.02;
    optim->clip = c->clip;
}

/* A worker with its method. */
struct seat {
    struct memory memory;
    struct device dev;
    struct strategy_config config;
    struct optim_config optim;
    struct mesh mesh;
    struct chain chain;
    struct strategy *s;
};

static enum sotto_status open_seat(struct seat *p, const struct case_ *c, struct worker *w)
{
    *p = (struct seat){0};
    configure(c, &p->config, &p->optim);
    TRY(strategy_resolve(&p->config, w->size));
    assert_int_equal(strategy_stages(&p->config), c->n);
    TRY(device_open(&p->dev, test_device(), &p->memory, 1));
    TRY(mesh_open(&p->mesh, w, 1, &p->dev));
    TRY(chain_open(&p->chain, &p->dev, w, c->n, strategy_slots(&p->config), c->tied));
    p->chain.alone = strcmp(c->placement, "pp") == 0;
    p->chain.nan_at = c->nan_at;
    const struct strategy_setup setup = {.config = &p->config,
                                         .optim = &p->optim,
                                         .oracle = &p->chain.base,
                                         .dev = &p->dev,
                                         .mesh = &p->mesh};
    return strategy_open(&p->s, &setup);
}

static void close_seat(struct seat *p)
{
    if (p->s)
        p->s->ops->free(p->s);
    mesh_close(&p->mesh);
    chain_close(&p->chain);
    device_close(&p->dev);
}

static enum sotto_status look(struct case_ *c, struct worker *w, struct strategy *s, int t)
{
    float x[CHAIN_MOST];
    const struct view *stage;
    TRY(s->ops->export(s, x));
    if (w->rank == 0)
        memcpy(c->x[t], x, sizeof x);
    TRY(s->ops->gather(s, &stage)); /* in whose middle a pipeline stays filled */
    for (int k = 0; k < c->n; k++) {
        float theta[CHAIN_EACH];
        chain_read(((struct shard *)s)->is.dev, stage[k], CHAIN_EACH, theta);
        for (int i = 0; i < CHAIN_EACH; i++) {
            const float want = x[k * CHAIN_EACH + i];
            if (theta[i] != (c->mixed ? bf16_widen(bf16_round(want)) : want))
                return fail(SOTTO_EINVAL, "worker %d gathers another %d of stage %d", w->rank, i,
                            k);
        }
    }
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
        assert_int_equal(r.microbatches, c->n);
        assert_int_equal(r.agreed->microbatches, c->n);
        if (!c->quiet)
            TRY(look(c, w, p->s, t + 1));
    }
    return SOTTO_OK;
}

static int64_t collectives(const struct seat *p, const struct worker *w)
{
    int64_t sum = 0;
    for (int call = COMM_ALLREDUCE; call < COMM_CALLS; call++) {
        sum += w->world->tally[call].calls;
        for (int i = 0; i < p->mesh.n_comm; i++)
            sum += p->mesh.comm[i]->tally[call].calls;
    }
    return sum;
}

static void note_messages(struct case_ *c, const struct seat *p, int64_t called)
{
    const struct cdp *cdp = (const struct cdp *)p->s;
    pthread_mutex_lock(&c->lock);
    c->collectives += called;
    for (int i = 0; i < 2; i++) {
        c->sent[i] += cdp->sent[CDP_SUM + i];
        c->bytes[i] += cdp->sent_bytes[CDP_SUM + i];
    }
    for (int i = 0; cdp->comm && i < p->mesh.n_comm; i++)
        c->wire += p->mesh.comm[i]->tally[COMM_SEND].inside;
    pthread_mutex_unlock(&c->lock);
}

static enum sotto_status work(struct worker *w, void *arg)
{
    struct case_ *c = arg;
    struct seat p;
    float x[CHAIN_MOST];
    enum sotto_status st;
    TRY_DONE(open_seat(&p, c, w));
    chain_start(x, table_count(&p.chain.table));
    TRY_DONE(p.s->ops->import(p.s, x));
    const int64_t before = collectives(&p, w);
    TRY_DONE(steps(c, &p, w, 0, STEPS));
    TRY_DONE(mesh_rest(&p.mesh));
    note_messages(c, &p, collectives(&p, w) - before);
done:
    if (st != SOTTO_OK)
        mesh_abort(&p.mesh, st);
    close_seat(&p);
    if (st == SOTTO_OK && p.memory.total)
        st = fail(SOTTO_EINVAL, "%zu bytes were not freed", (size_t)p.memory.total);
    return st;
}

static enum sotto_status run_case(struct case_ *c)
{
    struct engine_config engine = {.workers = workers(c)};
    pthread_mutex_init(&c->lock, NULL);
    const enum sotto_status st = (c->virtual_ ? engine_virtual : engine_threads)(&engine, work, c);
    pthread_mutex_destroy(&c->lock);
    return st;
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
    configure(c, &config, &optim);
    assert_ok(strategy_resolve(&config, workers(c)));
    assert_ok(worker_alone(&w));
    assert_ok(device_open(&dev, test_device(), &memory, 1));
    assert_ok(chain_open(&chain, &dev, &w, c->n, 1, c->tied));
    chain_start(x, table_count(&chain.table));
    struct replay r = {.rule = strcmp(c->rule, "v2") == 0   ? REPLAY_V2
                               : strcmp(c->rule, "v1") == 0 ? REPLAY_V1
                                                            : REPLAY_SYNC,
                       .n = c->n,
                       .size = 1,
                       .tokens = c->tokens,
                       .bf16 = c->mixed,
                       .sums = strategy_grad_type(&config),
                       .lr = lr,
                       .optim = &optim};
    replay_open(&r, &chain.base, &dev, x);
    for (int t = 0; t < STEPS; t++) {
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
    snprintf(text, sizeof text, "%s %s, %d stages, %s%s%s%s", c->placement, c->rule, c->n,
             c->kind == OPTIM_SGD ? "sgd" : "adamw", c->tied ? ", tied" : "",
             c->mixed ? ", mixed" : "", c->tokens ? ", tokens" : "");
    return text;
}

static void equal_replay(struct case_ *c, float tolerance)
{
    static struct case_ want;
    const size_t count = (size_t)c->n * CHAIN_EACH;
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

static void equals_rule(const char *placement, float tolerance)
{
    static const int sizes[] = {1, 2, 3, 4, 8};
    for (int variant = 0; variant < 30; variant++) {
        static struct case_ c;
        c = (struct case_){.placement = placement,
                           .rule = rules[variant % 3],
                           .n = sizes[variant / 6],
                           .kind = variant / 3 % 2 ? OPTIM_ADAMW : OPTIM_SGD,
                           .virtual_ = variant % 2,
                           .nan_at = -1};
        equal_replay(&c, tolerance);
    }
}

static void single(void **state)
{
    (void)state;
    equals_rule("single", 0);
}

static void dp(void **state)
{
    (void)state;
    equals_rule("dp", 0);
}

static void pp(void **state)
{
    (void)state;
    equals_rule("pp", 0);
}

/* What is computed with rounded, weights, clipping, and tensors that two stages share. */
static void variants(const char *placement, bool tied)
{
    for (int variant = 0; variant < 24; variant++) {
        static struct case_ c;
        c = (struct case_){.placement = placement,
                           .rule = rules[variant % 3],
                           .n = variant < 12 ? 3 : 5,
                           .kind = variant % 2 ? OPTIM_ADAMW : OPTIM_SGD,
                           .tied = tied && variant / 3 % 2,
                           .mixed = variant / 3 % 4 == 2,
                           .tokens = variant / 3 % 4 == 3,
                           .nan_at = -1};
        /* With sync in dp each worker rounds its gradient before it is added. */
        if (!c.mixed || variant % 3 != 2 || strcmp(placement, "dp") != 0)
            equal_replay(&c, 0);
        if (variant % 3 == 0)
            continue;
        c = (struct case_){
            .placement = placement, .rule = c.rule, .n = 4, .clip = 0.1, .nan_at = -1};
        equal_replay(&c, 1e-6f);
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

/* 2 (n - 1) messages a stage and step, each as long as the stage, and beside them only the few
 * numbers of the step: n - 1 to the last worker and as many back. What the next step has sent by
 * then is less than a step's. */
static void dp_messages(void **state)
{
    (void)state;
    for (int variant = 0; variant < 6; variant++) {
        static struct case_ c;
        const int n = variant < 3 ? 4 : 7;
        c = (struct case_){.placement = "dp",
                           .rule = rules[variant % 3],
                           .n = n,
                           .nan_at = -1,
                           .quiet = true,
                           .virtual_ = variant % 2};
        assert_ok(run_case(&c));
        assert_int_equal(c.collectives, 0);
        for (int i = 0; i < 2; i++) {
            assert_in_range(c.sent[i], (STEPS - (i == 1)) * n * (n - 1), (STEPS + 1) * n * (n - 1));
            assert_int_equal(c.bytes[i], c.sent[i] * CHAIN_EACH * (int64_t)sizeof(float));
        }
        const int64_t rest = c.wire - c.bytes[0] - c.bytes[1];
        const int64_t norms = STEPS / 2 * (n - 1) * (int64_t)sizeof(double);
        assert_in_range(rest - norms, STEPS * 2 * (n - 1) * 64, (STEPS + 1) * 2 * (n - 1) * 64);
    }
}

static void no_number(void **state)
{
    (void)state;
    for (int virtual_ = 0; virtual_ < 2; virtual_++) {
        static struct case_ c;
        c = (struct case_){
            .placement = "dp", .rule = "v2", .n = 3, .nan_at = 7, .virtual_ = virtual_};
        assert_fails(run_case(&c), SOTTO_ENUMERIC, "worker 1: the loss of micro-batch 2 is");
    }
}

static enum sotto_status refuse(struct worker *w, void *arg)
{
    struct case_ *c = arg;
    struct seat p;
    const enum sotto_status st = open_seat(&p, c, w);
    if (st != SOTTO_OK)
        mesh_abort(&p.mesh, st);
    close_seat(&p);
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
        {4, {"mesh=2x2"}, "cdp is for one group of workers, strategy.mesh = 2x2 has 2"},
        {2, {"accumulate=3"}, "strategy.accumulate = 3: a step of cdp has as many"},
        {2, {"cdp.placement=single"}, "cdp.placement = single is for one worker, there are 2"},
        {6, {"cdp.placement=mp"}, "cdp.placement = mp cannot be trained with yet"},
        {3, {"cdp.placement=zero"}, "cdp.placement = zero cannot be trained with yet"},
        {2, {"cdp.stages=3"}, "cdp.stages"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct strategy_config config;
        strategy_defaults(&config);
        snprintf(config.shard, sizeof config.shard, "cdp");
        assert_ok(set_options(&config, cases[i].options, 3));
        assert_fails(strategy_resolve(&config, cases[i].workers), SOTTO_EINVAL, cases[i].why);
    }
    struct case_ c = {.placement = "dp", .rule = "v2", .n = 3, .clip = 1, .nan_at = -1};
    struct engine_config engine = {.workers = 3};
    assert_fails(engine_threads(&engine, refuse, &c), SOTTO_EINVAL,
                 "optim.clip = 1: with cdp.rule = v2 a stage is updated before");
    c = (struct case_){.placement = "pp", .rule = "v1", .n = 3, .tied = true, .nan_at = -1};
    assert_fails(engine_threads(&engine, refuse, &c), SOTTO_EINVAL,
                 "stage 3 shares a tensor with stage 1, which cdp.placement = pp has on another");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(single),      cmocka_unit_test(dp),
        cmocka_unit_test(pp),          cmocka_unit_test(single_variants),
        cmocka_unit_test(dp_variants), cmocka_unit_test(pp_variants),
        cmocka_unit_test(dp_messages), cmocka_unit_test(no_number),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
