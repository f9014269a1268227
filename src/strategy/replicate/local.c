/* Local SGD: groups step on their own and average their parameters every tau steps. The optimizer's
 * state is kept, not averaged. */
#include "strategy/replicate/replicate.h"

static enum sotto_status step(struct replicate *r, const struct plan *plan, double scale)
{
    TRY(replicate_local_step(r, plan->lr, scale)); /* x <- Opt(x, gbar)     */
    if (!replicate_boundary(r, r->is.config->tau_steps))
        return SOTTO_OK;
    TRY(replicate_mean(r, r->is.across, r->x)); /* x <- mean over R      */
    r->apart = false;
    TRY(replicate_publish(r));
    return replicate_agree(r);
}

static enum sotto_status open(struct replicate **out, const struct replicate_setup *setup)
{
    return replicate_open_plain(out, setup, &replicate_local);
}

const struct replicate_ops replicate_local = {
    .name = "local",
    .open = open,
    .step = step,
    .visit = replicate_visit,
    .free = replicate_free_plain,
};
