/* Data parallelism, with replicas (ddp) and with sliced optimizers (zero1), in one group or
 * several: N workers with one micro-batch each make the step of one worker with N, to rounding; all
 * workers hold equal bits; a worker that fails ends the run and is named. */
#include "strategy/quadratic.h"

enum { ROUNDS = 6 };

struct case_ {
    int method;                      /* 0 ddp, 1 zero1, 2 fsdp */
    int groups;                      /* |R| */
    size_t bytes[MEMORY_CATEGORIES]; /* of rank 0 */
    int workers, accumulate;
    int kind; /* optimizer */
    int weight, precision, grads;
    double clip;
    int64_t nan_at;
    float x[COUNT]; /* of rank 0, in the end */
    double loss[ROUNDS];
    int64_t across; /* bytes that rank 0 sent to sum gradients over the groups */
};

static void configure(const struct case_ *c, struct strategy_config *config,
                      struct optim_config *optim)
{
    strategy_defaults(config);
    optim_defaults(optim);
    choose(config, SHARD_DDP + c->method, REPLICATE_AUTO);
    if (c->groups)
        snprintf(config->mesh, sizeof config->mesh, "%dx%d", c->groups, c->workers / c->groups);
    config->accumulate = c->accumulate;
    config->weight = c->weight;
    config->precision = c->precision;
    config->grads = c->grads;
    optim->kind = c->kind;
    optim->momentum = c->kind == OPTIM_SGD ? 0.9 : 0;
    optim->clip = c->clip;
}

static enum sotto_status equal_bits(struct worker *w, struct strategy *s)
{
    float all[8][COUNT], mine[COUNT];
    TRY(s->ops->export(s, mine));
    TRY(comm_gather_bytes(w->world, all, mine, sizeof mine));
    for (int r = 1; r < w->size; r++)
        if (memcmp(all[r], all[0], sizeof all[0]) != 0)
            return fail(SOTTO_EINVAL, "ranks 0 and %d hold other parameters", r);
    return SOTTO_OK;
}

static enum sotto_status train(struct pupil *p, void *arg)
{
    struct case_ *c = arg;
    struct worker *w = p->worker;
    struct strategy *s = p->s;
    const struct mesh *mesh = &p->mesh;
    float x[COUNT];
    for (int i = 0; i < COUNT; i++)
        x[i] = 2 - 0.1f * (float)i;
    TRY(s->ops->import(s, x));
    for (int i = 0; i < MEMORY_CATEGORIES && w->rank == 0; i++)
        c->bytes[i] = p->memory.now[i];
    for (int t = 0; t < ROUNDS; t++) {
        struct round r;
        TRY(s->ops->round(s, &(struct plan){.lr = 0.05, .want_norm = t % 2}, &r));
        if (w->rank == 0)
            c->loss[t] = r.loss;
    }
    TRY(s->ops->export(s, x));
    if (w->rank == 0)
        memcpy(c->x, x, sizeof x);
    TRY(equal_bits(w, s));
    /* The lane reads a round's last loss, so that backward does not wait for the loss. */
    if (mesh->n_s * mesh->n_r > 1)
        assert_ptr_equal(p->q->read_on, mesh->lane->dev);
    if (w->rank == 0)
        c->across = mesh->lane_replicate->stats[COMM_ALLREDUCE].inside;
    return SOTTO_OK;
}

static enum sotto_status work(struct worker *w, void *arg)
{
    struct case_ *c = arg;
    struct pupil p = {0};
    struct quadratic q;
    configure(c, &p.config, &p.optim);
    TRY(pupil_open(&p, &q, w));
    q.nan_at = c->nan_at;
    return pupil_train(&p, train, c);
}

static void equals_alone(void **state)
{
    (void)state;
    for (int workers = 1; workers <= 8; workers++) {
        for (int variant = 0; variant < 8; variant++) {
            struct case_ many = {.workers = workers, .accumulate = 1 + variant % 2, .nan_at = -1};
            many.kind = variant & 1 ? OPTIM_SGD : OPTIM_ADAMW;
            many.weight = variant & 2 ? WEIGHT_TOKENS : WEIGHT_MICROBATCH;
            many.clip = variant & 4 ? 0.5 : 0;
            struct case_ one = many;
            one.accumulate *= workers;
            struct engine_config engine = {.workers = workers};
            assert_ok(engine_threads(&engine, work, &many));
            one.workers = engine.workers = 1;
            assert_ok(engine_threads(&engine, work, &one));
            for (int t = 0; t < ROUNDS; t++)
                if (fabs(many.loss[t] - one.loss[t]) > 1e-5 * fabs(one.loss[t]))
                    fail_with("%d workers, variant %d: loss %d is %g, alone %g", workers, variant,
                              t, many.loss[t], one.loss[t]);
            for (int i = 0; i < COUNT; i++)
                if (fabsf(many.x[i] - one.x[i]) > 2e-5f)
                    fail_with("%d workers, variant %d: x[%d] is %g, alone %g", workers, variant, i,
                              many.x[i], one.x[i]);
        }
    }
}

/* zero1 and fsdp in every mesh that the stages of 8 elements allow: what ddp computes, to rounding.
 */
static void slices(void **state)
{
    (void)state;
    static const int shapes[][2] = {{1, 1}, {2, 1}, {2, 2}, {4, 1}, {4, 2},
                                    {4, 4}, {8, 1}, {8, 4}, {6, 3}};
    EACH_SHARED(variant, STRIDE, 16 * sizeof shapes / sizeof *shapes) {
        const int *shape = shapes[variant / 16];
        struct case_ ddp = {.workers = shape[0], .accumulate = 2, .nan_at = -1};
        ddp.kind = variant & 1 ? OPTIM_SGD : OPTIM_ADAMW;
        ddp.weight = variant & 2 ? WEIGHT_TOKENS : WEIGHT_MICROBATCH;
        ddp.clip = variant & 4 ? 0.5 : 0;
        struct case_ sliced = ddp;
        sliced.method = variant & 8 ? 2 : 1;
        sliced.groups = shape[1];
        struct engine_config engine = {.workers = shape[0]};
        assert_ok(engine_threads(&engine, work, &ddp));
        assert_ok(engine_threads(&engine, work, &sliced));
        for (int i = 0; i < COUNT; i++)
            if (fabsf(sliced.x[i] - ddp.x[i]) > 2e-5f)
                fail_with("%d workers in %d groups, variant %d: x[%d] is %g, ddp's %g", shape[0],
                          shape[1], variant % 16, i, sliced.x[i], ddp.x[i]);
    }
}

/* The own slice of the gradient crosses the slow links between the groups once a round, with any
 * number of micro-batches. */
static void once_a_round(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        struct case_ c = {.method = 1 + i % 2, .groups = 2, .workers = 4, .nan_at = -1};
        struct engine_config engine = {.workers = 4};
        c.accumulate = 1 + i / 2;
        assert_ok(engine_threads(&engine, work, &c));
        assert_int_equal(c.across, ROUNDS * (int64_t)sizeof(float) * COUNT / 2);
    }
}

/* Bytes a parameter, mixed: ddp 2 + 2 + 12, zero1 2 + 2 + 12/|S|, fsdp (2 + 2 + 12)/|S| and, for
 * communication, two stages of parameters and of gradients. fp32 gradients, which sum more than 4
 * micro-batches, take 4 bytes, and a bf16 stage, or a slice of a stage, for sending. A device takes
 * the same: no data is staged on the host. */
static void memory_table(void **state)
{
    (void)state;
    for (int i = 0; i < 3 * 5 * 2; i++) {
        static const int accumulate[] = {1, 4, 5, 5, 1};
        static const int grads[] = {GRADS_AUTO, GRADS_AUTO, GRADS_AUTO, GRADS_BF16, GRADS_FP32};
        struct case_ c = {.method = i % 3,
                          .workers = 4,
                          .groups = i / 15 ? 2 : 1,
                          .accumulate = accumulate[i / 3 % 5],
                          .nan_at = -1,
                          .precision = PRECISION_MIXED,
                          .grads = grads[i / 3 % 5]};
        struct engine_config engine = {.workers = 4};
        const size_t parts = 4 / (size_t)c.groups, own = c.method ? parts : 1;
        const size_t cut = c.method == 2 ? parts : 1;
        const bool wide = i / 3 % 5 == 2 || i / 3 % 5 == 4;
        size_t wire = wide ? 8 * 2 : 0;
        if (c.method == 2)
            wire = 4 * 8 * 2 + (c.groups > 1 ? wire / parts : 0);
        assert_ok(engine_threads(&engine, work, &c));
        assert_int_equal(c.bytes[MEMORY_PARAMETERS], 2 * COUNT / cut);
        assert_int_equal(c.bytes[MEMORY_GRADIENTS], (wide ? 4 : 2) * COUNT / cut);
        assert_int_equal(c.bytes[MEMORY_OPTIMIZER], 12 * COUNT / own);
        assert_int_equal(c.bytes[MEMORY_COMMUNICATION], wire);
    }
}

static void uneven_stages(void **state)
{
    (void)state;
    struct case_ c = {.method = 1, .workers = 3, .accumulate = 1, .nan_at = -1};
    struct engine_config engine = {.workers = 3};
    assert_fails(engine_threads(&engine, work, &c), SOTTO_EINVAL,
                 "stage 0 of 8 elements cannot be cut into 3");
}

static void mixed_precision(void **state)
{
    (void)state;
    struct case_ many = {.workers = 4, .accumulate = 1, .precision = PRECISION_MIXED, .nan_at = -1};
    struct case_ full = {.workers = 4, .accumulate = 1, .nan_at = -1};
    struct engine_config engine = {.workers = 4};
    assert_ok(engine_threads(&engine, work, &many));
    assert_ok(engine_threads(&engine, work, &full));
    for (int i = 0; i < COUNT; i++) /* bf16 gradients: 8 bits, six rounds of AdamW at 0.05 */
        assert_true(fabsf(many.x[i] - full.x[i]) < 0.05f);
}

/* Micro-batch 5 is rank 1's second of 4 workers. */
static void no_number(void **state)
{
    (void)state;
    for (int method = 0; method < 3; method++) {
        struct case_ many = {.method = method, .workers = 4, .accumulate = 1, .nan_at = 5};
        struct engine_config engine = {.workers = 4};
        assert_fails(engine_virtual(&engine, work, &many), SOTTO_ENUMERIC,
                     "worker 1: the loss of micro-batch 1");
        assert_fails(engine_threads(&engine, work, &many), SOTTO_ENUMERIC,
                     "worker 1: the loss of micro-batch 1");
    }
}

static enum sotto_status shape(struct worker *w, void *arg)
{
    int groups = *(int *)arg;
    struct mesh m;
    TRY(mesh_open(&m, w, groups, NULL));
    bool right = m.n_r == groups && m.n_s == w->size / groups && w->rank == m.r * m.n_s + m.s &&
                 m.shard->size == m.n_s && m.shard->rank == m.s && m.replicate->size == m.n_r &&
                 m.replicate->rank == m.r;
    mesh_close(&m);
    return right ? SOTTO_OK
                 : fail(SOTTO_EINVAL, "rank %d of %d groups is misplaced", w->rank, groups);
}

static void meshes(void **state)
{
    (void)state;
    struct engine_config engine = {.workers = 6};
    for (int groups = 1; groups <= 6; groups++) {
        if (6 % groups == 0)
            assert_ok(engine_threads(&engine, shape, &groups));
        else
            assert_fails(engine_threads(&engine, shape, &groups), SOTTO_EINVAL,
                         "6 workers cannot be cut");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_alone),    cmocka_unit_test(slices),
        cmocka_unit_test(memory_table),    cmocka_unit_test(uneven_stages),
        cmocka_unit_test(mixed_precision), cmocka_unit_test(no_number),
        cmocka_unit_test(meshes),          cmocka_unit_test(once_a_round),
    };
    return run_cases(tests, 1, NULL, NULL);
}
