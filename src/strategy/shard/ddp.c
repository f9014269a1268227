/* Data parallelism: every worker of a group has all parameters, gradients are averaged, and
 * everybody makes the same step. The sum of a stage starts as soon as its backward is done and
 * overlaps the rest of backward.
 *
 * With one worker it is plain training, which every method must equal when it runs alone. */
#include "strategy/method.h"
#include "strategy/shard/shard.h"

#include <stdlib.h>

#include "tensor/ops.h"

struct ddp {
    struct shard shard;
    struct buffer x;     /* fp32 truth                                */
    struct buffer theta; /* mixed: x rounded to bf16; fp32: not there */
    struct buffer g;
};

/* One sum over everybody where the groups' gradients are summed, else over the group. */
static enum sotto_status sum_stage(void *arg)
{
    const struct stage_job *job = arg;
    struct shard *s = job->shard;
    const struct mesh *mesh = s->is.mesh;
    const size_t count = table_stage_count(s->is.oracle->table, job->k);
    struct view g = s->g_stage[job->k], sent;
    TRY(shard_narrow(s, g, count, &sent));
    TRY(comm_allreduce(s->replicate->ops->sums_gradient ? mesh->lane_world : mesh->lane_shard, sent,
                       sent, count));
    return shard_widen(s, g, sent, count);
}

static enum sotto_status run_round(struct strategy *strategy, const struct plan *plan,
                                   struct round *out)
{
    struct ddp *d = (struct ddp *)strategy;
    struct shard *s = &d->shard;
    struct device *dev = s->is.dev;
    *out = (struct round){.grad_norm = -1};
    TRY(shard_begin(s, plan, &d->g));
    TRY(shard_accumulate(s, sum_stage)); /* g = sum_i grad f_i */
    if (shard_abandoned(s, out))
        return device_check(dev);
    double scale = shard_scale(s, &s->counts);
    if (s->is.optim->clip > 0 || plan->want_norm) {
        double squared;
        const struct pair g = {.x = d->g.view, .count = d->g.count};
        TRY(work_sum_squares(&s->on, &g, 1, &squared));
        TRY(shard_norm(s, squared * scale * scale, out, &scale));
    }
    TRY(shard_step(s, plan, scale, out)); /* theta <- theta - lr ... */
    return device_check(dev);
}

static enum sotto_status import(struct strategy *s, const float *flat)
{
    return shard_import((struct shard *)s, flat);
}

static enum sotto_status visit(struct strategy *s, struct state_visitor *v)
{
    struct ddp *d = (struct ddp *)s;
    TRY(shard_visit(&d->shard, v));
    return shard_visit_pending(&d->shard, v, d->g.view);
}

static void free_ddp(struct strategy *s)
{
    struct ddp *d = (struct ddp *)s;
    buffer_free(&d->x);
    buffer_free(&d->theta);
    buffer_free(&d->g);
    shard_free(&d->shard);
    free(d);
}

static const struct strategy_ops ops;

static enum sotto_status open(struct strategy **out, const struct strategy_setup *setup)
{
    const struct table *table = setup->oracle->table;
    struct device *dev = setup->dev;
    const size_t count = table_count(table);
    const bool mixed = setup->config->precision == PRECISION_MIXED;
    struct ddp *d = calloc(1, sizeof *d);
    if (!d)
        return fail(SOTTO_ENOMEM, "no memory for the strategy");
    enum sotto_status st;
    TRY_DONE(shard_init(&d->shard, &ops, setup, owned_all));
    TRY_DONE(
        buffer_init(&d->x, dev, DTYPE_F32, count, mixed ? MEMORY_OPTIMIZER : MEMORY_PARAMETERS));
    if (mixed)
        TRY_DONE(buffer_init(&d->theta, dev, DTYPE_BF16, count, MEMORY_PARAMETERS));
    TRY_DONE(buffer_init(&d->g, dev, strategy_grad_type(setup->config), count, MEMORY_GRADIENTS));
    table_stages(table, mixed ? d->theta.view : d->x.view, d->shard.theta_stage);
    table_stages(table, d->g.view, d->shard.g_stage);
    TRY_DONE(
        shard_replicate(&d->shard, d->x.view, NULL, mixed ? shard_theta_at : NULL, shard_g_at));
    if (!shard_alone(&d->shard))
        TRY_DONE(shard_wire_open(&d->shard, shard_largest(&d->shard)));
    *out = &d->shard.base;
done:
    if (st != SOTTO_OK)
        free_ddp(&d->shard.base);
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
    .free = free_ddp,
};

const struct method method_ddp = {
    .name = "ddp",
    .axis = METHOD_SHARD,
    .about =
        "data parallelism: every worker of a group has all parameters, and gradients are averaged "
        "while backward runs",
    .shard = &ops,
};
