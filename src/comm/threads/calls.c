/* Collectives: every rank shows its memory to the other ranks, and reads theirs.
 *
 * On a device, ops of the device read: they follow the ops that made the vectors, and ops issued
 * after the call follow them. The ranks meet only to issue these ops. No rank waits for the device,
 * except for modelled links. */
#include <string.h>

#include "comm/sum.h"
#include "comm/threads/threads_impl.h"
#include "tensor/ops.h"

/* Makes this rank's device follow the ends of all ranks. */
static void follow_done(struct threads_member *m)
{
    for (int r = 0; r < m->group->size; r++)
        device_follow(m->base.dev, m->group->done[r]);
}

/* Publishes the arguments of this rank's call and waits for the other ranks. Fails if the arguments
 * differ. */
static enum sotto_status threads_open_call(struct threads_member *m, struct threads_offer mine)
{
    struct threads_group *g = m->group;
    mine.since = clock_now(&clock_real);
    g->offer[m->base.rank] = mine;
    TRY(threads_meet(m));
    for (int r = 0; r < g->size; r++) {
        const struct threads_offer *o = &g->offer[r];
        m->x[r] = o->x;
        m->y[r] = o->y;
        if (o->call != mine.call || o->count != mine.count || o->unit != mine.unit ||
            o->root != mine.root)
            return fail(
                SOTTO_EPEER,
                "workers make different calls: rank %d %s of %zu elements of %zu bytes, rank %d "
                "%s of %zu elements of %zu bytes",
                m->base.rank, comm_call_name(mine.call), mine.count, mine.unit, r,
                comm_call_name(o->call), o->count, o->unit);
        if (o->on_device != mine.on_device)
            return fail(SOTTO_EPEER,
                        "workers make different calls: the vectors of rank %d are the %s's, those "
                        "of rank %d the %s's",
                        m->base.rank, mine.on_device ? "device" : "host", r,
                        o->on_device ? "device" : "host");
    }
    for (int r = 0; r < g->size && mine.on_device; r++)
        device_follow(m->base.dev, g->offer[r].ready);
    return SOTTO_OK;
}

/* Waits until no rank reads this rank's memory any more and, with modelled links, until a call of
 * `bytes` bytes, begun when the last rank arrived, has crossed them. */
static enum sotto_status threads_close_call(struct threads_member *m, size_t bytes)
{
    struct threads_group *g = m->group;
    const struct threads_offer *mine = &g->offer[m->base.rank];
    const struct route_call call = {.call = mine->call,
                                    .bytes = (double)bytes,
                                    .bf16 = mine->unit == dtype_size(DTYPE_BF16),
                                    .root = mine->root};
    double last = 0;
    for (int r = 0; r < g->size; r++)
        last = g->offer[r].since > last ? g->offer[r].since : last;
    m->base.wait.to = last;
    if (mine->on_device)
        g->done[m->base.rank] = device_mark(m->base.dev);
    threads_meet_again(m);
    if (mine->on_device) {
        follow_done(m);
        threads_meet_again(m); /* an earlier return could close the device of a mark */
    }
    if (!g->run->shaped)
        return SOTTO_OK;
    return shaped_collective(g->run->shaped, &g->trip, &g->route, call, ++m->trips, last);
}

enum sotto_status threads_allreduce(struct comm *c, struct view y, struct view x, size_t count)
{
    struct threads_member *m = (struct threads_member *)c;
    size_t unit = dtype_size(x.type);
    TRY(threads_open_call(
        m, (struct threads_offer){
               .call = COMM_ALLREDUCE, .x = x, .y = y, .count = count, .unit = unit}));
    struct comm_block b = comm_block(count, c->size, c->rank);
    sum_block(m->y, c->size, m->x, c->layout, c->rank, b.begin, b.end);
    return threads_close_call(m, count * unit);
}

enum sotto_status threads_reduce_scatter(struct comm *c, struct view y, struct view x, size_t count)
{
    struct threads_member *m = (struct threads_member *)c;
    size_t unit = dtype_size(x.type);
    TRY(threads_open_call(
        m, (struct threads_offer){
               .call = COMM_REDUCE_SCATTER, .x = x, .y = y, .count = count, .unit = unit}));
    struct comm_block b = comm_block(count, c->size, c->rank);
    if (b.end > b.begin) { /* y may be NULL for an empty block */
        struct view out =
            view_of((char *)y.data - b.begin * unit, y.type); /* as if y were the whole vector */
        sum_block(&out, 1, m->x, c->layout, c->rank, b.begin, b.end);
    }
    return threads_close_call(m, count * unit);
}

enum sotto_status threads_allgather(struct comm *c, void *y, const void *x, size_t count,
                                    size_t unit)
{
    struct threads_member *m = (struct threads_member *)c;
    TRY(threads_open_call(
        m, (struct threads_offer){
               .call = COMM_ALLGATHER, .x.data = (void *)x, .count = count, .unit = unit}));
    for (int i = 0; i < c->size; i++) {
        int r = (c->rank + i) % c->size; /* each rank starts with another sender */
        struct comm_block b = comm_block(count, c->size, r);
        if (b.end == b.begin)
            continue;
        char *to = (char *)y + b.begin * unit;
        if (to != m->x[r].data)
            memmove(to, m->x[r].data, (b.end - b.begin) * unit);
    }
    return threads_close_call(m, count * unit);
}

enum sotto_status threads_broadcast(struct comm *c, void *data, size_t bytes, int root)
{
    struct threads_member *m = (struct threads_member *)c;
    TRY(threads_open_call(
        m, (struct threads_offer){
               .call = COMM_BROADCAST, .x.data = data, .count = bytes, .unit = 1, .root = root}));
    if (c->rank != root && bytes)
        memcpy(data, m->x[root].data, bytes);
    return threads_close_call(m, bytes);
}

enum sotto_status threads_barrier(struct comm *c)
{
    struct threads_member *m = (struct threads_member *)c;
    TRY(threads_open_call(m, (struct threads_offer){.call = COMM_BARRIER}));
    return threads_close_call(m, 0);
}

/* Issues the device ops of a collective over all ranks' vectors. */
static void issue_device_ops(struct device *dev, const struct threads_member *m,
                             enum comm_call call, struct view y, size_t count, int root)
{
    const struct comm *c = &m->base;
    const struct comm_block own = comm_block(count, c->size, c->rank);
    const struct rank_sum sum = sum_of(c->layout, c->rank, own.begin, own.end);
    const bool any = own.end > own.begin;
    if (call == COMM_ALLREDUCE && any)
        dev->ops->sum_ranks(dev, &sum, m->y, c->size, m->x);
    if (call == COMM_REDUCE_SCATTER && any) {
        y.data =
            (char *)y.data - own.begin * dtype_size(y.type); /* as if y were the whole vector */
        dev->ops->sum_ranks(dev, &sum, &y, 1, m->x);
    }
    if (call == COMM_BROADCAST && c->rank != root)
        dev->ops->copy(dev, y, m->x[root], count);
    for (int i = 1; i <= c->size && call == COMM_ALLGATHER; i++) {
        const int r = (c->rank + i) % c->size;
        const struct comm_block b = comm_block(count, c->size, r);
        const struct view to = view_at(y, b.begin);
        if (b.end > b.begin && to.data != m->x[r].data)
            dev->ops->copy(dev, to, m->x[r], b.end - b.begin);
    }
}

enum sotto_status threads_on_device(struct comm *c, enum comm_call call, struct view y,
                                    struct view x, size_t count, int root, bool *done)
{
    *done = true;
    struct threads_member *m = (struct threads_member *)c;
    const size_t unit = dtype_size(y.type);
    if (m->group->run->shaped) /* on modelled links a vector starts after it is computed */
        TRY(device_check(c->dev));
    TRY(threads_open_call(m, (struct threads_offer){.call = call,
                                                    .x = x,
                                                    .y = y,
                                                    .count = count,
                                                    .unit = unit,
                                                    .root = root,
                                                    .on_device = true,
                                                    .ready = device_mark(c->dev)}));
    issue_device_ops(c->dev, m, call, y, count, root);
    return threads_close_call(m, count * unit);
}
