#include "strategy/decoupled/selection.h"

#include <assert.h>
#include <math.h>

enum sotto_status selection_init(struct replicate *r, double each, size_t most)
{
    struct selection *p = (struct selection *)r;
    TRY(decoupled_init(r, each));
    TRY(replicate_buffer(r, &p->decoupled.m, MEMORY_OUTER));
    TRY(replicate_buffer(r, &p->decoupled.q, MEMORY_OUTER));
    return value_exchange_init(&p->exchange, r, replicate_options(r), most, NULL);
}

void selection_free(struct replicate *r)
{
    struct selection *p = (struct selection *)r;
    value_exchange_free(&p->exchange);
    decoupled_free(r);
}

/* Returns the number of evenly spaced elements before an element. */
static size_t picks_before(const struct picks *p, size_t element)
{
    return element > p->first ? (element - p->first + p->stride - 1) / p->stride : 0;
}

/* The values of section k. */
static struct value_range selection_range(const struct selection *p, int k)
{
    const struct decoupled *d = &p->decoupled;
    const struct picks *all = &p->all;
    if (!all->stride) {
        assert(d->n == 1); /* the sections of a list's elements are not known */
        return (struct value_range){k, 0, all->count};
    }
    const size_t first = picks_before(all, decoupled_begin(d, k));
    return (struct value_range){k, first, picks_before(all, d->ends[k]) - first};
}

static void select_section(struct selection *p, int k)
{
    p->range = selection_range(p, k);
    p->now = p->all;
    p->now.first += p->range.first * p->all.stride;
    p->now.count = p->range.count;
}

/* Returns the bytes of the section's vector that picking touches, read and then written: memory
 * moves whole cache lines. */
static double touched_bytes(const struct selection *p)
{
    enum { LINE = 64 };
    const struct decoupled *d = &p->decoupled;
    const int k = p->range.section;
    return fmin(LINE * (double)p->range.count,
                sizeof(float) * (double)(d->ends[k] - decoupled_begin(d, k)));
}

/* Returns the bytes of a picked element outside the vector. */
static double element_bytes(const struct selection *p)
{
    return (double)dtype_size(p->exchange.own.type) + (p->all.stride ? 0 : sizeof(int32_t));
}

static enum sotto_status pick_job(void *arg)
{
    struct selection *p = arg;
    struct device *dev = p->decoupled.base.is.dev;
    dev->ops->pick(dev, &p->now, view_at(p->exchange.own, p->range.first), p->decoupled.m.view,
                   p->index);
    return device_failed(dev);
}

static enum sotto_status put_job(void *arg)
{
    struct selection *p = arg;
    struct device *dev = p->decoupled.base.is.dev;
    dev->ops->put(dev, &p->now, p->decoupled.q.view, p->mean,
                  view_at(p->exchange.own, p->range.first), p->index);
    return device_failed(dev);
}

static enum sotto_status take_section(struct decoupled *d, int k)
{
    struct selection *p = (struct selection *)d;
    select_section(p, k);
    TRY(decoupled_add(d, d->ends[k])); /* m <- decay m + g       */
    if (p->range.count == 0)
        return SOTTO_OK;
    TRY(work_run(&d->base.on, pick_job, p,
                 2 * touched_bytes(p) +
                     element_bytes(p) * (double)p->range.count)); /* q, m <- m - q */
    return value_exchange_pack(&p->exchange, p->range);
}

static enum sotto_status exchange_section(struct decoupled *d, struct comm *across, int k)
{
    const struct selection *p = (const struct selection *)d;
    return value_exchange_run(&p->exchange, across, selection_range(p, k));
}

static enum sotto_status put_section(struct decoupled *d, int k)
{
    struct selection *p = (struct selection *)d;
    struct replicate *r = &d->base;
    const size_t begin = decoupled_begin(d, k), end = d->ends[k];
    select_section(p, k);
    TRY(value_exchange_unpack(&p->exchange, p->range, &p->mean)); /* over the groups, sign  */
    TRY(work_fill(&r->on, view_at(d->q.view, begin), end - begin, 0));
    if (p->range.count == 0)
        return SOTTO_OK;
    return work_run(&r->on, put_job, p,
                    2 * touched_bytes(p) +
                        element_bytes(p) * (double)p->range.count); /* Q, 0 elsewhere */
}

enum sotto_status selection_step(struct selection *p, const struct plan *plan, double scale,
                                 struct picks picks, struct view index)
{
    static const struct section_ops section_ops = {take_section, exchange_section, put_section};
    p->all = picks;
    p->index = index;
    return decoupled_step(&p->decoupled, &section_ops, plan, scale); /* x <- Base(x, Q)        */
}
