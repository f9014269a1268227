#include "strategy/decoupled/selection.h"

#include <assert.h>
#include <math.h>

enum sotto_status picked_init(struct replicate *r, double each, size_t most)
{
    struct picked *p = (struct picked *)r;
    TRY(decoupled_init(r, each));
    TRY(replicate_buffer(r, &p->decoupled.m, MEMORY_OUTER));
    TRY(replicate_buffer(r, &p->decoupled.q, MEMORY_OUTER));
    return values_init(&p->values, r, replicate_options(r), most, NULL);
}

void picked_free(struct replicate *r)
{
    struct picked *p = (struct picked *)r;
    values_free(&p->values);
    decoupled_free(r);
}

/* How many of them come before an element, where they are evenly spaced. */
static size_t before(const struct picks *p, size_t element)
{
    return element > p->first ? (element - p->first + p->stride - 1) / p->stride : 0;
}

/* The values of section k. */
static struct values_of values_in(const struct picked *p, int k)
{
    const struct decoupled *d = &p->decoupled;
    const struct picks *all = &p->picks;
    if (!all->stride) {
        assert(d->n == 1); /* where a list leads nobody knows without looking at it */
        return (struct values_of){k, 0, all->count};
    }
    const size_t first = before(all, decoupled_begin(d, k));
    return (struct values_of){k, first, before(all, d->ends[k]) - first};
}

static void turn_to(struct picked *p, int k)
{
    p->of = values_in(p, k);
    p->now = p->picks;
    p->now.first += p->of.first * p->picks.stride;
    p->now.count = p->of.count;
}

/* Bytes of the section's vector that are read, and written again, to get at those that are picked:
 * memory moves lines. */
static double touched(const struct picked *p)
{
    enum { LINE = 64 };
    const struct decoupled *d = &p->decoupled;
    const int k = p->of.section;
    return fmin(LINE * (double)p->of.count,
                sizeof(float) * (double)(d->ends[k] - decoupled_begin(d, k)));
}

/* Bytes of an element that is picked beside those of the vector. */
static double each(const struct picked *p)
{
    return (double)dtype_size(p->values.own.type) + (p->picks.stride ? 0 : sizeof(int32_t));
}

static enum sotto_status pick(void *arg)
{
    struct picked *p = arg;
    struct device *dev = p->decoupled.base.is.dev;
    dev->ops->pick(dev, &p->now, view_at(p->values.own, p->of.first), p->decoupled.m.view,
                   p->index);
    return device_failed(dev);
}

static enum sotto_status put(void *arg)
{
    struct picked *p = arg;
    struct device *dev = p->decoupled.base.is.dev;
    dev->ops->put(dev, &p->now, p->decoupled.q.view, p->mean, view_at(p->values.own, p->of.first),
                  p->index);
    return device_failed(dev);
}

static enum sotto_status take_section(struct decoupled *d, int k)
{
    struct picked *p = (struct picked *)d;
    turn_to(p, k);
    TRY(decoupled_add(d, d->ends[k])); /* m <- decay m + g       */
    if (p->of.count == 0)
        return SOTTO_OK;
    TRY(work_run(&d->base.on, pick, p,
                 2 * touched(p) + each(p) * (double)p->of.count)); /* q, m <- m - q */
    return values_pack(&p->values, p->of);
}

static enum sotto_status exchange_section(struct decoupled *d, struct comm *across, int k)
{
    const struct picked *p = (const struct picked *)d;
    return values_exchange(&p->values, across, values_in(p, k));
}

static enum sotto_status put_section(struct decoupled *d, int k)
{
    struct picked *p = (struct picked *)d;
    struct replicate *r = &d->base;
    const size_t begin = decoupled_begin(d, k), end = d->ends[k];
    turn_to(p, k);
    TRY(values_unpack(&p->values, p->of, &p->mean)); /* over the groups, sign  */
    TRY(work_fill(&r->on, view_at(d->q.view, begin), end - begin, 0));
    if (p->of.count == 0)
        return SOTTO_OK;
    return work_run(&r->on, put, p,
                    2 * touched(p) + each(p) * (double)p->of.count); /* Q, 0 elsewhere */
}

enum sotto_status picked_step(struct picked *p, const struct plan *plan, double scale,
                              struct picks picks, struct view index)
{
    static const struct decoupled_sections does = {take_section, exchange_section, put_section};
    p->picks = picks;
    p->index = index;
    return decoupled_step(&p->decoupled, &does, plan, scale); /* x <- Base(x, Q)        */
}
