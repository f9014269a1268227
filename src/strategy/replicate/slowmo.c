/* SlowMo (Wang et al. 2020): local steps, then a step with slow momentum from the parameters at the
 * start of the outer round. */
#include "strategy/method.h"
#include "strategy/replicate/replicate.h"

#include "tensor/ops.h"

#define S struct momentum_config
static const struct option options[] = {
    OPTION_TAU("steps between averages"),
    OPTION_REAL(S, alpha, "1", 0, 100, "outer learning rate"),
    OPTION_REAL(S, beta, "0.5", 0, 1, "outer momentum"),
};
#undef S

struct slowmo {
    struct replicate base;
    struct buffer x0; /* parameters at the start of the outer round */
    struct buffer m;  /* slow momentum                              */
};

static void anchor(struct replicate *r)
{
    struct slowmo *s = (struct slowmo *)r;
    r->is.dev->ops->copy(r->is.dev, s->x0.view, r->x, r->count);
}

/* Makes the outer step from x0. x is xbar before the call and the next x0 after it. */
static enum sotto_status slowmo_outer_step(struct slowmo *s, double inner_lr)
{
    struct replicate *r = &s->base;
    const struct momentum_config *c = replicate_options(r);
    const struct work *on = &r->on;
    const struct view m = s->m.view, x0 = s->x0.view;
    const float lr = (float)inner_lr, alpha = (float)c->alpha;
    TRY(work_scale(on, m, (float)c->beta, r->count));
    if (replicate_divides(inner_lr)) {
        TRY(work_axpy(on, m, 1 / lr, x0, r->count));
        TRY(work_axpy(on, m, -1 / lr, r->x, r->count));   /* m <- b m + (x0 - xbar)/lr          */
        TRY(work_axpy(on, x0, -alpha * lr, m, r->count)); /* x0 <- x0 - a lr m                */
    } else { /* limit lr -> 0: lr m -> x0 - xbar, and m gains 0                               */
        TRY(work_scale(on, x0, 1 - alpha, r->count));
        TRY(work_axpy(on, x0, alpha, r->x, r->count)); /* x0 <- x0 - a (x0 - xbar)            */
    }
    return work_copy(on, r->x, x0, r->count); /* x <- x0 */
}

static enum sotto_status step(struct replicate *r, const struct plan *plan, double scale)
{
    struct slowmo *s = (struct slowmo *)r;
    const struct momentum_config *c = replicate_options(r);
    TRY(replicate_local_step(r, plan->lr, scale));
    if (!replicate_boundary(r, c->meets.tau))
        return SOTTO_OK;
    TRY(replicate_mean(r, r->is.across, r->x)); /* xbar */
    TRY(slowmo_outer_step(s, plan->lr));
    r->diverged = false;
    TRY(replicate_publish(r));
    return replicate_agree(r);
}

static enum sotto_status visit(struct replicate *r, struct state_visitor *v)
{
    struct slowmo *s = (struct slowmo *)r;
    TRY(replicate_visit(r, v));
    if (!r->from.same)
        return SOTTO_OK;
    TRY(replicate_visit_vector(r, v, "outer.x0", &s->x0));
    return replicate_visit_vector(r, v, "outer.m", &s->m);
}

static void free_slowmo(struct replicate *r)
{
    struct slowmo *s = (struct slowmo *)r;
    buffer_free(&s->x0);
    buffer_free(&s->m);
}

static enum sotto_status init(struct replicate *r)
{
    struct slowmo *s = (struct slowmo *)r;
    TRY(replicate_buffer(r, &s->x0, MEMORY_OUTER));
    return replicate_buffer(r, &s->m, MEMORY_OUTER);
}

static const struct replicate_ops ops = {
    .bytes = sizeof(struct slowmo),
    .init = init,
    .anchor = anchor,
    .step = step,
    .visit = visit,
    .free = free_slowmo,
};

const struct method method_slowmo = {
    .name = "slowmo",
    .axis = METHOD_REPLICATE,
    .about = "SlowMo: local steps, then a step with slow momentum from the start of the round",
    METHOD_OPTIONS(struct momentum_config, options),
    METHOD_EVERY_TAU,
    .replicate = &ops,
};
