/* Memory of the stages of a worker of cyclic data parallelism, and the state of a stage that
 * arrives there.
 *
 * In fp32 the newest version and the true parameters are the same vector; the version before is
 * copied when a step moves them. In mixed precision both versions are bf16, a step writes the
 * newest in the place of the oldest, and the true fp32 parameters move with the optimizer's state.
 */
#include "strategy/cdp/cdp.h"

#include <assert.h>
#include <stdlib.h>

/* Opens a room for a stage like `st`, with `older` elements for the version before. */
static enum sotto_status open_stage_room(struct cdp *c, struct cdp_room *room,
                                         const struct cdp_stage *st, size_t older)
{
    const struct strategy_setup *is = &c->shard.is;
    const enum dtype type = strategy_type(is->config), sums = strategy_grad_type(is->config);
    const bool waits = c->is.together && c->is.rule == CDP_V1;
    const size_t count = st->count;
    TRY(buffer_init(&room->theta[0], is->dev, type, count, MEMORY_PARAMETERS));
    if (older)
        TRY(buffer_init(&room->theta[1], is->dev, type, older, MEMORY_PARAMETERS));
    TRY(buffer_init(&room->g[0], is->dev, sums, count, MEMORY_GRADIENTS));
    if (!st->owned)
        return SOTTO_OK;
    if (waits)
        TRY(buffer_init(&room->g[1], is->dev, sums, count, MEMORY_GRADIENTS));
    if (type != DTYPE_F32)
        TRY(buffer_init(&room->x, is->dev, DTYPE_F32, count, MEMORY_OPTIMIZER));
    for (int i = 0; i < optim_states(is->optim); i++)
        TRY(buffer_init(&room->state[i], is->dev, DTYPE_F32, count, MEMORY_OPTIMIZER));
    return SOTTO_OK;
}

static size_t larger_count(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* zero: opens rooms that stages of even and odd number use in turn. */
static enum sotto_status open_rooms_in_turn(struct cdp *c)
{
    for (int i = 0; i < c->rooms; i++) {
        struct cdp_stage any = {.owned = true};
        size_t older = 0;
        for (int k = i; k < c->is.n; k += c->rooms) {
            const struct cdp_stage *st = &c->stage[k];
            any.count = larger_count(any.count, st->count);
            older = larger_count(older, st->two ? st->count : 0);
        }
        TRY(open_stage_room(c, &c->room[i], &any, older));
    }
    for (int k = 0; k < c->is.n; k++)
        if (cdp_stage_home(c, k) == c->device)
            cdp_enter_room(&c->stage[k], cdp_vacant_room(c, k));
    return SOTTO_OK;
}

static enum sotto_status open_stage_rooms(struct cdp *c)
{
    if (c->is.placement == CDP_ZERO)
        return open_rooms_in_turn(c);
    for (int k = 0; k < c->is.n; k++) {
        struct cdp_stage *st = &c->stage[k];
        if (!st->here)
            continue;
        TRY(open_stage_room(c, &c->room[k], st, st->two ? st->count : 0));
        cdp_enter_room(st, &c->room[k]);
    }
    return SOTTO_OK;
}

enum sotto_status cdp_rooms_open(struct cdp *c)
{
    struct shard *s = &c->shard;
    const bool adds = c->is.rule == CDP_SYNC || c->is.placement == CDP_MP;
    c->rooms = c->is.placement != CDP_ZERO ? c->is.n : c->devices > 1 ? 2 : 1;
    c->room = calloc((size_t)c->rooms, sizeof *c->room);
    if (!c->room)
        return fail(SOTTO_ENOMEM, "no memory for %d stages", c->rooms);
    TRY(open_stage_rooms(c));
    if (adds && c->devices > 1)
        TRY(buffer_init(&c->added, s->is.dev, strategy_grad_type(s->is.config), shard_largest(s),
                        MEMORY_COMMUNICATION));
    return SOTTO_OK;
}

void cdp_rooms_free(struct cdp *c)
{
    for (int k = 0; c->room && k < c->rooms; k++) {
        struct cdp_room *room = &c->room[k];
        for (int i = 0; i < 2; i++) {
            buffer_free(&room->theta[i]);
            buffer_free(&room->g[i]);
            buffer_free(&room->state[i]);
        }
        buffer_free(&room->x);
    }
    buffer_free(&c->added);
    free(c->room);
}

struct view cdp_truth(const struct cdp_stage *st)
{
    return st->room->x.dev ? st->room->x.view : st->theta[0];
}

void cdp_enter_room(struct cdp_stage *st, struct cdp_room *room)
{
    st->room = room;
    st->theta[0] = room->theta[0].view;
    st->theta[1] = room->theta[1].view;
    st->g[0] = room->g[0].view;
    st->g[1] = room->g[1].dev ? room->g[1].view : st->g[0];
    optim_lend(&st->steps, room->state);
}

struct cdp_room *cdp_vacant_room(struct cdp *c, int k)
{
    struct cdp_room *room = &c->room[k % c->rooms];
    for (int j = 0; j < c->is.n; j++)
        assert(c->stage[j].room != room);
    return room;
}

int cdp_state_vectors(const struct cdp *c, const struct cdp_move *move, bool receives,
                      struct view out[CDP_VECTORS])
{
    const struct cdp_stage *st = &c->stage[move->stage];
    const struct cdp_room *room = st->room;
    assert(receives || !(move->parts & CDP_PART_NEWEST) || st->version == move->version);
    const bool beside = receives && c->is.placement == CDP_MP && st->two;
    int n = 0;
    if (room->x.dev) /* theta is rounded from x, so x alone is sent */
        out[n++] = room->x.view;
    else if (move->parts & CDP_PART_NEWEST)
        out[n++] = st->theta[beside];
    if (move->parts & CDP_PART_OLDER)
        out[n++] = st->theta[1];
    if (move->parts & CDP_PART_SUM)
        out[n++] = st->g[move->step & 1];
    if (move->parts & CDP_PART_WAITING)
        out[n++] = st->g[(move->step + 1) & 1];
    for (int i = 0; i < 2; i++)
        if (room->state[i].dev)
            out[n++] = room->state[i].view;
    return n;
}

void cdp_advance_version(struct cdp_stage *st, int64_t version)
{
    if (st->two) {
        const struct view newest = st->theta[1];
        st->theta[1] = st->theta[0];
        st->theta_sent[1] = st->theta_sent[0];
        st->theta[0] = newest;
    }
    st->version = version;
}

enum sotto_status cdp_install_state(struct cdp *c, const struct cdp_move *move)
{
    struct cdp_stage *st = &c->stage[move->stage];
    if (!(move->parts & CDP_PART_NEWEST))
        return SOTTO_OK;
    if (c->is.placement == CDP_MP)
        cdp_advance_version(st, move->version); /* theta stays in use as the older version */
    st->version = move->version;
    return st->room->x.dev ? work_copy(&c->shard.on, st->theta[0], st->room->x.view, st->count)
                           : SOTTO_OK;
}
