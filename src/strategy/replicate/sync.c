/* Synchronous replication (hybrid sharding): gradients are averaged over all groups in every step,
 * stage by stage, in parallel with backward. */
#include "strategy/method.h"
#include "strategy/replicate/replicate.h"

static enum sotto_status step(struct replicate *r, const struct plan *plan, double scale)
{
    return replicate_local_step(r, plan->lr, scale);
}

static const struct replicate_ops ops = {.sums_gradient = true, .in_step = true, .step = step};

const struct method method_sync = {
    .name = "sync",
    .axis = METHOD_REPLICATE,
    .about = "gradients are averaged over all groups in every step",
    .replicate = &ops,
};
