/* Plain training on a quadratic: ddp with one worker. */
#include "strategy/quadratic.h"

#include "tensor/ops.h"

struct alone {
    struct quadratic q;
    struct memory memory;
    struct device dev;
    struct strategy_config config;
    struct optim_config optim;
    struct worker worker;
    struct mesh mesh;
    struct strategy *s;
    float x[COUNT]; /* the parameters after the last step */
};

static void method_configure(struct alone *m, int kind)
{
    memset(m, 0, sizeof *m);
    strategy_defaults(&m->config);
    optim_defaults(&m->optim);
    m->optim.kind = kind;
    m->optim.weight_decay = 0;
}

static void method_open(struct alone *m)
{
    quadratic_make(&m->q, &m->dev);
    assert_ok(device_open(&m->dev, test_device(), &m->memory, 1));
    assert_ok(worker_alone(&m->worker));
    assert_ok(strategy_resolve(&m->config, 1));
    assert_ok(mesh_open(&m->mesh, &m->worker, 1, &m->dev));
    struct strategy_setup setup = {.config = &m->config,
                                   .optim = &m->optim,
                                   .oracle = &m->q.base,
                                   .dev = &m->dev,
                                   .mesh = &m->mesh};
    assert_ok(strategy_open(&m->s, &setup));
    for (int i = 0; i < COUNT; i++)
        m->x[i] = 2 - 0.1f * (float)i;
    assert_ok(m->s->ops->import(m->s, m->x));
}

static void method_close(struct alone *m)
{
    m->s->ops->free(m->s);
    mesh_close(&m->mesh);
    comm_free(m->worker.world);
    table_free(&m->q.table);
    device_close(&m->dev);
    assert_int_equal(m->memory.total, 0);
}

static struct round step(struct alone *m, double lr)
{
    struct round r;
    assert_ok(m->s->ops->round(m->s, &(struct plan){.lr = lr, .want_norm = false}, &r));
    assert_ok(m->s->ops->export(m->s, m->x));
    return r;
}

/* Returns a hash of the state of a checkpoint, and of the bf16 copy, if there is a copy. */
static uint64_t hash_of(struct alone *m)
{
    struct state_visitor v;
    state_hasher_init(&v);
    assert_ok(m->s->ops->visit(m->s, &v));
    float x[COUNT];
    assert_ok(m->s->ops->export(m->s, x));
    assert_ok(state_table(&v, &m->q.table, NULL, MEMORY_PARAMETERS, NULL, view_of(x, DTYPE_F32)));
    uint64_t hash = v.hash;
    state_free(&v);
    return hash;
}

/* SGD follows x <- x - lr a^2 (x - c_t); the loss is that before the step. */
static void recursion(void **state)
{
    (void)state;
    struct alone m;
    method_configure(&m, OPTIM_SGD);
    method_open(&m);
    for (int t = 0; t < 30; t++) {
        double want[COUNT], loss = 0;
        for (int i = 0; i < COUNT; i++) {
            double d = m.x[i] - centre(t, i);
            want[i] = m.x[i] - 0.1 * m.q.a[i] * m.q.a[i] * d;
            loss += 0.5 * m.q.a[i] * m.q.a[i] * d * d;
        }
        struct round r = step(&m, 0.1);
        assert_true(fabs(r.loss - loss) < 1e-5);
        assert_int_equal(r.targets, 3 + t % 5);
        assert_int_equal(r.tokens, 2 * (3 + t % 5));
        assert_int_equal(r.microbatches, 1);
        assert_true(r.grad_norm < 0);
        for (int i = 0; i < COUNT; i++)
            assert_true(fabs(m.x[i] - want[i]) < 1e-6);
    }
    method_close(&m);
}

/* On one quadratic over and over, x_t - c = (1 - lr a^2)^t (x_0 - c). */
static void closed_form(void **state)
{
    (void)state;
    struct alone m;
    method_configure(&m, OPTIM_SGD);
    method_open(&m);
    m.q.still = true;
    double start[COUNT];
    for (int i = 0; i < COUNT; i++)
        start[i] = m.x[i];
    for (int t = 0; t < 20; t++)
        step(&m, 0.3);
    for (int i = 0; i < COUNT; i++) {
        double c = centre(0, i), rate = 1 - 0.3 * m.q.a[i] * m.q.a[i];
        assert_true(fabs(m.x[i] - (c + pow(rate, 20) * (start[i] - c))) < 1e-5);
    }
    method_close(&m);
}

/* k micro-batches a round equal one step along the mean of their gradients, or with weight = tokens
 * along the mean over all targets. */
static void accumulation(void **state)
{
    (void)state;
    for (int weight = WEIGHT_MICROBATCH; weight <= WEIGHT_TOKENS; weight++) {
        for (int k = 1; k <= 5; k++) {
            struct alone m;
            method_configure(&m, OPTIM_SGD);
            m.config.accumulate = k;
            m.config.weight = weight;
            method_open(&m);
            int64_t next = 0;
            for (int t = 0; t < 4; t++, next += k) {
                double want[COUNT], targets = 0, loss = 0;
                for (int j = 0; j < k; j++)
                    targets += (double)m.q.targets_of[next + j];
                for (int i = 0; i < COUNT; i++) {
                    double g = 0;
                    for (int j = 0; j < k; j++) {
                        double n = (double)m.q.targets_of[next + j];
                        double d = m.q.a[i] * (m.x[i] - centre(next + j, i));
                        g += m.q.a[i] * d * (weight == WEIGHT_TOKENS ? n / targets : 1.0 / k);
                        loss += 0.5 * d * d * n / targets;
                    }
                    want[i] = m.x[i] - 0.2 * g;
                }
                struct round r = step(&m, 0.2);
                assert_int_equal(r.microbatches, k);
                assert_int_equal(r.targets, (int64_t)targets);
                assert_true(fabs(r.loss - loss) < 1e-5);
                for (int i = 0; i < COUNT; i++)
                    assert_true(fabs(m.x[i] - want[i]) < 1e-6);
            }
            method_close(&m);
        }
    }
}

/* A NaN loss, at any micro-batch of a round, is SOTTO_ENUMERIC, and no parameter changes; so is a
 * NaN gradient, if the norm is wanted. */
static void not_a_number(void **state)
{
    (void)state;
    for (int bad = 0; bad < 3; bad++) {
        for (int precision = PRECISION_FP32; precision <= PRECISION_MIXED; precision++) {
            struct alone m;
            struct round r;
            method_configure(&m, OPTIM_ADAMW);
            m.config.accumulate = 3;
            m.config.precision = precision;
            method_open(&m);
            step(&m, 0.1);
            m.q.nan_at = 3 + bad;
            uint64_t before = hash_of(&m);
            char part[64];
            snprintf(part, sizeof part, "micro-batch %d is", 3 + bad);
            assert_fails(m.s->ops->round(m.s, &(struct plan){.lr = 0.1, .want_norm = false}, &r),
                         SOTTO_ENUMERIC, part);
            assert_true(hash_of(&m) == before);
            m.q.nan_at = -1; /* and the round can be made again, with the same result */
            m.q.huge = true;
            assert_fails(m.s->ops->round(m.s, &(struct plan){.lr = 0.1, .want_norm = true}, &r),
                         SOTTO_ENUMERIC, "norm");
            assert_true(hash_of(&m) == before);
            m.q.huge = false;
            step(&m, 0.1);
            uint64_t after = hash_of(&m);
            method_close(&m);

            method_configure(&m, OPTIM_ADAMW);
            m.config.accumulate = 3;
            m.config.precision = precision;
            method_open(&m);
            step(&m, 0.1);
            step(&m, 0.1);
            assert_true(hash_of(&m) == after);
            method_close(&m);
        }
    }
}

/* The reported norm is that of the averaged gradient. Clipping scales a longer gradient to the
 * limit, and leaves a shorter gradient unchanged. */
static void clipping(void **state)
{
    (void)state;
    for (int k = 1; k <= 3; k += 2) {
        static const double limits[] = {0, 0.5, 1e9};
        for (int c = 0; c < 3; c++) {
            struct alone m;
            struct round r;
            method_configure(&m, OPTIM_SGD);
            m.config.accumulate = k;
            m.optim.clip = limits[c];
            method_open(&m);
            double g[COUNT], squares = 0, before[COUNT];
            for (int i = 0; i < COUNT; i++) {
                g[i] = 0;
                before[i] = m.x[i];
                for (int j = 0; j < k; j++)
                    g[i] += m.q.a[i] * m.q.a[i] * (m.x[i] - centre(j, i)) / k;
                squares += g[i] * g[i];
            }
            double norm = sqrt(squares), factor = c == 1 ? 0.5 / norm : 1;
            assert_true(norm > 0.5);
            assert_ok(m.s->ops->round(m.s, &(struct plan){.lr = 0.1, .want_norm = true}, &r));
            assert_ok(m.s->ops->export(m.s, m.x));
            assert_true(fabs(r.grad_norm - norm) < 1e-5);
            for (int i = 0; i < COUNT; i++)
                assert_true(fabs(m.x[i] - (before[i] - 0.1 * factor * g[i])) < 1e-6);
            method_close(&m);
        }
    }
}

/* A wanted norm changes no bits. */
static void norm_is_free(void **state)
{
    (void)state;
    uint64_t hash[2];
    for (int want = 0; want < 2; want++) {
        struct alone m;
        struct round r;
        method_configure(&m, OPTIM_ADAMW);
        method_open(&m);
        for (int t = 0; t < 5; t++)
            assert_ok(m.s->ops->round(m.s, &(struct plan){.lr = 0.1, .want_norm = want}, &r));
        hash[want] = hash_of(&m);
        method_close(&m);
    }
    assert_true(hash[0] == hash[1]);
}

/* Records the parameters that the method computes with. */
static uint16_t seen[COUNT];

static enum sotto_status forward_seen(struct oracle *o, int slot, int k, const struct view *theta)
{
    struct quadratic *q = (struct quadratic *)o;
    assert_int_equal(theta[k].type, DTYPE_BF16);
    q->dev->ops->read(q->dev, seen + q->table.stage_start[k], theta[k],
                      table_stage_count(&q->table, k));
    return quadratic_forward(o, slot, k, theta);
}

static const struct oracle_ops seen_ops = {.begin = quadratic_begin,
                                           .forward = forward_seen,
                                           .backward = quadratic_backward,
                                           .result = quadratic_result};

/* Mixed precision: every round computes with the rounded fp32 truth; memory is 2 + 2 bytes a
 * parameter, and the truth counts as optimizer state. Training finds the minimum, to the precision
 * of bf16 gradients. */
static void mixed_precision(void **state)
{
    (void)state;
    struct alone m;
    method_configure(&m, OPTIM_ADAMW);
    m.config.precision = PRECISION_MIXED;
    method_open(&m);
    m.q.base.ops = &seen_ops;
    assert_int_equal(m.memory.now[MEMORY_PARAMETERS], 2 * COUNT);
    assert_int_equal(m.memory.now[MEMORY_GRADIENTS], 2 * COUNT);
    assert_int_equal(m.memory.now[MEMORY_OPTIMIZER], 12 * COUNT);
    bool finer = false;
    for (int t = 0; t < 20; t++) {
        float x[COUNT];
        memcpy(x, m.x, sizeof x);
        step(&m, 0.01);
        for (int i = 0; i < COUNT; i++) {
            assert_int_equal(seen[i], bf16_round(x[i]));
            finer |= bf16_widen(seen[i]) != x[i];
        }
    }
    assert_true(finer); /* the truth has more bits than the copy */
    method_close(&m);

    method_configure(&m, OPTIM_ADAMW);
    method_open(&m);
    assert_int_equal(m.memory.now[MEMORY_PARAMETERS], 4 * COUNT);
    assert_int_equal(m.memory.now[MEMORY_GRADIENTS], 4 * COUNT);
    assert_int_equal(m.memory.now[MEMORY_OPTIMIZER], 8 * COUNT);
    method_close(&m);
}

static void save(struct alone *m, const char *path)
{
    struct state_visitor v;
    assert_ok(state_saver_init(&v));
    assert_ok(m->s->ops->visit(m->s, &v));
    assert_ok(state_saver_write(&v, path));
    state_free(&v);
}

static void load(struct alone *m, const char *path)
{
    struct state_visitor v;
    assert_ok(state_loader_open(&v, path));
    assert_ok(m->s->ops->visit(m->s, &v));
    assert_ok(state_loader_finish(&v));
    state_free(&v);
}

/* Saved after k rounds and loaded into a new method, training continues with the same bits. */
static void save_and_load(void **state)
{
    (void)state;
    static const struct {
        int kind, precision, accumulate;
        double momentum;
    } cases[] = {{OPTIM_ADAMW, PRECISION_FP32, 1, 0},
                 {OPTIM_ADAMW, PRECISION_MIXED, 3, 0},
                 {OPTIM_SGD, PRECISION_FP32, 2, 0.9},
                 {OPTIM_SGD, PRECISION_MIXED, 1, 0}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        for (int k = 0; k <= 6; k++) {
            uint64_t hash[2];
            float x[COUNT];
            for (int resumed = 0; resumed < 2; resumed++) {
                struct alone m;
                method_configure(&m, cases[c].kind);
                m.config.precision = cases[c].precision;
                m.config.accumulate = cases[c].accumulate;
                m.optim.momentum = cases[c].momentum;
                method_open(&m);
                for (int t = resumed ? k : 0; t < 6; t++) {
                    if (!resumed && t == k) {
                        save(&m, at("state.safetensors"));
                        memcpy(x, m.x, sizeof x);
                    }
                    if (resumed && t == k) {
                        load(&m, at("state.safetensors"));
                        assert_ok(m.s->ops->import(m.s, x));
                    }
                    step(&m, 0.05);
                }
                hash[resumed] = hash_of(&m);
                if (k == 6)
                    hash[resumed] = 0; /* no save before the end */
                method_close(&m);
            }
            assert_true(hash[0] == hash[1]);
        }
    }
}

/* A failure of the oracle is returned unchanged. */
static enum sotto_status refuse(struct oracle *o, int slot, int64_t index, int rank, bool sum)
{
    (void)o, (void)slot, (void)rank, (void)sum;
    return fail(SOTTO_EIO, "no micro-batch %d", (int)index);
}

static const struct oracle_ops refusing_ops = {.begin = refuse,
                                               .forward = quadratic_forward,
                                               .backward = quadratic_backward,
                                               .result = quadratic_result};

static void oracle_failure(void **state)
{
    (void)state;
    struct alone m;
    struct round r;
    method_configure(&m, OPTIM_ADAMW);
    method_open(&m);
    uint64_t before = hash_of(&m);
    m.q.base.ops = &refusing_ops;
    assert_fails(m.s->ops->round(m.s, &(struct plan){.lr = 0.1, .want_norm = false}, &r), SOTTO_EIO,
                 "no micro-batch 0");
    assert_true(hash_of(&m) == before);
    method_close(&m);
}

static enum sotto_status failing_job(void *arg)
{
    return fail(SOTTO_EIO, "lane %s", (const char *)arg);
}

/* The first of several failed lanes is the cause. */
static void the_first_failure(void **state)
{
    (void)state;
    struct worker worker;
    struct mesh mesh;
    struct lane *lane[2];
    assert_ok(worker_alone(&worker));
    assert_ok(mesh_open(&mesh, &worker, 1, NULL));
    assert_ok(mesh_rest(&mesh));
    for (int i = 0; i < 2; i++)
        assert_ok(mesh_lane(&mesh, worker.world, &lane[i]));
    for (int i = 0; i < 2; i++)
        assert_ok(lane_start(lane[i], failing_job, i ? "two" : "one"));
    assert_fails(mesh_rest(&mesh), SOTTO_EIO, "lane one");
    mesh_close(&mesh);
    assert_int_equal(mesh.n_lane + mesh.n_comm, 0);
    comm_free(worker.world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_failure), cmocka_unit_test(recursion),
        cmocka_unit_test(closed_form),       cmocka_unit_test(accumulation),
        cmocka_unit_test(not_a_number),      cmocka_unit_test(clipping),
        cmocka_unit_test(norm_is_free),      cmocka_unit_test(mixed_precision),
        cmocka_unit_test(save_and_load),     cmocka_unit_test(oracle_failure),
    };
    return run_cases(tests, 1, scratch_make, scratch_remove);
}
