/* Local SGD: groups step on their own and average their parameters every tau steps. The optimizer's
 * state is kept, not averaged. */
#include "strategy/method.h"

struct local_config {
    int64_t tau;
};

#define S struct local_config
static const struct option options[] = {
    OPTION_LONG(S, tau, "12", 1, 1e15, "steps between averages"),
};
#undef S

extern const struct method method_local;

static const struct local_config *own(const struct replicate *r)
{
    return method_own(r->is.config, &method_local);
}

static int64_t every(const void *own)
{
    return ((const struct local_config *)own)->tau;
}

static enum sotto_status step(struct replicate *r, const struct plan *plan, double scale)
{
    TRY(replicate_local_step(r, plan->lr, scale)); /* x <- Opt(x, gbar)     */
    if (!replicate_boundary(r, own(r)->tau))
        return SOTTO_OK;
    TRY(replicate_mean(r, r->is.across, r->x)); /* x <- mean over R      */
    r->apart = false;
    TRY(replicate_publish(r));
    return replicate_agree(r);
}

static const struct replicate_ops ops;

static enum sotto_status open(struct replicate **out, const struct replicate_setup *setup)
{
    return replicate_open_plain(out, setup, &ops);
}

static const struct replicate_ops ops = {
    .open = open,
    .step = step,
    .visit = replicate_visit,
    .free = replicate_free_plain,
};

const struct method method_local = {
    .name = "local",
    .axis = METHOD_REPLICATE,
    .about = "local SGD: groups step on their own and average their parameters every tau steps",
    METHOD_OPTIONS(struct local_config, options),
    .every = every,
    .every_key = "tau",
    .replicate = &ops,
};
