/* DPU, delayed parameter update (Ren et al. 2021, as in ACCO, section 3): gradients of round t are
 * computed at theta(t) while the lane applies the gradients of round t-1, so every gradient is one
 * round stale.
 *
 *   computed           meanwhile in the lane
 *   g(t) at theta(t)   theta(t+1) = step(theta(t), sum g(t-1) / sum N(t-1))
 *
 * The first `warmup` rounds are undelayed: computed, then applied. */
#include "strategy/method.h"
#include "strategy/overlap/overlap.h"

struct dpu_config {
    struct overlap_config overlap;
    int64_t warmup;
};

static const struct option options[] = {
    OPTION_LONG(struct dpu_config, warmup, "0", 0, 1e15, "undelayed rounds at the beginning"),
    OVERLAP_REPLAY,
};

extern const struct method method_dpu;

static enum sotto_status dpu_apply(void *arg)
{
    struct overlap *o = arg;
    double scale;
    TRY(overlap_reduce(o, o->plan.want_norm, &scale));        /* sum g / sum N             */
    TRY(replicate_step(o->shard.replicate, &o->plan, scale)); /* theta <- step(theta, ...) */
    return overlap_gather(o);
}

/* Makes a round of the warm-up: the lane runs after the computing. */
static enum sotto_status dpu_round_undelayed(struct overlap *o, struct round *out)
{
    struct shard *s = &o->shard;
    struct lane *lane = s->is.mesh->lane;
    for (int i = 0; i < s->is.config->accumulate; i++)
        TRY(shard_gradient(s, s->next++, NULL));
    TRY(overlap_send(o));
    TRY(device_failed(s->is.dev));
    TRY(lane_start(lane, dpu_apply, o));
    TRY(lane_wait(lane));
    overlap_take(o);
    TRY(overlap_end(o, out));
    s->carried = false;
    return SOTTO_OK;
}

static enum sotto_status dpu_round(struct strategy *s, const struct plan *plan, struct round *out)
{
    struct overlap *o = (struct overlap *)s;
    const struct shard *is = &o->shard;
    const struct dpu_config *own = method_own(is->is.config, &method_dpu);
    const bool warm = !is->carried && plan->step < own->warmup; /* rounds of the whole run */
    TRY(overlap_begin(o, plan, !warm)); /* g(t-1): from the last round, or one micro-batch */
    if (overlap_idle(o))
        return overlap_sit_out(o, out);
    if (warm)
        return dpu_round_undelayed(o, out);
    TRY(overlap_send(o));
    TRY(overlap_compute(o, dpu_apply)); /* g(t) at theta(t)                            */
    overlap_take(o);                    /* theta(t+1)                                  */
    return overlap_end(o, out);
}

static const struct strategy_ops ops = {
    OVERLAP_OPS,
    .round = dpu_round,
    .gather = shard_theta,
    .visit = overlap_visit,
};

static enum sotto_status resolve(void *own, const struct strategy_config *config)
{
    const struct dpu_config *c = own;
    if (c->warmup > 0 && strategy_async(config))
        return fail(SOTTO_EINVAL,
                    "dpu.warmup = %lld counts rounds of all groups together, and with %s each "
                    "group has rounds of its own; set dpu.warmup = 0",
                    (long long)c->warmup, config->replicating->name);
    return overlap_resolve(own, config);
}

const struct method method_dpu = {
    .name = "dpu",
    .axis = METHOD_SHARD,
    .resolve = resolve,
    .dry_run = overlap_dry_run,
    .timed = overlap_timed,
    .about =
        "delayed parameter update: gradients are computed while the gradients of the round before "
        "are applied, so every gradient is one round stale",
    METHOD_OPTIONS(struct dpu_config, options),
    .shard = &ops,
};
