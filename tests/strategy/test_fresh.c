/* Gradients that an oracle overwrites, if it supports `fresh`, instead of adding to zeros: which
 * micro-batches do, and that results are the same. */
#include "strategy/quadratic.h"
#include "strategy/shard/shard.h"

enum { ROUNDS = 6, LOG = 128 };

struct case_ {
    int method; /* enum strategy_shard */
    int workers, groups, accumulate, precision, warmup;
    int replicate;
    const char *replicas; /* of diloco: who trains */
    bool can;             /* the oracle */
    enum sotto_status (*train)(struct pupil *p, void *arg);

    /* Results of rank 0, and of the last rank. */
    float x[ROUNDS][COUNT];
    char log[LOG]; /* of each micro-batch: is it (w)ritten or added (+) */
    double norm[ROUNDS];
    bool idle[ROUNDS];
};

/* The quadratic, with a log of the calls. */
struct noted {
    struct quadratic q;
    struct worker *worker;
    char log[LOG];
    int n;
    bool fresh;
    int stop_at; /* the micro-batch that ends the round early; 0: none */
    atomic_int asked;
};

static enum sotto_status begin(struct oracle *o, int slot, int64_t index, int rank, bool sum)
{
    struct noted *q = (struct noted *)o;
    assert_true(q->n < LOG - 1);
    q->fresh = false;
    q->log[q->n++] = '+';
    if (q->n == q->stop_at)
        q->asked = 1;
    TRY(quadratic_begin(o, slot, index, rank, sum));
    return q->worker->ops->compute(q->worker, NULL, NULL, 1); /* the lane is done meanwhile */
}

static void fresh(struct oracle *o, int slot)
{
    struct noted *q = (struct noted *)o;
    assert_int_equal(slot, 0);
    assert_int_equal(q->q.forwards, 0); /* just begun */
    q->fresh = true;
    q->log[q->n - 1] = 'w';
}

static enum sotto_status backward(struct oracle *o, int slot, int k, const struct view *theta,
                                  const struct view *grad)
{
    const struct noted *q = (const struct noted *)o;
    const float zeros[COUNT] = {0};
    if (q->fresh)
        write_floats(q->q.dev, grad[k], table_stage_count(o->table, k), zeros);
    return quadratic_backward(o, slot, k, theta, grad);
}

static const struct oracle_ops adds = {
    .begin = begin, .forward = quadratic_forward, .backward = backward, .result = quadratic_result};
static const struct oracle_ops writes = {.begin = begin,
                                         .fresh = fresh,
                                         .forward = quadratic_forward,
                                         .backward = backward,
                                         .result = quadratic_result};

static struct plan plan_of(int t)
{
    return (struct plan){.lr = 0.05, .next_lr = 0.05, .step = t, .want_norm = true};
}

static enum sotto_status import(struct pupil *p)
{
    float x[COUNT];
    for (int i = 0; i < COUNT; i++)
        x[i] = 2 - 0.1f * (float)i;
    return p->s->ops->import(p->s, x);
}

/* No micro-batch has computed the gradient, and the last round has left another. */
static void gradient_is_zero(struct pupil *p)
{
    const struct buffer *g = &((struct shard *)p->s)->g;
    float host[COUNT];
    read_floats(&p->dev, g->view, g->count, host);
    for (size_t i = 0; i < g->count; i++)
        assert_true(host[i] == 0);
}

static enum sotto_status run_round(struct pupil *p, struct case_ *c, int t)
{
    struct round r;
    const struct plan plan = plan_of(t);
    float x[COUNT];
    TRY(p->s->ops->round(p->s, &plan, &r));
    if (r.idle)
        gradient_is_zero(p);
    TRY(p->s->ops->export(p->s, x));
    if (p->worker->rank == 0)
        memcpy(c->x[t], x, sizeof x);
    if (p->worker->rank == p->worker->size - 1) {
        c->norm[t] = r.grad_norm;
        c->idle[t] = r.idle;
    }
    return SOTTO_OK;
}

static enum sotto_status train_all(struct pupil *p, void *arg)
{
    TRY(import(p));
    for (int t = 0; t < ROUNDS; t++)
        TRY(run_round(p, arg, t));
    return SOTTO_OK;
}

static enum sotto_status work(struct worker *w, void *arg)
{
    struct case_ *c = arg;
    struct pupil p = {0};
    struct noted q = {.worker = w};
    strategy_defaults(&p.config);
    optim_defaults(&p.optim);
    choose(&p.config, c->method, c->replicate);
    p.config.accumulate = c->accumulate;
    p.config.precision = c->precision;
    if (c->groups)
        snprintf(p.config.mesh, sizeof p.config.mesh, "%dx%d", c->groups, c->workers / c->groups);
    set_own(&p.config, "dpu", "warmup", "%d", c->warmup);
    if (c->replicas) {
        set_own(&p.config, "diloco", "replicas", "%s", c->replicas);
        set_own(&p.config, "diloco", "H", "1");
    }
    TRY(pupil_open(&p, &q.q, w));
    q.q.base.ops = c->can ? &writes : &adds;
    TRY(pupil_train(&p, c->train ? c->train : train_all, c));
    if (w->rank == 0)
        memcpy(c->log, q.log, sizeof c->log);
    return SOTTO_OK;
}

/* The same with an oracle that supports `fresh` and one that does not: parameters, round by
 * round. */
static void run_both(struct case_ *can)
{
    const struct engine_config engine = {.workers = can->workers};
    struct case_ cannot = *can;
    can->can = true;
    assert_ok(engine_virtual(&engine, work, can));
    assert_ok(engine_virtual(&engine, work, &cannot));
    assert_int_equal(strlen(cannot.log), strlen(can->log));
    assert_int_equal(strspn(cannot.log, "+"), strlen(can->log));
    for (int t = 0; t < ROUNDS; t++) {
        for (int i = 0; i < COUNT; i++)
            if (!(can->x[t][i] == cannot.x[t][i]))
                fail_with("%s, %d workers: x[%d] is %.9g behind round %d, added to zeros %.9g",
                          shard_name(can->method), can->workers, i, can->x[t][i], t,
                          cannot.x[t][i]);
        assert_true(can->norm[t] == cannot.norm[t]);
    }
}

/* `times` micro-batches of which the first is written, or none. */
static void expect(char *log, int times, bool first)
{
    for (size_t i = strlen(log); times-- > 0; i++, first = false)
        log[i] = first ? 'w' : '+';
}

static void expected(const struct case_ *c, char log[LOG])
{
    const int n = c->accumulate;
    memset(log, 0, LOG);
    for (int t = 0; t < ROUNDS; t++) {
        if (c->method >= SHARD_DPU && t == c->warmup)
            expect(log, 1, true); /* ahead, where nothing waits yet */
        if (c->method == SHARD_ACCO)
            expect(log, n, false); /* on top of what waits */
        for (int i = 0; i < n && c->method == SHARD_FSDP; i++)
            expect(log, 1, true); /* each into a stage of its own */
        if (c->method != SHARD_FSDP)
            expect(log, n, true);
    }
}

static void first_ones_are_written(void **state)
{
    (void)state;
    for (int method = SHARD_DDP; method <= SHARD_ACCO; method++)
        for (int i = 0; i < 16; i++) {
            struct case_ c = {.method = method,
                              .workers = i & 1 ? 4 : 1,
                              .groups = i & 8 && i & 1 ? 2 : 0,
                              .accumulate = i & 2 ? 3 : 1,
                              .precision = i & 4 ? PRECISION_MIXED : PRECISION_FP32,
                              .warmup = method == SHARD_DPU && i & 8 ? 2 : 0};
            char log[LOG];
            run_both(&c);
            expected(&c, log);
            assert_string_equal(c.log, log);
        }
}

/* Idle groups have a gradient of zeros. */
static void idle_groups(void **state)
{
    (void)state;
    for (int method = SHARD_DDP; method <= SHARD_FSDP; method++) {
        struct case_ c = {.method = method,
                          .workers = 2,
                          .groups = 2,
                          .accumulate = 2,
                          .replicate = REPLICATE_DILOCO,
                          .replicas = "2x2,1x2,2x2"};
        run_both(&c);
        for (int t = 0; t < ROUNDS; t++)
            assert_int_equal(c.idle[t], t / 2 == 1);
    }
}

static enum sotto_status save(struct pupil *p, float x[COUNT])
{
    struct state_visitor v;
    TRY(p->s->ops->export(p->s, x));
    TRY(state_saver_init(&v));
    TRY(p->s->ops->visit(p->s, &v));
    TRY(state_saver_write(&v, at("state")));
    state_free(&v);
    return SOTTO_OK;
}

static enum sotto_status load(struct pupil *p, const float x[COUNT])
{
    struct state_visitor v;
    TRY(p->s->ops->import(p->s, x));
    TRY(state_loader_open(&v, at("state")));
    TRY(p->s->ops->visit(p->s, &v));
    TRY(state_loader_finish(&v));
    state_free(&v);
    return SOTTO_OK;
}

/* Restores a saved state in a run whose first rounds (undelayed, of dpu) have left the gradient
 * empty. */
static enum sotto_status train_again(struct pupil *p, void *arg)
{
    struct case_ *c = arg, other = *c;
    float x[COUNT];
    TRY(import(p));
    for (int t = 0; t < ROUNDS; t++) {
        if (t == 3 || t == 1) {
            TRY(save(p, x));
            TRY(import(p));
            TRY(run_round(p, &other, 0));
            TRY(load(p, x));
        }
        TRY(run_round(p, c, t));
    }
    return SOTTO_OK;
}

static void resumed(void **state)
{
    (void)state;
    for (int method = SHARD_DDP; method <= SHARD_ACCO; method++)
        for (int precision = PRECISION_FP32; precision <= PRECISION_MIXED; precision++) {
            struct case_ c = {.method = method, .workers = 1, .accumulate = 2};
            c.precision = precision;
            c.warmup = method == SHARD_DPU ? 2 : 0;
            struct case_ again = c;
            run_both(&c);
            again.train = train_again;
            run_both(&again);
            for (int t = 0; t < ROUNDS; t++)
                assert_memory_equal(again.x[t], c.x[t], sizeof c.x[t]);
        }
}

/* Rounds that are abandoned at once or after a micro-batch, and then run. */
static enum sotto_status train_abandoning(struct pupil *p, void *arg)
{
    struct noted *q = (struct noted *)p->q;
    TRY(import(p));
    for (int t = 0; t < ROUNDS; t++) {
        struct plan plan = plan_of(t);
        struct round r;
        q->asked = t % 2;
        q->stop_at = q->n + 1;
        plan.asked = &q->asked;
        TRY(p->s->ops->round(p->s, &plan, &r));
        assert_true(r.abandoned);
        q->stop_at = 0;
        TRY(run_round(p, arg, t));
    }
    return SOTTO_OK;
}

static void abandoned(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct case_ c = {.method = i & 1 ? SHARD_ZERO1 : SHARD_DDP,
                          .workers = i & 2 ? 2 : 1,
                          .accumulate = 2},
                     ends = c;
        run_both(&c);
        ends.train = train_abandoning;
        run_both(&ends);
        assert_memory_equal(ends.x, c.x, sizeof c.x);
        assert_string_equal(ends.log, "ww+w+ww+w+ww+w+");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_ones_are_written),
        cmocka_unit_test(idle_groups),
        cmocka_unit_test(resumed),
        cmocka_unit_test(abandoned),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
