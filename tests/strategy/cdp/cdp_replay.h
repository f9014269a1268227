/* Cyclic data parallelism as one plain loop, written from the rule alone: every placement is
 * compared with its parameters. Any oracle with one slot will do. */
#ifndef SOTTO_TESTS_STRATEGY_CDP_CDP_REPLAY_H
#define SOTTO_TESTS_STRATEGY_CDP_CDP_REPLAY_H

#include "optim/optim.h"
#include "strategy/oracle.h"
#include "tensor/ops.h"

enum replay_rule { REPLAY_V2, REPLAY_V1, REPLAY_SYNC };

struct replay {
    enum replay_rule rule;
    int n;    /* stages = micro-batches a step */
    int size; /* workers that the oracle's data are shared by: number q is index q / size, rank q %
                 size */
    bool tokens;     /* weight = tokens */
    bool bf16;       /* what is computed with is rounded */
    bool alone;      /* a micro-batch's gradient is added up alone, and then to the sum */
    bool turns;      /* a stage's sums are added up by devices that take turns, as in mp */
    enum dtype sums; /* what gradients are added up in */
    double (*lr)(int64_t t);
    const struct optim_config *optim;

    /* theta_t, theta_{t-1} and the optimizer */
    struct buffer x, theta, before, g, apart;
    struct buffer turn;                  /* (n, count): the sums of each device */
    struct view *old, *new, *now, *grad; /* (n) */
    bool *shared;                        /* (n): other stages read this stage too, or `alone` */
    struct optim steps;
    int64_t t;
    double loss, norm; /* of the last step */
};

/* Whether stage j (from 1) of micro-batch i (from 1) is computed with theta_t. */
static inline bool replay_new(const struct replay *r, int i, int j)
{
    if (r->rule == REPLAY_SYNC)
        return true;
    return r->rule == REPLAY_V2 && j >= r->n - i + 1;
}

static inline void replay_open(struct replay *r, struct oracle *o, struct device *dev,
                               const float *start)
{
    const struct table *table = o->table;
    const size_t count = table_count(table), n = (size_t)r->n;
    const enum dtype type = r->bf16 ? DTYPE_BF16 : DTYPE_F32;
    assert_int_equal(table->n_stage, r->n);
    assert_ok(buffer_init(&r->x, dev, DTYPE_F32, count, MEMORY_PARAMETERS));
    assert_ok(buffer_init(&r->theta, dev, type, count, MEMORY_PARAMETERS));
    assert_ok(buffer_init(&r->before, dev, type, count, MEMORY_PARAMETERS));
    assert_ok(buffer_init(&r->g, dev, r->sums, count, MEMORY_GRADIENTS));
    assert_ok(buffer_init(&r->apart, dev, r->sums, count, MEMORY_GRADIENTS));
    if (r->turns)
        assert_ok(buffer_init(&r->turn, dev, r->sums, n * count, MEMORY_GRADIENTS));
    r->old = calloc(n, sizeof *r->old);
    r->new = calloc(n, sizeof *r->new);
    r->now = calloc(n, sizeof *r->now);
    r->grad = calloc(n, sizeof *r->grad);
    r->shared = calloc(n, sizeof *r->shared);
    bool needs[64];
    for (int k = 0; k < r->n; k++) {
        oracle_needs(o, k, needs);
        for (int j = 0; j < r->n; j++)
            r->shared[j] |= r->alone || (j != k && needs[j]);
    }
    table_stages(table, r->before.view, r->old);
    table_stages(table, r->theta.view, r->new);
    for (int k = 0; k < r->n; k++)
        r->grad[k] = view_at(r->shared[k] ? r->apart.view : r->g.view, table->stage_start[k]);
    dev->ops->write(dev, r->x.view, start, count);
    dev->ops->copy(dev, r->theta.view, r->x.view, count);
    dev->ops->copy(dev, r->before.view, r->x.view, count); /* theta_{-1} = theta_0 */
    assert_ok(optim_init(&r->steps, r->optim, dev, table, NULL, MEMORY_OPTIMIZER));
}

static inline void replay_close(struct replay *r)
{
    optim_free(&r->steps);
    buffer_free(&r->x);
    buffer_free(&r->theta);
    buffer_free(&r->before);
    buffer_free(&r->g);
    buffer_free(&r->apart);
    buffer_free(&r->turn);
    free(r->old);
    free(r->new);
    free(r->now);
    free(r->grad);
    free(r->shared);
}

static inline struct view replay_turn(const struct replay *r, const struct table *table, int k,
                                      int i)
{
    const size_t device = (size_t)(i % (r->n - k));
    return view_at(r->turn.view, device * r->g.count + table->stage_start[k]);
}

/* Sums with stage k on n - k devices. Each device adds up its own micro-batches; in the last turn
 * of a step each adds the sum of the device before. */
static inline void replay_take_turns(struct replay *r, const struct table *table,
                                     struct device *dev, int i)
{
    for (int k = 0; k < r->n; k++) {
        const size_t count = table_stage_count(table, k);
        r->grad[k] = replay_turn(r, table, k, i);
        if (i < r->n - k)
            dev->ops->fill(dev, r->grad[k], count, 0);
        if (i > k)
            dev->ops->axpy(dev, r->grad[k], 1, replay_turn(r, table, k, i - 1), count);
    }
}

static inline void replay_end_turns(struct replay *r, const struct table *table, struct device *dev)
{
    for (int k = 0; k < r->n; k++)
        dev->ops->copy(dev, view_at(r->g.view, table->stage_start[k]), r->grad[k],
                       table_stage_count(table, k));
}

/* theta_{t+1} = theta_t - lr_t / N sum_i grad f_i(theta used by i). The gradient of a stage with
 * several readers is summed over the readers first, and added once. */
static inline void replay_step(struct replay *r, struct oracle *o, struct device *dev)
{
    const struct table *table = o->table;
    double targets = 0;
    dev->ops->fill(dev, r->g.view, r->g.count, 0);
    r->loss = 0;
    for (int i = 1; i <= r->n; i++) {
        const int64_t q = r->t * r->n + i - 1;
        struct oracle_result result;
        for (int k = 0; k < r->n; k++)
            r->now[k] = replay_new(r, i, k + 1) ? r->new[k] : r->old[k];
        dev->ops->fill(dev, r->apart.view, r->apart.count, 0);
        if (r->turns)
            replay_take_turns(r, table, dev, i - 1);
        assert_ok(oracle_begin(o, 0, q / r->size, (int)(q % r->size), r->tokens));
        for (int k = 0; k < r->n; k++)
            assert_ok(oracle_forward(o, 0, k, r->now));
        for (int k = r->n - 1; k >= 0; k--)
            assert_ok(oracle_backward(o, 0, k, r->now, r->grad));
        for (int k = 0; k < r->n; k++)
            if (r->shared[k])
                dev->ops->axpy(dev, view_at(r->g.view, table->stage_start[k]), 1, r->grad[k],
                               table_stage_count(table, k));
        assert_ok(oracle_result(o, 0, NULL, &result));
        r->loss += result.loss;
        targets += (double)result.targets;
    }
    r->loss /= targets;
    if (r->turns)
        replay_end_turns(r, table, dev);
    dev->ops->copy(dev, r->before.view, r->theta.view, r->theta.count);
    double scale = 1 / (r->tokens ? targets : r->n);
    const struct vector_pair all = {.x = r->g.view, .count = r->g.count};
    r->norm = sqrt(dev->ops->sum_squares(dev, &all, 1, NULL)) * scale;
    scale *= optim_clip(r->optim, r->norm * r->norm);
    optim_step(&r->steps, r->x.view, r->theta.view, r->g.view, r->lr(r->t), scale);
    r->t++;
    assert_ok(device_check(dev));
}

#endif
