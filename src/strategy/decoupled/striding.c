/* Striding replication (From et al. 2025): in every step the groups exchange every n-th element of
 * their momenta, starting one element later in each step, so that n steps visit all elements. */
#include "strategy/decoupled/selection.h"

#include <math.h>

#include "base/log.h"

enum phase { PHASE_MOVING, PHASE_FIXED };
static const char *const phases[] = {"moving", "fixed", NULL};

struct striding_config {
    struct decoupled_config decoupled;
    double rate;
    int phase;      /* enum phase */
    int64_t stride; /* 1 / rate, set by resolve */
};

#define S struct striding_config
static const struct option options[] = {
    OPTION_REAL(S, rate, "0.03125", 1e-12, 1,
                "share of the elements that a step exchanges: 1/n, n an integer"),
    OPTION_ENUM(S, phase, "moving", phases,
                "moving: step t exchanges elements t mod n, t mod n + n, ...; fixed: always "
                "elements 0, n, ..."),
    DECOUPLED_OPTIONS,
    MESSAGE_OPTION,
};
#undef S

static enum sotto_status resolve(void *own, const struct strategy_config *config)
{
    struct striding_config *c = own;
    const double stride = round(1 / c->rate);
    TRY(decoupled_resolve(own, config));
    if (fabs(stride * c->rate - 1) > 5e-6) /* six digits: 0.333333 is a third */
        return fail(SOTTO_EINVAL,
                    "striding.rate = %g is not 1/n of an integer n: %.10g and %.10g are next to it",
                    c->rate, 1 / ceil(1 / c->rate), 1 / floor(1 / c->rate));
    c->stride = (int64_t)stride;
    return SOTTO_OK;
}

static void warn_rate(const void *own, const struct optim_config *optim, size_t elements)
{
    (void)optim;
    const struct striding_config *c = own;
    const int64_t n = c->stride, most = (int64_t)elements;
    if (n <= most)
        return;
    if (c->phase == PHASE_FIXED)
        log_warn("striding.rate = 1/%lld of the %lld elements that a worker owns: only the first "
                 "element is ever exchanged",
                 (long long)n, (long long)most);
    else
        log_warn("striding.rate = 1/%lld of the %lld elements that a worker owns: of %lld steps "
                 "%lld exchange nothing",
                 (long long)n, (long long)most, (long long)n, (long long)(n - most));
}

static enum sotto_status step(struct replicate *r, const struct plan *plan, double scale)
{
    const struct striding_config *c = replicate_options(r);
    struct picks p = {.stride = (size_t)c->stride};
    p.first = c->phase == PHASE_MOVING ? (size_t)(plan->step % c->stride) : 0;
    return selection_step((struct selection *)r, plan, scale, p, view_none);
}

static enum sotto_status init(struct replicate *r)
{
    const struct striding_config *c = replicate_options(r);
    return selection_init(r, update_value_bytes(&c->decoupled.update) * c->rate,
                          (r->count + (size_t)c->stride - 1) / (size_t)c->stride);
}

static const struct replicate_ops ops = {
    .in_step = true,
    .bytes = sizeof(struct selection),
    .init = init,
    .step = step,
    .ready = decoupled_ready,
    .visit = decoupled_visit,
    .free = selection_free,
};

const struct method method_striding = {
    .name = "striding",
    .axis = METHOD_REPLICATE,
    .about = "groups exchange every n-th element of their momenta, from the next element on in "
             "each step",
    METHOD_OPTIONS(struct striding_config, options),
    METHOD_ONLY(decoupled_rules),
    .resolve = resolve,
    .optimizer = decoupled_optimizer,
    .optimizer_key = "base",
    .warn = warn_rate,
    .replicate = &ops,
};
