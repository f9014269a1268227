/* Synchronous replication: gradients are averaged over all groups in every step, stage by stage,
 * while backward runs (hybrid sharding). */
#include "strategy/method.h"

static enum sotto_status step(struct replicate *r, const struct plan *plan, double scale)
{
    return replicate_local_step(r, plan->lr, scale);
}

static const struct replicate_ops ops;

static enum sotto_status open(struct replicate **out, const struct replicate_setup *setup)
{
    return replicate_open_plain(out, setup, &ops);
}

static const struct replicate_ops ops = {
    .sums_gradient = true,
    .in_step = true,
    .open = open,
    .step = step,
    .visit = replicate_visit,
    .free = replicate_free_plain,
};

const struct method method_sync = {
    .name = "sync",
    .axis = METHOD_REPLICATE,
    .about = "gradients are averaged over all groups in every step",
    .replicate = &ops,
};
