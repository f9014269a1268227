/* SlowMo (Wang et al. 2020): local steps, then a step with slow momentum from where they all began.
 */
#include "strategy/replicate/replicate.h"

#include <stdlib.h>

#include "tensor/ops.h"

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
    const struct strategy_config *c = r->is.config;
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
    const struct strategy_config *c = r->is.config;
    TRY(replicate_local_step(r, plan->lr, scale));
    if (!replicate_boundary(r, c->tau_steps))
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

static enum sotto_status open(struct replicate **out, const struct replicate_setup *setup)
{
    struct slowmo *s = calloc(1, sizeof *s);
    if (!s)
        return fail(SOTTO_ENOMEM, "no memory for the replicate method");
    enum sotto_status st;
    TRY_DONE(replicate_init(&s->base, &replicate_slowmo, setup));
    TRY_DONE(replicate_buffer(&s->base, &s->x0, MEMORY_OUTER));
    TRY_DONE(replicate_buffer(&s->base, &s->m, MEMORY_OUTER));
    *out = &s->base;
done:
    if (st != SOTTO_OK)
        free_slowmo(&s->base);
    return st;
}

const struct replicate_ops replicate_slowmo = {
    .name = "slowmo",
    .open = open,
    .anchor = anchor,
    .step = step,
    .visit = visit,
    .free = free_slowmo,
};
