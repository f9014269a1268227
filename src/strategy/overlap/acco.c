/* ACCO, accumulate while you communicate (Nabli et al. 2024, algorithm 1). A round has two halves.
 * In each half gradients are computed while the lane reduces earlier ones:
 *
 *             computed                  meanwhile in the lane
 *   half 1    g at theta(t)             est(t+1)   = peek(theta(t), sum gt / sum Nt)
 *   half 2    the next gt at est(t+1)   theta(t+1) = step(theta(t), sum g+gt / sum Nn+Nt)
 *
 * No gradient is staler than the half batch that the estimate was made of. The tentative step is a
 * peek: the optimizer's state does not move. */
#include "strategy/method.h"
#include "strategy/overlap/overlap.h"

static enum sotto_status estimate_job(void *arg)
{
    struct overlap *o = arg;
    double scale;
    TRY(overlap_reduce(o, false, &scale));                      /* sum gt / sum Nt            */
    TRY(replicate_peek(o->shard.replicate, o->plan.lr, scale)); /* est <- peek(theta, ...)    */
    return overlap_gather(o);
}

static enum sotto_status step_job(void *arg)
{
    struct overlap *o = arg;
    double scale;
    TRY(overlap_reduce(o, o->plan.want_norm, &scale));        /* sum (g+gt) / sum (Nn+Nt)   */
    TRY(replicate_step(o->shard.replicate, &o->plan, scale)); /* theta <- step(theta, ...)  */
    return overlap_gather(o);
}

static enum sotto_status acco_round(struct strategy *s, const struct plan *plan, struct round *out)
{
    struct overlap *o = (struct overlap *)s;
    TRY(overlap_begin(o, plan, true)); /* gt, Nt: from the last round, or one micro-batch */
    if (overlap_idle(o))
        return overlap_sit_out(o, out);
    TRY(overlap_send_copy(o));
    TRY(overlap_compute(o, estimate_job)); /* g at theta(t), on top of gt: Nn + Nt            */
    overlap_take(o);                       /* est(t+1)                                        */
    TRY(overlap_send(o));
    TRY(overlap_compute(o, step_job)); /* the next gt at est(t+1)                         */
    overlap_take(o);                   /* theta(t+1)                                      */
    return overlap_end(o, out);
}

static const struct strategy_ops ops = {
    OVERLAP_OPS,
    .round = acco_round,
    .gather = shard_theta,
    .visit = overlap_visit,
};

const struct method method_acco = {
    .name = "acco",
    OVERLAP_METHOD,
    .about =
        "accumulate while you communicate: two half-rounds, the second of which computes at an "
        "estimate of the next parameters, so that communication is hidden without delay",
    METHOD_OPTIONS(struct overlap_config, overlap_options),
    .shard = &ops,
};
