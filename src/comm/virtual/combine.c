/* Moves the data of a collective when all ranks have arrived. */
#include <string.h>

#include "comm/sum.h"
#include "comm/virtual/virtual_impl.h"
#include "tensor/ops.h"

const char *virtual_call_name(int call)
{
    if (call >= COMM_CALLS)
        return call == CALL_SPLIT ? "split" : "sum";
    return comm_call_name((enum comm_call)call);
}

static bool same_offer(const struct virtual_offer *a, const struct virtual_offer *b)
{
    return a->call == b->call && a->count == b->count && a->unit == b->unit && a->root == b->root;
}

static enum sotto_status check_offers(const struct virtual_group *g)
{
    const struct virtual_offer *a = &g->offer[0];
    for (int r = 1; r < g->size; r++) {
        const struct virtual_offer *o = &g->offer[r];
        if (same_offer(a, o))
            continue;
        if (a->call == o->call && a->root != o->root)
            return fail(
                SOTTO_EPEER,
                "workers make different calls: rank 0 %s from root %d, rank %d %s from root %d",
                virtual_call_name(a->call), a->root, r, virtual_call_name(o->call), o->root);
        return fail(SOTTO_EPEER,
                    "workers make different calls: rank 0 %s of %zu elements of %zu bytes, rank %d "
                    "%s of %zu elements of %zu bytes",
                    virtual_call_name(a->call), a->count, a->unit, r, virtual_call_name(o->call),
                    o->count, o->unit);
    }
    for (int r = 1; r < g->size; r++)
        if (g->offer[r].on_device != a->on_device)
            return fail(SOTTO_EPEER,
                        "workers make different calls: the vectors of rank 0 are the %s's, those "
                        "of rank %d the %s's",
                        a->on_device ? "device" : "host", r, a->on_device ? "host" : "device");
    return SOTTO_OK;
}

/* True if every rank brought memory; an empty block needs none. */
static bool have_data(const struct virtual_group *g)
{
    const struct virtual_offer *o = &g->offer[0];
    bool all = o->count > 0;
    for (int r = 0; r < g->size && all; r++) {
        struct comm_block b = comm_block(o->count, g->size, r);
        bool no_x = o->call == COMM_ALLGATHER && b.begin == b.end;
        bool no_y = o->call == COMM_REDUCE_SCATTER && b.begin == b.end;
        all = (g->x[r].data || no_x) && (g->y[r].data || no_y);
    }
    return all;
}

/* Sums by an op of `dev`, or in host memory if `dev` is NULL. */
static void sum_into(struct device *dev, const struct view *out, int n_out, const struct view *x,
                     const struct rank_sum *p)
{
    if (dev)
        dev->ops->sum_ranks(dev, p, out, n_out, x);
    else
        sum_ranks(p, out, n_out, x);
}

/* Copies elements of `unit` bytes; host views have no type. */
static void copy_to(struct device *dev, struct view to, struct view from, size_t count, size_t unit)
{
    if (to.data == from.data || !count)
        return;
    if (dev)
        dev->ops->copy(dev, to, from, count);
    else
        memmove(to.data, from.data, count * unit);
}

static void combine_sums(struct virtual_group *g, struct device *dev, bool scatter, size_t count)
{
    for (int r = 0; r < g->size; r++) {
        struct comm_block b = comm_block(count, g->size, r);
        if (b.begin == b.end)
            continue;
        const struct rank_sum p = sum_of(g->member[r]->base.layout, r, b.begin, b.end);
        struct view y = g->y[r];
        y.data = (char *)y.data - b.begin * dtype_size(y.type); /* as if y were the whole vector */
        sum_into(dev, scatter ? &y : g->y, scatter ? 1 : g->size, g->x, &p);
    }
}

/* All-gathers into rank 0's memory block by block, and from there to each other rank at once. */
static void combine_blocks(struct virtual_group *g, struct device *dev, size_t count, size_t unit)
{
    for (int r = 0; r < g->size; r++) {
        struct comm_block b = comm_block(count, g->size, r);
        struct view to = g->y[0];
        to.data = (char *)to.data + b.begin * unit;
        copy_to(dev, to, g->x[r], b.end - b.begin, unit);
    }
    for (int r = 1; r < g->size; r++)
        copy_to(dev, g->y[r], g->y[0], count, unit);
}

static void combine_broadcast(struct virtual_group *g, struct device *dev,
                              const struct virtual_offer *o)
{
    for (int r = 0; r < g->size; r++)
        if (r != o->root)
            copy_to(dev, g->y[r], g->x[o->root], o->count, o->unit);
}

static void combine_numbers(struct virtual_group *g, int count)
{
    for (int i = 0; i < count; i++) {
        double sum = 0;
        for (int r = 0; r < g->size; r++)
            sum += ((const double *)g->x[r].data)[i];
        for (int r = 0; r < g->size; r++)
            ((double *)g->y[r].data)[i] = sum;
    }
}

static enum sotto_status combine_data(struct virtual_group *g, struct device *dev)
{
    const struct virtual_offer *o = &g->offer[0];
    const bool moves = have_data(g);
    switch (o->call) {
    case COMM_ALLREDUCE:
    case COMM_REDUCE_SCATTER:
        if (moves)
            combine_sums(g, dev, o->call == COMM_REDUCE_SCATTER, o->count);
        return SOTTO_OK;
    case COMM_ALLGATHER:
        if (moves)
            combine_blocks(g, dev, o->count, o->unit);
        return SOTTO_OK;
    case COMM_BROADCAST:
        if (moves)
            combine_broadcast(g, dev, o);
        return SOTTO_OK;
    case CALL_SUM:
        combine_numbers(g, (int)o->count);
        return SOTTO_OK;
    case CALL_SPLIT:
        return virtual_make_split(g);
    default:
        return SOTTO_OK;
    }
}

/* Combines on the device of rank 0, after the ops that made the vectors and before the later ops of
 * all ranks. */
static enum sotto_status combine_on_device(struct virtual_group *g)
{
    struct device *dev = g->member[0]->base.dev;
    for (int r = 0; r < g->size; r++)
        device_follow(dev, g->offer[r].ready);
    TRY(combine_data(g, dev));
    const struct device_mark done = device_mark(dev);
    for (int r = 0; r < g->size; r++)
        device_follow(g->member[r]->base.dev, done);
    return device_failed(dev);
}

enum sotto_status virtual_combine(struct virtual_group *g)
{
    TRY(check_offers(g));
    return g->offer[0].on_device ? combine_on_device(g) : combine_data(g, NULL);
}
