/* SlowMo (Wang et al. 2020): local steps, then a step with slow momentum from where they all began.
 */
#include "strategy/method.h"

#include <stdlib.h>

#include "tensor/ops.h"

struct slowmo_config {
    int64_t tau;
    double alpha, beta;
};

#define S struct slowmo_config
static const struct option options[] = {
    OPTION_LONG(S, tau, "12", 1, 1e15, "steps between averages"),
    OPTION_REAL(S, alpha, "1", 0, 100, "outer learning rate"),
    OPTION_REAL(S, beta, "0.5", 0, 1, "outer momentum"),
};
#undef S

extern const struct method method_slowmo;

static const struct slowmo_config *own(const struct replicate *r)
{
    return method_own(r->is.config, &method_slowmo);
}

static int64_t every(const void *own)
{
    return ((const struct slowmo_config *)own)->tau;
}

struct slowmo {
    struct replicate base;
    struct buffer x0; /* where this outer round began */
    struct buffer m;  /* slow momentum                */
};

static void anchor(struct replicate *r)
{
    struct slowmo *s = (struct slowmo *)r;
    r->is.dev->ops->copy(r->is.dev, s->x0.view, r->x, r->count);
}

/* x holds xbar, and then the next x0. */
static enum sotto_status outer_step(struct slowmo *s, double inner_lr)
{
    struct replicate *r = &s->base;
    const struct slowmo_config *c = own(r);
    const struct work *on = &r->on;
    const struct view m = s->m.view, x0 = s->x0.view;
    const float lr = (float)inner_lr, alpha = (float)c->alpha;
    TRY(work_scale(on, m, (float)c->beta, r->count));
    if (replicate_divides(inner_lr)) {
        TRY(work_axpy(on, m, 1 / lr, x0, r->count));
        TRY(work_axpy(on, m, -1 / lr, r->x, r->count));   /* m <- b m + (x0 - xbar)/lr          */
        TRY(work_axpy(on, x0, -alpha * lr, m, r->count)); /* x0 <- x0 - a lr m                */
    } else { /* lr m -> x0 - xbar; of this round m keeps nothing                              */
        TRY(work_scale(on, x0, 1 - alpha, r->count));
        TRY(work_axpy(on, x0, alpha, r->x, r->count)); /* x0 <- x0 - a (x0 - xbar)            */
    }
    return work_copy(on, r->x, x0, r->count); /* x <- x0 */
}

static enum sotto_status step(struct replicate *r, const struct plan *plan, double scale)
{
    struct slowmo *s = (struct slowmo *)r;
    const struct slowmo_config *c = own(r);
    TRY(replicate_local_step(r, plan->lr, scale));
    if (!replicate_boundary(r, c->tau))
        return SOTTO_OK;
    TRY(replicate_mean(r, r->is.across, r->x)); /* xbar */
    TRY(outer_step(s, plan->lr));
    r->apart = false;
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
    replicate_free(r);
    free(s);
}

static const struct replicate_ops ops;

static enum sotto_status open(struct replicate **out, const struct replicate_setup *setup)
{
    struct slowmo *s = calloc(1, sizeof *s);
    if (!s)
        return fail(SOTTO_ENOMEM, "no memory for the replicate method");
    enum sotto_status st;
    TRY_DONE(replicate_init(&s->base, &ops, setup));
    TRY_DONE(replicate_buffer(&s->base, &s->x0, MEMORY_OUTER));
    TRY_DONE(replicate_buffer(&s->base, &s->m, MEMORY_OUTER));
    *out = &s->base;
done:
    if (st != SOTTO_OK)
        free_slowmo(&s->base);
    return st;
}

static const struct replicate_ops ops = {
    .open = open,
    .anchor = anchor,
    .step = step,
    .visit = visit,
    .free = free_slowmo,
};

const struct method method_slowmo = {
    .name = "slowmo",
    .axis = METHOD_REPLICATE,
    .about = "SlowMo: local steps, then a step with slow momentum from where they all began",
    METHOD_OPTIONS(struct slowmo_config, options),
    .every = every,
    .every_key = "tau",
    .replicate = &ops,
};
