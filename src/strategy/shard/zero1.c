/* ZeRO stage 1 (Rajbhandari et al. 2020): every worker of a group has all parameters and gradients,
 * but keeps the fp32 truth and the optimizer's state of its own slice only. Gradients are
 * reduce-scattered stage by stage during backward, each worker steps its slice, and the slices are
 * gathered. Across groups the slices are averaged
 * (`sync`). */
#include "strategy/shard/shard.h"

#include <stdlib.h>

#include "tensor/ops.h"

struct zero1 {
    struct shard shard;
    struct buffer theta, g; /* whole                        */
    struct buffer x;        /* fp32 truth of the own slices */
    struct comm *own;       /* the group: mesh->shard       */
    struct optim optim;
};

/* gbar_k of the own slice, left in its place in g. */
static enum sotto_status reduce_stage(void *arg)
{
    const struct stage_job *job = arg;
    const struct shard *s = job->shard;
    struct slice at = shard_slice(s, job->k);
    struct view g = s->g_stage[job->k], mine = view_at(g, at.in_stage);
    TRY(comm_reduce_scatter(s->mesh->lane_shard, mine, g,
                            table_stage_count(s->oracle->table, job->k)));
    return comm_allreduce(s->mesh->lane_replicate, mine, mine, at.count);
}

static enum sotto_status squared_norm(struct zero1 *z, double *squared)
{
    const struct shard *s = &z->shard;
    *squared = 0;
    for (int k = 0; k < s->oracle->table->n_stage; k++) {
        struct slice at = shard_slice(s, k);
        *squared += s->dev->ops->sum_squares(s->dev, view_at(s->g_stage[k], at.in_stage), at.count);
    }
    return comm_sum(z->own, squared, 1);
}

static enum sotto_status gather_stages(struct zero1 *z)
{
    const struct shard *s = &z->shard;
    for (int k = 0; k < s->oracle->table->n_stage; k++)
        TRY(comm_allgather(z->own, s->theta_stage[k],
                           view_at(s->theta_stage[k], shard_slice(s, k).in_stage),
                           table_stage_count(s->oracle->table, k)));
    return SOTTO_OK;
}

static enum sotto_status one_round(struct zero1 *z, double lr, bool want_norm, struct round *out)
{
    struct shard *s = &z->shard;
    const struct optim_config *c = z->optim.config;
    *out = (struct round){.grad_norm = -1};
    s->dev->ops->fill(s->dev, z->g.view, z->g.count, 0);
    TRY(shard_accumulate(s, reduce_stage, out));
    double scale = shard_scale(s, out);
    if (c->clip > 0 || want_norm) {
        double squared;
        TRY(squared_norm(z, &squared));
        TRY(shard_norm(c, squared * scale * scale, out, &scale));
    }
    for (int k = 0; k < s->oracle->table->n_stage; k++) {
        struct slice at = shard_slice(s, k);
        optim_step_part(&z->optim, at.in_own, at.in_own + at.count, view_at(z->x.view, at.in_own),
                        view_at(s->theta_stage[k], at.in_stage),
                        view_at(s->g_stage[k], at.in_stage), lr, scale);
    }
    optim_advance(&z->optim);
    s->next += s->config->accumulate;
    TRY(device_check(s->dev));
    return gather_stages(z);
}

static enum sotto_status run_round(struct strategy *s, double lr, bool want_norm, struct round *out)
{
    struct zero1 *z = (struct zero1 *)s;
    return shard_finish(&z->shard, one_round(z, lr, want_norm, out));
}

static enum sotto_status gather(struct strategy *s, const struct view **theta)
{
    *theta = ((struct zero1 *)s)->shard.theta_stage;
    return SOTTO_OK;
}

static enum sotto_status export(struct strategy *s, float *flat) {
    struct zero1 *z = (struct zero1 *)s; return shard_export(&z->shard, z->x.view, flat);
}

static enum sotto_status import(struct strategy *strategy, const float *flat)
{
    struct zero1 *z = (struct zero1 *)strategy;
    const struct shard *s = &z->shard;
    shard_import(s, z->x.view, flat);
    for (int k = 0; k < s->oracle->table->n_stage; k++) {
        struct slice at = shard_slice(s, k);
        s->dev->ops->copy(s->dev, view_at(s->theta_stage[k], at.in_stage),
                          view_at(z->x.view, at.in_own), at.count);
    }
    TRY(device_check(s->dev));
    return gather_stages(z);
}

static enum sotto_status visit(struct strategy *s, struct state_visitor *v)
{
    struct zero1 *z = (struct zero1 *)s;
    return shard_visit(&z->shard, &z->optim, z->shard.mesh->s, z->shard.mesh->n_s, v);
}

static void free_zero1(struct strategy *s)
{
    struct zero1 *z = (struct zero1 *)s;
    optim_free(&z->optim);
    buffer_free(&z->theta);
    buffer_free(&z->g);
    buffer_free(&z->x);
    shard_free(&z->shard);
    free(z);
}

static const struct strategy_ops zero1_ops = {
    .name = "zero1",
    .round = run_round,
    .gather = gather,
    .export = export,
    .import = import,
    .visit = visit,
    .free = free_zero1,
};

enum sotto_status strategy_zero1(struct strategy **out, const struct strategy_config *config,
                                 const struct optim_config *optim, struct oracle *oracle,
                                 struct device *dev, struct mesh *mesh)
{
    const struct table *table = oracle->table;
    const enum dtype type = config->precision == PRECISION_MIXED ? DTYPE_BF16 : DTYPE_F32;
    *out = NULL;
    TRY(shard_check(table, mesh));
    struct zero1 *z = calloc(1, sizeof *z);
    if (!z)
        return fail(SOTTO_ENOMEM, "no memory for the strategy");
    z->own = mesh->shard;
    enum sotto_status st;
    TRY_DONE(shard_init(&z->shard, &zero1_ops, config, oracle, dev, mesh));
    TRY_DONE(buffer_init(&z->theta, dev, type, table_count(table), MEMORY_PARAMETERS));
    TRY_DONE(buffer_init(&z->g, dev, type, table_count(table), MEMORY_GRADIENTS));
    TRY_DONE(buffer_init(&z->x, dev, DTYPE_F32, table_count(table) / (size_t)mesh->n_s,
                         MEMORY_OPTIMIZER));
    TRY_DONE(optim_init(&z->optim, optim, dev, table, mesh->s, mesh->n_s));
    table_stages(table, z->theta.view, z->shard.theta_stage);
    table_stages(table, z->g.view, z->shard.g_stage);
    *out = &z->shard.base;
done:
    if (st != SOTTO_OK)
        free_zero1(&z->shard.base);
    return st;
}
