/* Full replication every n steps (From et al. 2025, the "DiLoCo replicator"): each n-th gradient is
 * averaged over the groups, and each group steps with its own in between. There is no momentum
 * beside the optimizer's, and what groups have come apart stays: what is evaluated and saved is
 * their mean. */
#include "strategy/replicate/decoupled.h"
#include "strategy/replicate/values.h"

struct every_config {
    struct update_config update;
    int64_t n;
};

#define S struct every_config
static const struct option options[] = {
    OPTION_LONG(S, n, "32", 1, 1e15, "steps from one averaged gradient to the next"),
    UPDATE_OPTIONS,
};
#undef S

struct every {
    struct decoupled base; /* without m */
    struct values values;
};

static int64_t every_n(const void *own)
{
    return ((const struct every_config *)own)->n;
}

/* Q <- the own group's gradient. */
static enum sotto_status take(struct decoupled *d, double scale)
{
    struct replicate *r = &d->base;
    for (int i = 0; i < r->is.n_part; i++) {
        const struct part *p = &r->is.part[i];
        TRY(work_copy(&r->on, view_at(d->q.view, p->begin), p->g, p->end - p->begin));
    }
    return work_scale(&r->on, d->q.view, (float)scale, r->count);
}

/* Q <- what the options make of all groups' Q. */
static enum sotto_status average(struct every *e)
{
    struct replicate *r = &e->base.base;
    const struct view q = e->base.q.view;
    const bool other = e->values.room.dev != NULL;
    float mean;
    if (other)
        TRY(work_copy(&r->on, e->values.own, q, r->count));
    TRY(values_average(&e->values, r->count, &mean));
    if (other)
        TRY(work_copy(&r->on, q, e->values.own, r->count));
    return mean == 1 ? SOTTO_OK : work_scale(&r->on, q, mean, r->count);
}

static enum sotto_status step(struct replicate *r, const struct plan *plan, double scale)
{
    struct every *e = (struct every *)r;
    const struct every_config *c = replicate_options(r);
    const bool meets = replicate_boundary(r, c->n);
    if (c->n == 1) /* they never come apart */
        r->apart = false;
    if (!meets && c->update.sign == SIGN_OFF)
        return replicate_local_step(r, plan->lr, scale);
    TRY(take(&e->base, scale));
    if (meets)
        TRY(average(e));
    else
        TRY(work_sign(&r->on, e->base.q.view, r->count));
    TRY(decoupled_step(&e->base, plan));
    return meets ? replicate_agree(r) : SOTTO_OK;
}

static void free_every(struct replicate *r)
{
    values_free(&((struct every *)r)->values);
    decoupled_free(r);
}

static enum sotto_status init(struct replicate *r)
{
    struct every *e = (struct every *)r;
    TRY(decoupled_init_update(r));
    return values_init(&e->values, r, replicate_options(r), r->count, &e->base.q);
}

static const struct replicate_ops ops = {
    .bytes = sizeof(struct every),
    .init = init,
    .step = step,
    .free = free_every,
};

const struct method method_every = {
    .name = "every",
    .axis = METHOD_REPLICATE,
    .about = "each n-th gradient is averaged over the groups, which step with their own in between",
    METHOD_OPTIONS(struct every_config, options),
    METHOD_ONLY(decoupled_rules),
    .resolve = decoupled_resolve,
    .optimizer = decoupled_optimizer,
    .optimizer_key = "base",
    .every = every_n,
    .every_key = "n",
    .replicate = &ops,
};
