/* A network of as many stages as a test wants, as an oracle with slots and edges: stage k is y =
 * tanh(W x + b), and the loss is half the squared distance of the last one's y from a target. With
 * `tied` the last stage adds the first one's b to its own. Micro-batch number q = index * size +
 * rank has numbers of its own. */
#ifndef SOTTO_TESTS_STRATEGY_CDP_CHAIN_H
#define SOTTO_TESTS_STRATEGY_CDP_CHAIN_H

#include <math.h>

#include "base/scratch.h"
#include "comm/worker.h"
#include "strategy/names.h"
#include "strategy/strategy.h"
#include "tensor/ops.h"

enum { CHAIN_STAGES = 8, CHAIN_WIDTH = 3, CHAIN_SLOTS = 8 };
enum { CHAIN_EACH = CHAIN_WIDTH * (CHAIN_WIDTH + 1), CHAIN_MOST = CHAIN_STAGES * CHAIN_EACH };

struct chain_slot {
    int64_t number;
    bool sum;
    int forwards, backwards; /* of the next, if the micro-batch is whole */
    float x[CHAIN_STAGES][CHAIN_WIDTH], y[CHAIN_STAGES][CHAIN_WIDTH];
    double loss;
    struct buffer edge[CHAIN_STAGES], dedge[CHAIN_STAGES];
};

struct chain {
    struct oracle base;
    struct table table;
    struct worker *worker;
    struct device *dev;
    bool tied, alone; /* alone: stages of a micro-batch run on workers of their own */
    int size;         /* workers that share the data */
    int64_t nan_at;   /* micro-batch whose loss is no number; -1: none */
    double seconds;   /* of a stage's forward, where time is modelled; backward takes as long */
    /* (optional) Called in front of every task, by the task's worker. */
    enum sotto_status (*watch)(struct chain *c, int slot, int k, bool backward);
    void *watcher;
    struct chain_slot slot[CHAIN_SLOTS];
};

static inline double chain_input(int64_t q, int i)
{
    return sin(1.3 * (double)q + 0.7 * i);
}

static inline double chain_target(int64_t q, int i)
{
    return 0.6 * cos(0.9 * (double)q + 1.1 * i);
}

static inline int64_t chain_targets(int64_t q)
{
    return 2 + q % 3;
}

/* Elements of a device's, of either type. */
static inline void chain_read(struct device *dev, struct view v, size_t count, float *out)
{
    uint16_t half[CHAIN_MOST];
    dev->ops->read(dev, v.type == DTYPE_F32 ? (void *)out : half, v, count);
    for (size_t i = 0; i < count && v.type == DTYPE_BF16; i++)
        out[i] = bf16_widen(half[i]);
}

static inline void chain_write(struct device *dev, struct view v, size_t count, const float *in)
{
    uint16_t half[CHAIN_MOST];
    for (size_t i = 0; i < count; i++)
        half[i] = bf16_round(in[i]);
    dev->ops->write(dev, v, v.type == DTYPE_F32 ? (const void *)in : half, count);
}

static inline enum sotto_status chain_begin(struct oracle *o, int slot, int64_t index, int rank,
                                            bool sum)
{
    struct chain *c = (struct chain *)o;
    struct chain_slot *s = &c->slot[slot];
    s->number = index * c->size + rank;
    s->sum = sum;
    s->loss = 0;
    s->forwards = 0;
    s->backwards = c->table.n_stage - 1;
    return SOTTO_OK;
}

static inline void chain_parameters(struct chain *c, int k, const struct view *theta,
                                    float p[CHAIN_EACH])
{
    float first[CHAIN_EACH];
    const int bias = CHAIN_WIDTH * CHAIN_WIDTH;
    chain_read(c->dev, theta[k], CHAIN_EACH, p);
    if (!c->tied || k == 0 || k + 1 < c->table.n_stage)
        return;
    chain_read(c->dev, theta[0], CHAIN_EACH, first);
    for (int i = 0; i < CHAIN_WIDTH; i++)
        p[bias + i] += first[bias + i];
}

static inline enum sotto_status chain_spend(struct chain *c)
{
    if (c->seconds > 0)
        TRY(c->worker->ops->compute(c->worker, NULL, NULL, c->seconds));
    if (c->watch && c->worker->ops->sync_clock)
        c->worker->ops->sync_clock(
            c->worker); /* nothing is done that another may watch too early */
    return SOTTO_OK;
}

static inline enum sotto_status chain_forward(struct oracle *o, int slot, int k,
                                              const struct view *theta)
{
    struct chain *c = (struct chain *)o;
    struct chain_slot *s = &c->slot[slot];
    float p[CHAIN_EACH];
    assert_true(c->alone || k == s->forwards++);
    if (c->watch)
        TRY(c->watch(c, slot, k, false));
    chain_parameters(c, k, theta, p);
    if (k > 0)
        c->dev->ops->read(c->dev, s->x[k], s->edge[k].view, CHAIN_WIDTH);
    for (int i = 0; i < CHAIN_WIDTH && k == 0; i++)
        s->x[0][i] = (float)chain_input(s->number, i);
    for (int i = 0; i < CHAIN_WIDTH; i++) {
        double z = p[CHAIN_WIDTH * CHAIN_WIDTH + i];
        for (int j = 0; j < CHAIN_WIDTH; j++)
            z += p[i * CHAIN_WIDTH + j] * s->x[k][j];
        s->y[k][i] = (float)tanh(z);
    }
    if (k + 1 < c->table.n_stage) {
        c->dev->ops->write(c->dev, s->edge[k + 1].view, s->y[k], CHAIN_WIDTH);
        return chain_spend(c);
    }
    for (int i = 0; i < CHAIN_WIDTH; i++) {
        const double d = s->y[k][i] - chain_target(s->number, i);
        s->loss += 0.5 * d * d;
    }
    return chain_spend(c);
}

static inline enum sotto_status chain_backward(struct oracle *o, int slot, int k,
                                               const struct view *theta, const struct view *grad)
{
    struct chain *c = (struct chain *)o;
    struct chain_slot *s = &c->slot[slot];
    const int bias = CHAIN_WIDTH * CHAIN_WIDTH, last = c->table.n_stage - 1;
    float p[CHAIN_EACH], g[CHAIN_EACH], dy[CHAIN_WIDTH], dx[CHAIN_WIDTH];
    assert_true(c->alone || k == s->backwards--);
    if (c->watch)
        TRY(c->watch(c, slot, k, true));
    chain_parameters(c, k, theta, p);
    chain_read(c->dev, grad[k], CHAIN_EACH, g);
    if (k < last)
        c->dev->ops->read(c->dev, dy, s->dedge[k + 1].view, CHAIN_WIDTH);
    const double factor = s->sum ? (double)chain_targets(s->number) : 1;
    for (int i = 0; i < CHAIN_WIDTH && k == last; i++)
        dy[i] = (float)(factor * (s->y[k][i] - chain_target(s->number, i)));
    for (int i = 0; i < CHAIN_WIDTH; i++)
        dy[i] *= 1 - s->y[k][i] * s->y[k][i];
    for (int j = 0; j < CHAIN_WIDTH; j++) {
        dx[j] = 0;
        for (int i = 0; i < CHAIN_WIDTH; i++) {
            g[i * CHAIN_WIDTH + j] += dy[i] * s->x[k][j];
            dx[j] += p[i * CHAIN_WIDTH + j] * dy[i];
        }
        g[bias + j] += dy[j];
    }
    chain_write(c->dev, grad[k], CHAIN_EACH, g);
    if (c->tied && k == last && k > 0) {
        chain_read(c->dev, grad[0], CHAIN_EACH, g);
        for (int i = 0; i < CHAIN_WIDTH; i++)
            g[bias + i] += dy[i];
        chain_write(c->dev, grad[0], CHAIN_EACH, g);
    }
    if (k > 0)
        c->dev->ops->write(c->dev, s->dedge[k].view, dx, CHAIN_WIDTH);
    return chain_spend(c);
}

static inline void chain_needs(struct oracle *o, int k, bool *needs)
{
    const struct chain *c = (const struct chain *)o;
    if (c->tied && k == c->table.n_stage - 1)
        needs[0] = true;
}

static inline enum sotto_status chain_edge(struct oracle *o, int slot, int k, bool gradient,
                                           struct view *out, size_t *count)
{
    struct chain_slot *s = &((struct chain *)o)->slot[slot];
    *out = gradient ? s->dedge[k].view : s->edge[k].view;
    *count = CHAIN_WIDTH;
    return SOTTO_OK;
}

static inline enum sotto_status chain_result(struct oracle *o, int slot, struct device *dev,
                                             struct oracle_result *out)
{
    const struct chain_slot *s = &((struct chain *)o)->slot[slot];
    const int64_t n = chain_targets(s->number);
    (void)dev;
    *out = (struct oracle_result){
        s->number == ((struct chain *)o)->nan_at ? NAN : s->loss * (double)n, n, 2 * n};
    return SOTTO_OK;
}

static const struct oracle_ops chain_ops = {.begin = chain_begin,
                                            .forward = chain_forward,
                                            .backward = chain_backward,
                                            .needs = chain_needs,
                                            .edge = chain_edge,
                                            .result = chain_result};

static inline enum sotto_status chain_open(struct chain *c, struct device *dev, struct worker *w,
                                           int stages, int slots, bool tied)
{
    *c = (struct chain){.base = {.ops = &chain_ops, .slots = slots, .rank = w->rank},
                        .worker = w,
                        .dev = dev,
                        .tied = tied,
                        .size = w->size,
                        .nan_at = -1};
    assert_true(stages <= CHAIN_STAGES && slots <= CHAIN_SLOTS);
    for (int k = 0; k < stages; k++) {
        char name[TABLE_NAME_ROOM];
        snprintf(name, sizeof name, "w%d", k);
        table_add(&c->table, name, (const int64_t[]){CHAIN_WIDTH, CHAIN_WIDTH, 0}, TABLE_ZERO, 0);
        snprintf(name, sizeof name, "b%d", k);
        table_add(&c->table, name, (const int64_t[]){CHAIN_WIDTH, 0}, TABLE_ZERO, 0);
        c->table.entry[2 * k].stage = c->table.entry[2 * k + 1].stage = k;
    }
    TRY(table_layout(&c->table, stages, 1));
    c->base.table = &c->table;
    for (int s = 0; s < slots; s++) {
        for (int k = 1; k < stages; k++) {
            struct chain_slot *at = &c->slot[s];
            TRY(buffer_init(&at->edge[k], dev, DTYPE_F32, CHAIN_WIDTH, MEMORY_ACTIVATIONS));
            TRY(buffer_init(&at->dedge[k], dev, DTYPE_F32, CHAIN_WIDTH, MEMORY_ACTIVATIONS));
        }
    }
    return SOTTO_OK;
}

static inline void chain_close(struct chain *c)
{
    for (int s = 0; s < c->base.slots; s++) {
        for (int k = 1; k < c->table.n_stage; k++) {
            buffer_free(&c->slot[s].edge[k]);
            buffer_free(&c->slot[s].dedge[k]);
        }
    }
    table_free(&c->table);
}

/* Parameters to begin with. */
static inline void chain_start(float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(0.8 * sin(2.1 * (double)i + 0.4));
}

#endif
