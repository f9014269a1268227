#include <math.h>

#include "comm/staging.h"
#include "comm/virtual/virtual_impl.h"

static struct virtual_group *group_of(struct trip *trip)
{
    return (struct virtual_group *)((char *)trip - offsetof(struct virtual_group, trip));
}

/* Ends a collective at `time`: all ranks continue. The last rank to arrive may not have begun to
 * wait. */
static void release_ranks(struct trip *trip, double time)
{
    struct virtual_group *g = group_of(trip);
    g->over = true;
    g->end = time;
    for (int r = 0; r < g->size; r++) {
        struct virtual_process *p = g->process[r];
        if (p->collective_over)
            p->collective_over(p, g->met, time, &g->failure);
        else if (p->state == PROCESS_WAITING)
            virtual_wake(p, time);
    }
}

/* Starts a collective through the network. Splits take no time, nor do collectives in a pause. */
static enum sotto_status start_trip(struct virtual_group *g)
{
    const struct virtual_offer *o = &g->offer[0];
    struct route_call call = {.call = (enum comm_call)o->call,
                              .bytes = (double)o->count * (double)o->unit,
                              .bf16 = o->unit == dtype_size(DTYPE_BF16),
                              .root = o->root};
    if (o->call == CALL_SUM) { /* each rank sends its numbers to all ranks */
        call.call = COMM_ALLGATHER;
        call.bytes *= g->size;
    }
    if (g->sim->net && o->call != CALL_SPLIT && !g->sim->current->untimed) {
        g->trip.over = release_ranks;
        return trip_start(&g->trip, &g->route, call, g->met);
    }
    release_ranks(&g->trip, g->met);
    return SOTTO_OK;
}

/* Makes a process arrive at a collective, at a time that may be ahead of other clocks: no rank sees
 * an arrival until all have arrived, and processes with earlier clocks run while this one waits.
 * True if the process is the last to arrive. */
static bool arrive_at(struct comm *c, struct virtual_offer offer, struct view y, struct view x,
                      struct virtual_process *who, double at)
{
    struct virtual_group *g = ((struct virtual_member *)c)->group;
    g->offer[c->rank] = offer;
    g->x[c->rank] = x;
    g->y[c->rank] = y;
    g->process[c->rank] = who;
    g->latest = g->arrived ? fmax(g->latest, at) : at;
    return ++g->arrived == g->size;
}

/* Runs the collective when all ranks have arrived, at the latest of their clocks. */
static enum sotto_status meet_all(struct virtual_group *g)
{
    g->arrived = 0;
    g->over = false;
    virtual_advance(g->sim, g->latest);
    TRY(status_raise(&g->sim->stop)); /* the other ranks have given up */
    g->met = g->latest;
    enum sotto_status st = virtual_combine(g);
    if (st == SOTTO_OK)
        st = start_trip(g);
    if (st != SOTTO_OK) {
        status_save(&g->failure, st);
        release_ranks(&g->trip, g->met);
    }
    return SOTTO_OK;
}

static enum sotto_status virtual_collective(struct comm *c, struct virtual_offer offer,
                                            struct view y, struct view x)
{
    struct virtual_group *g = ((struct virtual_member *)c)->group;
    struct virtual_sim *sim = g->sim;
    TRY(status_raise(&sim->stop));
    TRY(status_raise(&g->failure));
    const bool last = arrive_at(c, offer, y, x, sim->current, sim->current->time);
    if (last)
        TRY(meet_all(g));
    if (last && g->over)
        virtual_advance(sim, g->end);
    else
        TRY(virtual_block(sim, virtual_call_name(offer.call), -1));
    c->wait.to = g->met; /* still of this call: the next collective needs this rank too */
    return status_raise(&g->failure);
}

bool virtual_join_collective(const struct comm_collective *a, struct virtual_process *p, double at,
                             void (*collective_over)(struct virtual_process *, double, double,
                                                     const struct status_note *))
{
    struct comm *c = a->comm;
    struct virtual_group *g = ((struct virtual_member *)c)->group;
    if (g->arrived + 1 >= g->size || g->sim->stop.code != SOTTO_OK || g->failure.code != SOTTO_OK ||
        staging_used(a->y, a->x))
        return false;
    const struct virtual_offer offer = {
        .call = (int)a->call, .count = a->count, .unit = dtype_size(a->x.type)};
    arrive_at(c, offer, a->y, a->x, p, at);
    c->wait = (struct comm_wait){at, at};
    p->collective_over = collective_over;
    virtual_wait_unrun(p, at, virtual_call_name(offer.call));
    return true;
}

enum sotto_status virtual_allreduce(struct comm *c, struct view y, struct view x, size_t count)
{
    struct virtual_offer offer = {
        .call = COMM_ALLREDUCE, .count = count, .unit = dtype_size(x.type)};
    return virtual_collective(c, offer, y, x);
}

enum sotto_status virtual_reduce_scatter(struct comm *c, struct view y, struct view x, size_t count)
{
    struct virtual_offer offer = {
        .call = COMM_REDUCE_SCATTER, .count = count, .unit = dtype_size(x.type)};
    return virtual_collective(c, offer, y, x);
}

enum sotto_status virtual_allgather(struct comm *c, void *y, const void *x, size_t count,
                                    size_t unit)
{
    struct virtual_offer offer = {.call = COMM_ALLGATHER, .count = count, .unit = unit};
    return virtual_collective(c, offer, (struct view){.data = y}, (struct view){.data = (void *)x});
}

enum sotto_status virtual_broadcast(struct comm *c, void *data, size_t bytes, int root)
{
    struct view x = {.data = data};
    return virtual_collective(
        c, (struct virtual_offer){.call = COMM_BROADCAST, .count = bytes, .unit = 1, .root = root},
        x, x);
}

enum sotto_status virtual_on_device(struct comm *c, enum comm_call call, struct view y,
                                    struct view x, size_t count, int root, bool *done)
{
    *done = true;
    return virtual_collective(c,
                              (struct virtual_offer){.call = (int)call,
                                                     .count = count,
                                                     .unit = dtype_size(y.type),
                                                     .root = root,
                                                     .on_device = true,
                                                     .ready = device_mark(c->dev)},
                              y, x);
}

enum sotto_status virtual_sum(struct comm *c, double *x, int count)
{
    struct view v = {.data = x};
    return virtual_collective(
        c, (struct virtual_offer){.call = CALL_SUM, .count = (size_t)count, .unit = sizeof *x}, v,
        v);
}

enum sotto_status virtual_barrier(struct comm *c)
{
    return virtual_collective(c, (struct virtual_offer){.call = COMM_BARRIER}, view_none,
                              view_none);
}

enum sotto_status virtual_split(struct comm *c, int color, struct comm **out)
{
    return virtual_collective(
        c, (struct virtual_offer){.call = CALL_SPLIT, .color = color, .out = out}, view_none,
        view_none);
}
