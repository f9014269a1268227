/* Full replication every n steps (From et al. 2025, the "DiLoCo replicator"): every n-th gradient
 * is averaged over the groups, and between them each group steps with its own gradient. The only
 * momentum is the optimizer's. The groups' parameters diverge for good: the mean of the groups is
 * evaluated and saved. */
#include "strategy/decoupled/decoupled.h"
#include "strategy/decoupled/value_exchange.h"

struct every_config {
    struct update_config update;
    int64_t n;
};

#define S struct every_config
static const struct option options[] = {
    OPTION_LONG(S, n, "32", 1, 1e15, "steps from one averaged gradient to the next"),
    UPDATE_OPTIONS,
    MESSAGE_OPTION,
};
#undef S

struct every {
    struct decoupled base; /* no m */
    struct value_exchange exchange;
};

static int64_t every_n(const void *own)
{
    return ((const struct every_config *)own)->n;
}

/* Q <- the own group's gradient, of section k. */
static enum sotto_status take_own(struct decoupled *d, int k)
{
    struct replicate *r = &d->base;
    const size_t begin = decoupled_begin(d, k), end = d->ends[k];
    for (int i = 0; i < r->is.n_part; i++) {
        const struct part *p = &r->is.part[i];
        if (p->begin >= begin && p->begin < end)
            TRY(work_copy(&r->on, view_at(d->q.view, p->begin), p->g, p->end - p->begin));
    }
    return work_scale(&r->on, view_at(d->q.view, begin), (float)d->step.scale, end - begin);
}

static enum sotto_status put_own(struct decoupled *d, int k)
{
    const size_t begin = decoupled_begin(d, k);
    return work_sign(&d->base.on, view_at(d->q.view, begin), d->ends[k] - begin);
}

/* The values of section k. */
static struct value_range every_range(const struct decoupled *d, int k)
{
    const size_t begin = decoupled_begin(d, k);
    return (struct value_range){k, begin, d->ends[k] - begin};
}

static enum sotto_status take_meeting(struct decoupled *d, int k)
{
    struct every *e = (struct every *)d;
    const struct value_range of = every_range(d, k);
    TRY(take_own(d, k));
    if (e->exchange.room.dev) /* sent in another type */
        TRY(work_copy(&d->base.on, view_at(e->exchange.own, of.first), view_at(d->q.view, of.first),
                      of.count));
    return value_exchange_pack(&e->exchange, of);
}

static enum sotto_status exchange_meeting(struct decoupled *d, struct comm *across, int k)
{
    return value_exchange_run(&((struct every *)d)->exchange, across, every_range(d, k));
}

static enum sotto_status put_meeting(struct decoupled *d, int k)
{
    struct every *e = (struct every *)d;
    const struct work *on = &d->base.on;
    const struct value_range of = every_range(d, k);
    const struct view q = view_at(d->q.view, of.first);
    float mean;
    TRY(value_exchange_unpack(&e->exchange, of, &mean));
    if (e->exchange.room.dev)
        TRY(work_copy(on, q, view_at(e->exchange.own, of.first), of.count));
    return mean == 1 ? SOTTO_OK : work_scale(on, q, mean, of.count);
}

static enum sotto_status step(struct replicate *r, const struct plan *plan, double scale)
{
    static const struct section_ops all = {take_meeting, exchange_meeting, put_meeting},
                                    own = {take_own, NULL, put_own};
    struct every *e = (struct every *)r;
    const struct every_config *c = replicate_options(r);
    const bool meets = replicate_boundary(r, c->n);
    if (c->n == 1) /* the groups never diverge */
        r->diverged = false;
    if (!meets && c->update.sign == SIGN_OFF)
        return replicate_local_step(r, plan->lr, scale);
    TRY(decoupled_step(&e->base, meets ? &all : &own, plan, scale));
    return meets ? replicate_agree(r) : SOTTO_OK; /* during the exchange */
}

static void free_every(struct replicate *r)
{
    value_exchange_free(&((struct every *)r)->exchange);
    decoupled_free(r);
}

static enum sotto_status init(struct replicate *r)
{
    struct every *e = (struct every *)r;
    TRY(decoupled_init(r, update_value_bytes(replicate_options(r))));
    TRY(replicate_buffer(r, &e->base.q, MEMORY_OUTER));
    return value_exchange_init(&e->exchange, r, replicate_options(r), r->count, &e->base.q);
}

static const struct replicate_ops ops = {
    .bytes = sizeof(struct every),
    .init = init,
    .step = step,
    .ready = decoupled_ready,
    .free = free_every,
};

const struct method method_every = {
    .name = "every",
    .axis = METHOD_REPLICATE,
    .about = "every n-th gradient is averaged over the groups; between them each group steps with "
             "its own",
    METHOD_OPTIONS(struct every_config, options),
    METHOD_ONLY(decoupled_rules),
    .resolve = decoupled_resolve,
    .optimizer = decoupled_optimizer,
    .optimizer_key = "base",
    .every = every_n,
    .every_key = "n",
    .replicate = &ops,
};
