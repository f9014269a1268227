/* Parameters and state of cyclic data parallelism between rounds. A stage is then at its home
 * (cdp_stage_home), which may change with every step. */
#include "strategy/cdp/cdp.h"

#include <stdlib.h>

#include "tensor/ops.h"

/* Broadcasts stage k, whose home has written the true parameters to `stage`. */
static enum sotto_status broadcast_from_home(struct cdp *c, int k, struct view stage)
{
    if (c->devices == 1)
        return SOTTO_OK;
    return comm_broadcast(c->shard.is.mesh->shard, stage, c->stage[k].count, cdp_stage_home(c, k));
}

enum sotto_status cdp_gather(struct strategy *strategy, const struct view **theta)
{
    struct cdp *c = (struct cdp *)strategy;
    struct shard *s = &c->shard;
    const struct table *table = s->is.oracle->table;
    struct device *dev = s->is.dev;
    if (!s->whole.dev)
        TRY(buffer_init(&s->whole, dev, strategy_type(s->is.config), table_count(table),
                        MEMORY_SCRATCH));
    for (int k = 0; k < c->is.n; k++) {
        const struct view stage = view_at(s->whole.view, table->stage_start[k]);
        if (cdp_stage_home(c, k) == c->device)
            dev->ops->copy(dev, stage, cdp_truth(&c->stage[k]), c->stage[k].count);
        TRY(broadcast_from_home(c, k, stage));
        s->whole_stage[k] = stage;
    }
    *theta = s->whole_stage;
    return device_check(dev);
}

enum sotto_status cdp_export(struct strategy *strategy, float *flat)
{
    struct cdp *c = (struct cdp *)strategy;
    struct device *dev = c->shard.is.dev;
    const struct table *table = c->shard.is.oracle->table;
    const size_t most = shard_largest(&c->shard);
    float *room =
        flat ? NULL
             : malloc(most * sizeof *room); /* this worker only takes part in the broadcasts */
    enum sotto_status st = SOTTO_OK;
    if (!flat && !room)
        return fail(SOTTO_ENOMEM, "no memory for a stage of %zu parameters", most);
    for (int k = 0; k < c->is.n && st == SOTTO_OK; k++) {
        float *stage = flat ? flat + table->stage_start[k] : room;
        if (cdp_stage_home(c, k) == c->device)
            dev->ops->read(dev, stage, cdp_truth(&c->stage[k]), c->stage[k].count);
        st = device_check(dev);
        if (st == SOTTO_OK)
            st = broadcast_from_home(c, k, view_of(stage, DTYPE_F32));
    }
    free(room);
    return st;
}

/* Moves stage k's optimizer state from one device to another. `arrived`: buffers for the receiver,
 * whose room may still be in use by another stage. */
static enum sotto_status move_state(struct cdp *c, int k, int from, int to,
                                    struct buffer arrived[2])
{
    const struct strategy_setup *is = &c->shard.is;
    struct cdp_stage *st = &c->stage[k];
    for (int i = 0; i < optim_states(is->optim); i++) {
        if (from == c->device)
            TRY(comm_send(is->mesh->shard, st->room->state[i].view, st->count, to));
        if (to != c->device)
            continue;
        TRY(buffer_init(&arrived[i], is->dev, DTYPE_F32, st->count, MEMORY_SCRATCH));
        TRY(comm_recv(is->mesh->shard, arrived[i].view, st->count, from));
    }
    if (from == c->device)
        st->room = NULL;
    return SOTTO_OK;
}

/* zero: moves states from their homes between rounds to the places where a schedule begins. */
static enum sotto_status bring_home(struct cdp *c)
{
    struct device *dev = c->shard.is.dev;
    struct cdp_schedule begin = c->is;
    struct buffer arrived[2] = {{.dev = NULL}, {.dev = NULL}};
    int mine = -1;
    enum sotto_status st = SOTTO_OK;
    begin.first = c->t;
    for (int k = 0; k < c->is.n && c->is.placement == CDP_ZERO && st == SOTTO_OK; k++) {
        const int from = cdp_stage_home(c, k), to = cdp_home(&begin, c->t - 1, k);
        if (from == to)
            continue;
        mine = to == c->device ? k : mine;
        st = move_state(c, k, from, to, arrived);
    }
    if (mine >= 0 && st == SOTTO_OK) {
        struct cdp_stage *stage = &c->stage[mine];
        cdp_enter_room(stage, cdp_vacant_room(c, mine));
        for (int i = 0; i < optim_states(c->shard.is.optim); i++)
            dev->ops->copy(dev, stage->room->state[i].view, arrived[i].view, stage->count);
        st = device_check(dev);
    }
    for (int i = 0; i < 2; i++)
        buffer_free(&arrived[i]);
    cdp_start_schedule(c);
    return st;
}

/* Writes a stage's parameters from host memory, rounded where theta is; theta_{-1} = theta_0. */
static void write_stage(struct cdp *c, const struct cdp_stage *st, const float *from,
                        struct view wide)
{
    struct device *dev = c->shard.is.dev;
    dev->ops->write(dev, wide, from, st->count);
    if (st->room->x.dev)
        dev->ops->copy(dev, st->room->x.view, wide, st->count);
    for (int i = 0; i <= st->two; i++)
        dev->ops->copy(dev, st->theta[i], wide, st->count);
}

enum sotto_status cdp_import(struct strategy *strategy, const float *flat)
{
    struct cdp *c = (struct cdp *)strategy;
    struct device *dev = c->shard.is.dev;
    const struct table *table = c->shard.is.oracle->table;
    struct buffer wide;
    TRY(cdp_settle(c));
    TRY(bring_home(c));
    TRY(buffer_init(&wide, dev, DTYPE_F32, shard_largest(&c->shard), MEMORY_SCRATCH));
    for (int k = 0; k < c->is.n; k++)
        if (c->stage[k].room)
            write_stage(c, &c->stage[k], flat + table->stage_start[k], wide.view);
    const enum sotto_status st = device_check(dev);
    buffer_free(&wide);
    buffer_free(&c->shard.whole);
    c->spread = true;
    return st;
}

static bool stored_as(const struct state_visitor *v, const char *name, enum dtype type)
{
    return state_has(v, name) && state_stored_type(v, name, type) == type;
}

/* Visits theta_{t-1}, on the workers that keep it. A file may lack some tensors: all if another
 * method wrote the file, and those of v2's last stage, which v1 or another number of stages needs.
 * A tensor that is missing, or stored in another precision, keeps the value of theta_t, as
 * theta_{-1} is theta_0. */
static enum sotto_status visit_previous(struct cdp *c, struct state_visitor *v)
{
    const struct shard *s = &c->shard;
    const struct table *table = s->is.oracle->table;
    const enum dtype type = strategy_type(s->is.config);
    const bool loads = state_loading(v);
    if (loads && !state_has(v, "previous."))
        return SOTTO_OK;
    TRY(state_enter(v, "previous"));
    for (int k = 0; k < c->is.n && c->t > 0; k++) {
        const bool keeps = cdp_keeper(&c->is, c->t - 1, k) == c->device;
        for (int i = 0; i < table->n && keeps; i++) {
            const struct table_entry *e = &table->entry[i];
            if (e->stage == k && (!loads || stored_as(v, e->name, type)))
                TRY(state_slice(v, e->name, MEMORY_PARAMETERS, s->is.dev,
                                view_at(cdp_theta(c, k, c->t - 1), e->offset), e->count, 0,
                                e->count));
        }
    }
    state_leave(v);
    return loads ? state_ignore(v, "previous.") : SOTTO_OK;
}

enum sotto_status cdp_show_optimizer(void *cdp, struct state_visitor *v, int i)
{
    struct cdp *c = cdp;
    const struct table *table = c->shard.is.oracle->table;
    for (int j = 0; j < table->n; j++) {
        const struct table_entry *e = &table->entry[j];
        const struct cdp_stage *st = &c->stage[e->stage];
        const bool home = cdp_stage_home(c, e->stage) == c->device;
        const struct view none = {.type = DTYPE_F32};
        const struct view at = home ? view_at(st->room->state[i].view, e->offset) : none;
        TRY(state_slice(v, e->name, MEMORY_OPTIMIZER, c->shard.is.dev, at, e->count, 0,
                        home ? e->count
                             : 0)); /* an empty slice: a loader still learns the tensor's name */
    }
    return SOTTO_OK;
}

/* Visits the state. The place in the data is a number of micro-batches, as in other methods,
 * without the shares of single workers. */
enum sotto_status cdp_visit(struct strategy *strategy, struct state_visitor *v)
{
    struct cdp *c = (struct cdp *)strategy;
    struct shard *s = &c->shard;
    const bool loads = state_loading(v);
    int64_t all = c->t * c->is.n;
    if (loads)
        TRY(cdp_settle(c));
    TRY(state_count(v, "microbatches", &all, STATE_STEPS * STATE_WORKERS));
    if (loads) { /* before the rest: decides which worker has which stage */
        c->t = (all + c->is.n - 1) / c->is.n;
        cdp_start_schedule(c);
        c->spread = false;
        TRY(state_ignore(v, "place."));
    }
    TRY(replicate_show(s->replicate, v));
    TRY(visit_previous(c, v));
    return device_check(s->is.dev);
}
