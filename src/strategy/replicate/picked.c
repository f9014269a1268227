#include "strategy/replicate/picked.h"

enum sotto_status picked_init(struct replicate *r, size_t most)
{
    struct picked *p = (struct picked *)r;
    TRY(decoupled_init(r));
    return values_init(&p->values, r, replicate_options(r), most, NULL);
}

void picked_free(struct replicate *r)
{
    struct picked *p = (struct picked *)r;
    values_free(&p->values);
    decoupled_free(r);
}

static enum sotto_status pick(void *arg)
{
    struct picked *p = arg;
    struct device *dev = p->decoupled.base.is.dev;
    dev->ops->pick(dev, &p->picks, p->values.own, p->decoupled.m.view, p->index);
    return device_failed(dev);
}

static enum sotto_status put(void *arg)
{
    struct picked *p = arg;
    struct device *dev = p->decoupled.base.is.dev;
    dev->ops->put(dev, &p->picks, p->decoupled.q.view, p->mean, p->values.own, p->index);
    return device_failed(dev);
}

enum sotto_status picked_step(struct picked *p, const struct plan *plan, double scale,
                              struct picks picks, struct view index)
{
    struct decoupled *d = &p->decoupled;
    struct replicate *r = &d->base;
    const double value = (double)dtype_size(p->values.own.type), of = (double)picks.count;
    const double list = picks.stride ? 0 : sizeof(int32_t);
    p->picks = picks;
    p->index = index;
    TRY(decoupled_add(d, plan, scale)); /* m <- decay m + g       */
    TRY(work_run(&r->on, pick, p, (2 * sizeof(float) + value + list) * of)); /* q, m <- m - q    */
    TRY(values_average(&p->values, picks.count, &p->mean)); /* over the groups, sign  */
    TRY(work_fill(&r->on, d->q.view, r->count, 0));
    TRY(work_run(&r->on, put, p, (sizeof(float) + value + list) * of)); /* Q, 0 elsewhere        */
    return decoupled_step(d, plan);                                     /* x <- Base(x, Q)        */
}
