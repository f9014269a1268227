/* DPU, delayed parameter update (Ren et al. 2021, as ACCO's section 3 has it): gradients of round t
 * are computed at theta(t) while the lane applies those of round t-1, so every gradient is one
 * round stale.
 *
 *   g(t) at theta(t)   beside   theta(t+1) = step(theta(t), sum g(t-1) / sum N(t-1))
 *
 * The first `warmup` rounds are undelayed: computed, then applied. */
#include "strategy/method.h"
#include "strategy/overlap/overlap.h"

struct dpu_config {
    struct overlap_config overlap;
    int64_t warmup;
};

static const struct option options[] = {
    OPTION_LONG(struct dpu_config, warmup, "0", 0, 1e15, "rounds without delay at first"),
    OVERLAP_REPLAY,
};

extern const struct method method_dpu;

static enum sotto_status apply(void *arg)
{
    struct overlap *o = arg;
    double scale;
    TRY(overlap_reduce(o, o->plan.want_norm, &scale));        /* sum g / sum N             */
    TRY(replicate_step(o->shard.replicate, &o->plan, scale)); /* theta <- step(theta, ...) */
    return overlap_gather(o);
}

/* The lane has nothing to hide behind. */
static enum sotto_status undelayed(struct overlap *o, struct round *out)
{
    struct shard *s = &o->shard;
    struct lane *lane = s->is.mesh->lane;
    for (int i = 0; i < s->is.config->accumulate; i++)
        TRY(shard_gradient(s, s->next++, NULL));
    TRY(overlap_send(o));
    TRY(device_failed(s->is.dev));
    TRY(lane_start(lane, apply, o));
    TRY(lane_wait(lane));
    overlap_take(o);
    TRY(overlap_end(o, out));
    s->carried = false;
    return SOTTO_OK;
}

static enum sotto_status run_round(struct strategy *s, const struct plan *plan, struct round *out)
{
    struct overlap *o = (struct overlap *)s;
    const struct shard *is = &o->shard;
    const struct dpu_config *own = method_own(is->is.config, &method_dpu);
    const bool warm = !is->carried && plan->step < own->warmup; /* rounds of the run */
    TRY(overlap_begin(o, plan, !warm)); /* g(t-1): the last round's, or one micro-batch */
    if (overlap_idle(o))
        return overlap_sit_out(o, out);
    if (warm)
        return undelayed(o, out);
    TRY(overlap_send(o));
    TRY(overlap_compute(o, apply)); /* g(t) at theta(t)                            */
    overlap_take(o);                /* theta(t+1)                                  */
    return overlap_end(o, out);
}

static const struct strategy_ops ops = {
    OVERLAP_OPS,
    .round = run_round,
    .gather = shard_theta,
    .visit = overlap_visit,
};

static enum sotto_status resolve(void *own, const struct strategy_config *config)
{
    const struct dpu_config *c = own;
    if (c->warmup > 0 && strategy_async(config))
        return fail(SOTTO_EINVAL,
                    "dpu.warmup = %lld counts rounds that all groups have in common, and with %s "
                    "they have none",
                    (long long)c->warmup, config->replicating->name);
    return overlap_resolve(own, config);
}

const struct method method_dpu = {
    .name = "dpu",
    .axis = METHOD_SHARD,
    .resolve = resolve,
    .trial = overlap_trial,
    .timed = overlap_timed,
    .about =
        "delayed parameter update: gradients are computed while the last round's are applied, so "
        "each is one round late",
    METHOD_OPTIONS(struct dpu_config, options),
    .shard = &ops,
};
