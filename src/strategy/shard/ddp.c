/* Data parallelism: every worker has all parameters, gradients are averaged over all workers, and
 * everybody makes the same step. The sum of a stage starts as soon as its backward is done and
 * overlaps the rest of backward.
 *
 * Alone (no mesh) it is plain training, which every method must equal when it runs with one worker.
 */
#include "strategy/shard/shard.h"

#include <stdlib.h>

#include "tensor/ops.h"

struct ddp {
    struct shard shard;
    struct buffer x;     /* fp32 truth                                */
    struct buffer theta; /* mixed: x rounded to bf16; fp32: not there */
    struct buffer g;
    struct optim optim;
};

static enum sotto_status sum_stage(void *arg)
{
    const struct stage_job *job = arg;
    const struct shard *s = job->shard;
    struct view g = s->g_stage[job->k];
    return comm_allreduce(s->mesh->lane_world, g, g, table_stage_count(s->oracle->table, job->k));
}

static enum sotto_status one_round(struct ddp *d, double lr, bool want_norm, struct round *out)
{
    struct shard *s = &d->shard;
    const struct ops *ops = s->dev->ops;
    const struct optim_config *c = d->optim.config;
    *out = (struct round){.grad_norm = -1};
    ops->fill(s->dev, d->g.view, d->g.count, 0);
    TRY(shard_accumulate(s, sum_stage, out)); /* g = sum_i grad f_i */
    double scale = shard_scale(s, out);
    if (c->clip > 0 || want_norm) {
        double squared = ops->sum_squares(s->dev, d->g.view, d->g.count) * scale * scale;
        TRY(shard_norm(c, squared, out, &scale));
    }
    optim_step(&d->optim, d->x.view, d->theta.view, d->g.view, lr, scale);
    s->next += s->config->accumulate;
    return device_check(s->dev);
}

static enum sotto_status run_round(struct strategy *s, double lr, bool want_norm, struct round *out)
{
    struct ddp *d = (struct ddp *)s;
    return shard_finish(&d->shard, one_round(d, lr, want_norm, out));
}

static enum sotto_status gather(struct strategy *s, const struct view **theta)
{
    *theta = ((struct ddp *)s)->shard.theta_stage;
    return SOTTO_OK;
}

static enum sotto_status export(struct strategy *s, float *flat) {
    struct ddp *d = (struct ddp *)s;
    d->shard.dev->ops->read(d->shard.dev, flat, d->x.view, d->x.count);
    return device_check(d->shard.dev);
}

static enum sotto_status import(struct strategy *s, const float *flat)
{
    struct ddp *d = (struct ddp *)s;
    d->shard.dev->ops->write(d->shard.dev, d->x.view, flat, d->x.count);
    if (d->theta.dev)
        d->shard.dev->ops->copy(d->shard.dev, d->theta.view, d->x.view, d->x.count);
    return device_check(d->shard.dev);
}

static enum sotto_status visit(struct strategy *s, struct state_visitor *v)
{
    struct ddp *d = (struct ddp *)s;
    return shard_visit(&d->shard, &d->optim, 0, 1, v);
}

static void free_ddp(struct strategy *s)
{
    struct ddp *d = (struct ddp *)s;
    optim_free(&d->optim);
    buffer_free(&d->x);
    buffer_free(&d->theta);
    buffer_free(&d->g);
    shard_free(&d->shard);
    free(d);
}

static const struct strategy_ops ddp_ops = {
    .name = "ddp",
    .round = run_round,
    .gather = gather,
    .export = export,
    .import = import,
    .visit = visit,
    .free = free_ddp,
};

enum sotto_status strategy_ddp(struct strategy **out, const struct strategy_config *config,
                               const struct optim_config *optim, struct oracle *oracle,
                               struct device *dev, struct mesh *mesh)
{
    const struct table *table = oracle->table;
    const size_t count = table_count(table);
    const bool mixed = config->precision == PRECISION_MIXED;
    const enum dtype type = mixed ? DTYPE_BF16 : DTYPE_F32;
    struct ddp *d = calloc(1, sizeof *d);
    *out = NULL;
    if (!d)
        return fail(SOTTO_ENOMEM, "no memory for the strategy");
    enum sotto_status st;
    TRY_DONE(shard_init(&d->shard, &ddp_ops, config, oracle, dev, mesh));
    TRY_DONE(
        buffer_init(&d->x, dev, DTYPE_F32, count, mixed ? MEMORY_OPTIMIZER : MEMORY_PARAMETERS));
    if (mixed)
        TRY_DONE(buffer_init(&d->theta, dev, type, count, MEMORY_PARAMETERS));
    TRY_DONE(buffer_init(&d->g, dev, type, count, MEMORY_GRADIENTS));
    TRY_DONE(optim_init(&d->optim, optim, dev, table, 0, 1));
    table_stages(table, mixed ? d->theta.view : d->x.view, d->shard.theta_stage);
    table_stages(table, d->g.view, d->shard.g_stage);
    *out = &d->shard.base;
done:
    if (st != SOTTO_OK)
        free_ddp(&d->shard.base);
    return st;
}
