/* ZeRO stage 1 (Rajbhandari et al. 2020): every worker of a group has all parameters and gradients,
 * but keeps the fp32 truth and the optimizer's state of its own slice only. Gradients are
 * reduce-scattered stage by stage during backward, each worker steps its slice, and the slices are
 * gathered. */
#include "strategy/method.h"
#include "strategy/shard/shard.h"

#include <stdlib.h>

#include "tensor/ops.h"

struct zero1 {
    struct shard shard;
    struct buffer theta, g; /* whole                        */
    struct buffer x;        /* fp32 truth of the own slices */
};

/* gbar_k of the own slice, left in its place in g. */
static enum sotto_status reduce_stage(void *arg)
{
    const struct stage_job *job = arg;
    struct shard *s = job->shard;
    const struct slice at = shard_slice(s, job->k);
    const size_t count = table_stage_count(s->is.oracle->table, job->k);
    struct view g = s->g_stage[job->k], sent;
    TRY(shard_narrow(s, g, count, &sent));
    struct view mine = view_at(sent, at.in_stage);
    TRY(comm_reduce_scatter(s->is.mesh->lane_shard, mine, sent, count));
    TRY(replicate_sum(s->replicate, s->is.mesh->lane_replicate, mine, at.count));
    return shard_widen(s, view_at(g, at.in_stage), mine, at.count);
}

static enum sotto_status squared_norm(struct zero1 *z, double *squared)
{
    const struct shard *s = &z->shard;
    const int n = s->is.oracle->table->n_stage;
    for (int k = 0; k < n; k++) {
        const struct slice at = shard_slice(s, k);
        s->own_g[k] = (struct pair){.x = view_at(s->g_stage[k], at.in_stage), .count = at.count};
    }
    TRY(work_sum_squares(&s->on, s->own_g, n, squared));
    return comm_sum(s->is.mesh->shard, squared, 1);
}

static enum sotto_status gather_stages(struct zero1 *z)
{
    struct shard *s = &z->shard;
    for (int k = 0; k < s->is.oracle->table->n_stage; k++)
        TRY(shard_complete(s, s->is.mesh->shard, k, s->theta_stage[k]));
    return SOTTO_OK;
}

static enum sotto_status run_round(struct strategy *strategy, const struct plan *plan,
                                   struct round *out)
{
    struct zero1 *z = (struct zero1 *)strategy;
    struct shard *s = &z->shard;
    struct device *dev = s->is.dev;
    *out = (struct round){.grad_norm = -1};
    TRY(shard_begin(s, plan, &z->g));
    TRY(shard_accumulate(s, reduce_stage));
    if (shard_abandoned(s, out))
        return device_check(dev);
    double scale = shard_scale(s, &s->counts);
    if (s->is.optim->clip > 0 || plan->want_norm) {
        double squared;
        TRY(squared_norm(z, &squared));
        TRY(shard_norm(s, squared * scale * scale, out, &scale));
    }
    TRY(shard_step(s, plan, scale, out));
    TRY(gather_stages(z));
    return device_check(dev);
}

static enum sotto_status import(struct strategy *s, const float *flat)
{
    struct zero1 *z = (struct zero1 *)s;
    TRY(shard_import(&z->shard, flat));
    return gather_stages(z);
}

static enum sotto_status visit(struct strategy *s, struct state_visitor *v)
{
    struct zero1 *z = (struct zero1 *)s;
    TRY(shard_visit(&z->shard, v));
    if (state_loading(v))
        TRY(gather_stages(z));
    return shard_visit_pending(&z->shard, v, z->g.view);
}

static void free_zero1(struct strategy *s)
{
    struct zero1 *z = (struct zero1 *)s;
    buffer_free(&z->theta);
    buffer_free(&z->g);
    buffer_free(&z->x);
    shard_free(&z->shard);
    free(z);
}

static const struct strategy_ops ops;

static enum sotto_status open(struct strategy **out, const struct strategy_setup *setup)
{
    const struct table *table = setup->oracle->table;
    struct device *dev = setup->dev;
    const enum dtype type = setup->config->precision == PRECISION_MIXED ? DTYPE_BF16 : DTYPE_F32;
    struct zero1 *z = calloc(1, sizeof *z);
    if (!z)
        return fail(SOTTO_ENOMEM, "no memory for the strategy");
    enum sotto_status st;
    TRY_DONE(shard_init(&z->shard, &ops, setup, owned_slices));
    TRY_DONE(buffer_init(&z->theta, dev, type, table_count(table), MEMORY_PARAMETERS));
    TRY_DONE(buffer_init(&z->g, dev, strategy_grad_type(setup->config), table_count(table),
                         MEMORY_GRADIENTS));
    TRY_DONE(buffer_init(&z->x, dev, DTYPE_F32, z->shard.own.count, MEMORY_OPTIMIZER));
    table_stages(table, z->theta.view, z->shard.theta_stage);
    table_stages(table, z->g.view, z->shard.g_stage);
    TRY_DONE(shard_replicate(&z->shard, z->x.view, NULL, shard_theta_at, shard_g_at));
    if (!shard_alone(&z->shard))
        TRY_DONE(shard_wire_open(&z->shard, shard_largest(&z->shard)));
    *out = &z->shard.base;
done:
    if (st != SOTTO_OK)
        free_zero1(&z->shard.base);
    return st;
}

static const struct strategy_ops ops = {
    .abandons = true,
    .open = open,
    .round = run_round,
    .gather = shard_theta,
    .export = shard_export,
    .import = import,
    .visit = visit,
    .free = free_zero1,
};

const struct method method_zero1 = {
    .name = "zero1",
    .axis = METHOD_SHARD,
    .about =
        "ZeRO stage 1: as ddp, but each worker of a group keeps the fp32 truth and the optimizer's "
        "state of its own slice only",
    .shard = &ops,
};
