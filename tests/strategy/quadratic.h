/* A quadratic whose every number is known, as an oracle.
 *
 * Micro-batch i has n_i targets and the summed loss n_i * 1/2 |a (theta - c_i)|^2, cut into stages
 * as a model is: the gradient of the mean is a^2 (theta - c_i). The n-th micro-batch of rank r of N
 * is number n*N + r of all. */
#ifndef SOTTO_TESTS_STRATEGY_QUADRATIC_H
#define SOTTO_TESTS_STRATEGY_QUADRATIC_H

#include <math.h>

#include "base/scratch.h"
#include "comm/worker.h"
#include "strategy/names.h"
#include "strategy/strategy.h"
#include "tensor/ops.h"

enum { COUNT = 24, STAGES = 3, BATCHES = 64 };

struct quadratic {
    struct oracle base;
    struct table table;
    struct device *dev; /* that has the parameters */
    float a[COUNT];
    int64_t nan_at; /* micro-batch whose loss is no number; -1: none      */
    bool huge;      /* gradients overflow, the loss does not */
    bool still;     /* every micro-batch is the first                     */
    int size;       /* workers */
    int64_t targets_of[BATCHES];
    int64_t index;
    bool sum;
    double loss;
    int forwards, backwards; /* stage the next call must be for */
    struct device *read_on;  /* device of the last result; NULL: the oracle's own */
};

static inline double centre(int64_t index, int i)
{
    return sin(1.7 * (double)index + 0.3 * i);
}

/* Elements of a device's, of either type. */
static inline void read_floats(struct device *dev, struct view v, size_t count, float *out)
{
    uint16_t half[COUNT];
    assert_true(count <= COUNT);
    dev->ops->read(dev, v.type == DTYPE_F32 ? (void *)out : half, v, count);
    for (size_t i = 0; i < count && v.type == DTYPE_BF16; i++)
        out[i] = bf16_widen(half[i]);
}

static inline void write_floats(struct device *dev, struct view v, size_t count, const float *in)
{
    uint16_t half[COUNT];
    assert_true(count <= COUNT);
    for (size_t i = 0; i < count; i++)
        half[i] = bf16_round(in[i]);
    dev->ops->write(dev, v, v.type == DTYPE_F32 ? (const void *)in : half, count);
}

static inline enum sotto_status quadratic_begin(struct oracle *o, int slot, int64_t index, int rank,
                                                bool sum)
{
    struct quadratic *q = (struct quadratic *)o;
    assert_int_equal(slot, 0);
    q->index = q->still ? 0 : (index * q->size + rank) % BATCHES;
    q->sum = sum;
    q->loss = 0;
    q->forwards = 0;
    q->backwards = STAGES - 1;
    return SOTTO_OK;
}

static inline enum sotto_status quadratic_forward(struct oracle *o, int slot, int k,
                                                  const struct view *theta)
{
    (void)slot;
    struct quadratic *q = (struct quadratic *)o;
    assert_int_equal(k, q->forwards++);
    const size_t start = q->table.stage_start[k], count = table_stage_count(&q->table, k);
    float x[COUNT];
    read_floats(q->dev, theta[k], count, x);
    for (size_t i = 0; i < count; i++) {
        double d = q->a[start + i] * ((double)x[i] - centre(q->index, (int)(start + i)));
        q->loss += 0.5 * d * d;
    }
    return SOTTO_OK;
}

static inline enum sotto_status quadratic_backward(struct oracle *o, int slot, int k,
                                                   const struct view *theta,
                                                   const struct view *grad)
{
    (void)slot;
    struct quadratic *q = (struct quadratic *)o;
    assert_int_equal(q->forwards, STAGES);
    assert_int_equal(k, q->backwards--);
    const size_t start = q->table.stage_start[k], count = table_stage_count(&q->table, k);
    double factor = q->sum ? (double)q->targets_of[q->index] : 1;
    float x[COUNT], g[COUNT];
    read_floats(q->dev, theta[k], count, x);
    read_floats(q->dev, grad[k], count, g);
    for (size_t i = 0; i < count; i++) {
        double d = q->a[start + i] * ((double)x[i] - centre(q->index, (int)(start + i)));
        g[i] += (float)(q->huge ? HUGE_VAL : factor * q->a[start + i] * d);
    }
    write_floats(q->dev, grad[k], count, g);
    return SOTTO_OK;
}

static inline enum sotto_status quadratic_result(struct oracle *o, int slot, struct device *dev,
                                                 struct oracle_result *out)
{
    (void)slot;
    struct quadratic *q = (struct quadratic *)o;
    q->read_on = dev;
    int64_t n = q->targets_of[q->index];
    double loss = q->index == q->nan_at ? NAN : q->loss * (double)n;
    *out = (struct oracle_result){loss, n, 2 * n};
    return SOTTO_OK;
}

static const struct oracle_ops quadratic_ops = {.begin = quadratic_begin,
                                                .forward = quadratic_forward,
                                                .backward = quadratic_backward,
                                                .result = quadratic_result};

static inline void quadratic_make(struct quadratic *q, struct device *dev)
{
    static const int64_t shapes[][TABLE_DIMS] = {{4, 2}, {8}, {2, 2, 2}};
    static const char *const names[] = {"w", "b", "u"};
    *q = (struct quadratic){
        .base = {.ops = &quadratic_ops, .slots = 1}, .dev = dev, .nan_at = -1, .size = 1};
    for (int i = 0; i < STAGES; i++) {
        table_add(&q->table, names[i], shapes[i], TABLE_ZERO, 0);
        q->table.entry[i].stage = i;
    }
    assert_ok(table_layout(&q->table, STAGES, 1));
    assert_int_equal(table_count(&q->table), COUNT);
    q->base.table = &q->table;
    for (int i = 0; i < COUNT; i++)
        q->a[i] = 0.5f + 0.05f * (float)i;
    for (int i = 0; i < BATCHES; i++)
        q->targets_of[i] = 3 + i % 5;
}

/* A worker that trains it. */
struct pupil {
    struct quadratic *q;
    struct worker *worker;
    struct memory memory;
    struct device dev;
    struct strategy_config config; /* set by the test */
    struct optim_config optim;
    struct mesh mesh;
    struct strategy *s;
};

/* Opens everything but the strategy; a test may then change the quadratic. */
static inline enum sotto_status pupil_open(struct pupil *p, struct quadratic *q, struct worker *w)
{
    p->q = q;
    p->worker = w;
    quadratic_make(q, &p->dev);
    q->base.rank = w->rank;
    q->size = w->size;
    TRY(strategy_resolve(&p->config, w->size));
    TRY(device_open(&p->dev, test_device(), &p->memory, 1));
    return mesh_open(&p->mesh, w, p->config.groups, &p->dev);
}

/* `train` with the strategy; then everything is closed, and all memory given back. */
static inline enum sotto_status pupil_train(struct pupil *p,
                                            enum sotto_status (*train)(struct pupil *p, void *arg),
                                            void *arg)
{
    struct strategy_setup setup = {.config = &p->config,
                                   .optim = &p->optim,
                                   .oracle = &p->q->base,
                                   .dev = &p->dev,
                                   .mesh = &p->mesh};
    enum sotto_status st = strategy_open(&p->s, &setup);
    if (st == SOTTO_OK) {
        st = train(p, arg);
        if (st != SOTTO_OK)
            mesh_abort(&p->mesh, st);
        p->s->ops->free(p->s);
    }
    mesh_close(&p->mesh);
    device_close(&p->dev);
    table_free(&p->q->table);
    if (st == SOTTO_OK && p->memory.total)
        st = fail(SOTTO_EINVAL, "%zu bytes were not freed", (size_t)p->memory.total);
    return st;
}

#endif
