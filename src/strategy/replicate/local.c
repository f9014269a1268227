/* Local SGD: groups step on their own and average their parameters every tau steps. Each group
 * keeps its optimizer state, which is not averaged. */
#include "strategy/method.h"
#include "strategy/replicate/replicate.h"

static const struct option options[] = {OPTION_TAU("steps between averages")};

static enum sotto_status step(struct replicate *r, const struct plan *plan, double scale)
{
    TRY(replicate_local_step(r, plan->lr, scale)); /* x <- Opt(x, gbar)     */
    if (!replicate_boundary(r, tau_every(replicate_options(r))))
        return SOTTO_OK;
    TRY(replicate_mean(r, r->is.across, r->x)); /* x <- mean over R      */
    r->diverged = false;
    TRY(replicate_publish(r));
    return replicate_agree(r);
}

static const struct replicate_ops ops = {.step = step};

const struct method method_local = {
    .name = "local",
    .axis = METHOD_REPLICATE,
    .about = "local SGD: groups step on their own and average their parameters every tau steps",
    METHOD_OPTIONS(struct tau_config, options),
    METHOD_EVERY_TAU,
    .replicate = &ops,
};
