/* Synchronous replication: gradients are averaged over all groups in every step, stage by stage,
 * while backward runs (hybrid sharding). */
#include "strategy/replicate/replicate.h"

#include <stdlib.h>

static enum sotto_status step(struct replicate *r, const struct plan *plan, double scale)
{
    return replicate_local_step(r, plan->lr, scale);
}

static void free_sync(struct replicate *r)
{
    replicate_free(r);
    free(r);
}

static enum sotto_status open(struct replicate **out, const struct replicate_setup *setup)
{
    struct replicate *r = calloc(1, sizeof *r);
    if (!r)
        return fail(SOTTO_ENOMEM, "no memory for the replicate method");
    enum sotto_status st = replicate_init(r, &replicate_sync, setup);
    if (st != SOTTO_OK)
        free_sync(r);
    else
        *out = r;
    return st;
}

const struct replicate_ops replicate_sync = {
    .name = "sync",
    .averages = true,
    .open = open,
    .step = step,
    .visit = replicate_visit,
    .free = free_sync,
};
