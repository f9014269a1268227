/* What a collective makes of the ranks' memory, once all have come. */
#include <string.h>

#include "comm/sum.h"
#include "comm/virtual/state.h"

const char *virtual_call_name(int call)
{
    if (call >= COMM_CALLS)
        return call == CALL_SPLIT ? "split" : "sum";
    return comm_call_name((enum comm_call)call);
}

static bool same(const struct offer *a, const struct offer *b)
{
    return a->call == b->call && a->count == b->count && a->unit == b->unit && a->root == b->root;
}

static enum sotto_status check_offers(const struct group *g)
{
    const struct offer *a = &g->offer[0];
    for (int r = 1; r < g->size; r++) {
        const struct offer *o = &g->offer[r];
        if (same(a, o))
            continue;
        if (a->call == o->call && a->root != o->root)
            return fail(
                SOTTO_EPEER,
                "workers call different things: rank 0 %s from root %d, rank %d %s from root %d",
                virtual_call_name(a->call), a->root, r, virtual_call_name(o->call), o->root);
        return fail(
            SOTTO_EPEER,
            "workers call different things: rank 0 %s of %zu elements of %zu bytes, rank %d "
            "%s of %zu elements of %zu bytes",
            virtual_call_name(a->call), a->count, a->unit, r, virtual_call_name(o->call), o->count,
            o->unit);
    }
    return SOTTO_OK;
}

/* Whether every rank brought memory; an empty block of its own needs none. */
static bool have_data(const struct group *g)
{
    const struct offer *o = &g->offer[0];
    bool all = o->count > 0;
    for (int r = 0; r < g->size && all; r++) {
        struct comm_block b = comm_block(o->count, g->size, r);
        bool no_x = o->call == COMM_ALLGATHER && b.begin == b.end;
        bool no_y = o->call == COMM_REDUCE_SCATTER && b.begin == b.end;
        all = (g->x[r].data || no_x) && (g->y[r].data || no_y);
    }
    return all;
}

static void combine_sums(struct group *g, bool scatter, size_t count, size_t unit)
{
    for (int r = 0; r < g->size; r++) {
        struct comm_block b = comm_block(count, g->size, r);
        if (b.begin == b.end)
            continue;
        struct view y = g->y[r];
        y.data = (char *)y.data - b.begin * unit; /* as if y were the whole vector */
        sum_block(scatter ? &y : g->y, scatter ? 1 : g->size, g->x, g->member[r]->base.layout, r,
                  b.begin, b.end);
    }
}

/* Into rank 0's memory block by block, from there to the others at once. */
static void combine_blocks(struct group *g, size_t count, size_t unit)
{
    char *whole = g->y[0].data;
    for (int r = 0; r < g->size; r++) {
        struct comm_block b = comm_block(count, g->size, r);
        if (b.end > b.begin && whole + b.begin * unit != g->x[r].data)
            memmove(whole + b.begin * unit, g->x[r].data, (b.end - b.begin) * unit);
    }
    for (int r = 1; r < g->size; r++)
        memcpy(g->y[r].data, whole, count * unit);
}

static void combine_numbers(struct group *g, int count)
{
    for (int i = 0; i < count; i++) {
        double sum = 0;
        for (int r = 0; r < g->size; r++)
            sum += ((const double *)g->x[r].data)[i];
        for (int r = 0; r < g->size; r++)
            ((double *)g->y[r].data)[i] = sum;
    }
}

enum sotto_status virtual_complete(struct group *g)
{
    TRY(check_offers(g));
    const struct offer *o = &g->offer[0];
    const bool moves = have_data(g);
    switch (o->call) {
    case COMM_ALLREDUCE:
    case COMM_REDUCE_SCATTER:
        if (moves)
            combine_sums(g, o->call == COMM_REDUCE_SCATTER, o->count, o->unit);
        return SOTTO_OK;
    case COMM_ALLGATHER:
        if (moves)
            combine_blocks(g, o->count, o->unit);
        return SOTTO_OK;
    case COMM_BROADCAST:
        for (int r = 0; r < g->size && moves; r++)
            if (r != o->root)
                memcpy(g->y[r].data, g->x[o->root].data, o->count);
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
