/* Data parallelism: every worker of a group has all parameters, gradients are averaged, and all
 * workers make the same step. The sum of a stage starts as soon as the stage's backward is done and
 * overlaps the rest of backward.
 *
 * With one worker this is plain training, which every method must equal with one worker. */
#include "strategy/method.h"
#include "strategy/shard/shard.h"

#include "tensor/ops.h"

/* Sums over all workers if the replicate method sums gradients, else over the group. */
static enum sotto_status ddp_sum_stage(void *arg)
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

static enum sotto_status ddp_round(struct strategy *strategy, const struct plan *plan,
                                   struct round *out)
{
    struct shard *s = (struct shard *)strategy;
    const struct vector_pair g = {.x = s->g.view, .count = s->g.count};
    *out = (struct round){.grad_norm = -1};
    TRY(shard_begin(s, plan, &s->g));
    TRY(shard_accumulate(s, ddp_sum_stage)); /* g = sum_i grad f_i */
    if (shard_abandoned(s, out))
        return device_check(s->is.dev);
    double scale = shard_scale(s, &s->counts);
    if (s->is.optim->clip > 0 || plan->want_norm)
        TRY(shard_clip(s, &s->on, &g, 1, NULL, out, &scale));
    TRY(shard_step(s, plan, scale, out)); /* theta <- theta - lr ... */
    return shard_end(s, plan);
}

static enum sotto_status visit(struct strategy *strategy, struct state_visitor *v)
{
    struct shard *s = (struct shard *)strategy;
    TRY(shard_visit(s, v));
    return shard_visit_pending(s, v, s->g.view);
}

static enum sotto_status init(struct strategy *strategy, const struct strategy_setup *setup)
{
    struct shard *s = (struct shard *)strategy;
    s->later = true;
    TRY(shard_init(s, setup, owned_all));
    TRY(shard_vectors(s, s->own.count, false));
    TRY(shard_replicate(s, NULL, s->theta.dev ? shard_theta_at : NULL, shard_g_at));
    return shard_alone(s) ? SOTTO_OK : shard_wire_open(s, shard_largest(s));
}

static const struct strategy_ops ops = {
    .owns_all = true,
    .abandons = true,
    .bytes = sizeof(struct shard),
    .init = init,
    .round = ddp_round,
    .settle = shard_settle,
    .gather = shard_theta,
    .export = shard_export,
    .import = shard_import,
    .visit = visit,
    .free = shard_free,
};

const struct method method_ddp = {
    .name = "ddp",
    .axis = METHOD_SHARD,
    .about =
        "data parallelism: every worker of a group has all parameters, and gradients are averaged "
        "while backward runs",
    .shard = &ops,
};
