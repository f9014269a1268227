/* ZeRO stage 1 (Rajbhandari et al. 2020): every worker of a group has all parameters and gradients,
 * but keeps the fp32 truth and the optimizer's state of its own slice only. Gradients are
 * reduce-scattered stage by stage during backward, each worker steps its slice, and the slices are
 * gathered. */
#include "strategy/method.h"
#include "strategy/shard/shard.h"

#include "tensor/ops.h"

/* Sums gbar_k of the own slice, in its place in g. */
static enum sotto_status zero1_reduce_stage(void *arg)
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

static enum sotto_status zero1_round(struct strategy *strategy, const struct plan *plan,
                                     struct round *out)
{
    struct shard *s = (struct shard *)strategy;
    *out = (struct round){.grad_norm = -1};
    TRY(shard_begin(s, plan, &s->g));
    TRY(shard_accumulate(s, zero1_reduce_stage));
    if (shard_abandoned(s, out))
        return device_check(s->is.dev);
    double scale = shard_scale(s, &s->counts);
    if (s->is.optim->clip > 0 || plan->want_norm)
        TRY(shard_clip(s, &s->on, shard_own_g(s), s->n_slice, s->is.mesh->shard, out, &scale));
    TRY(shard_step(s, plan, scale, out));
    return shard_end(s, plan);
}

static enum sotto_status import(struct strategy *s, const float *flat)
{
    TRY(shard_import(s, flat));
    return shard_complete_theta((struct shard *)s);
}

static enum sotto_status visit(struct strategy *strategy, struct state_visitor *v)
{
    struct shard *s = (struct shard *)strategy;
    TRY(shard_visit(s, v));
    if (state_loading(v))
        TRY(shard_complete_theta(s));
    return shard_visit_pending(s, v, s->g.view);
}

static enum sotto_status init(struct strategy *strategy, const struct strategy_setup *setup)
{
    struct shard *s = (struct shard *)strategy;
    s->later = s->completes = true;
    TRY(shard_init(s, setup, owned_slices));
    TRY(shard_vectors(s, table_count(setup->oracle->table), true));
    TRY(shard_replicate(s, NULL, shard_theta_at, shard_g_at));
    return shard_alone(s) ? SOTTO_OK : shard_wire_open(s, shard_largest(s));
}

static const struct strategy_ops ops = {
    .abandons = true,
    .bytes = sizeof(struct shard),
    .init = init,
    .round = zero1_round,
    .settle = shard_settle,
    .gather = shard_theta,
    .export = shard_export,
    .import = import,
    .visit = visit,
    .free = shard_free,
};

const struct method method_zero1 = {
    .name = "zero1",
    .axis = METHOD_SHARD,
    .about =
        "ZeRO stage 1: as ddp, but each worker of a group keeps the fp32 truth and the optimizer's "
        "state of its own slice only",
    .shard = &ops,
};
