/* The method of docs/internals/adding-a-method.md: groups are in step,
 * since the method sums the gradient itself. */
#include "strategy/method.h"
#include "strategy/replicate/replicate.h"

struct toy_config {
    double gain;
};

static const struct option options[] = {
    OPTION_REAL(struct toy_config, gain, "1", 0, 100, "what the gradient is multiplied by"),
};

static enum sotto_status resolve(void *own, const struct strategy_config *config)
{
    const struct toy_config *c = own;
    if (c->gain == 0 && config->groups > 1)
        return fail(SOTTO_EINVAL, "toy.gain = 0 leaves %d groups where they are", config->groups);
    return SOTTO_OK;
}

static enum sotto_status step(struct replicate *r, const struct plan *plan, double scale)
{
    const struct toy_config *c = replicate_options(r);
    for (int i = 0; i < r->is.n_part; i++) {
        const struct part *p = &r->is.part[i];
        TRY(comm_allreduce(r->is.across, p->g, p->g, p->end - p->begin));
    }
    return replicate_local_step(r, plan->lr, c->gain * scale / r->is.mesh->n_r);
}

static const struct replicate_ops ops = {.in_step = true, .step = step};

extern const struct method method_toy;
const struct method method_toy = {
    .name = "toy",
    .axis = METHOD_REPLICATE,
    .about = "averages the gradient between the groups in every step, after backward",
    METHOD_OPTIONS(struct toy_config, options),
    .resolve = resolve,
    .replicate = &ops,
};
