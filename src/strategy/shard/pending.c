/* Gradients of a checkpoint that were computed and not applied yet. */
#include "strategy/shard/shard.h"

#include <assert.h>
#include <float.h>

#include "tensor/ops.h"

/* Visits a gradient; a file may have another type, of another method or other options. */
static enum sotto_status visit_gradient(struct shard *s, struct state_visitor *v, struct view g)
{
    const struct table *table = s->is.oracle->table;
    struct device *dev = s->is.dev;
    struct buffer saved;
    const enum dtype type =
        state_loading(v) ? state_stored_type(v, table->entry[0].name, g.type) : g.type;
    if (type == g.type)
        return state_table(v, table, NULL, MEMORY_GRADIENTS, dev, g);
    TRY(buffer_init(&saved, dev, type, table_count(table), MEMORY_SCRATCH));
    enum sotto_status st = state_table(v, table, NULL, MEMORY_GRADIENTS, dev, saved.view);
    if (st == SOTTO_OK)
        dev->ops->copy(dev, g, saved.view, table_count(table));
    buffer_free(&saved);
    return st;
}

static enum sotto_status visit_worker(struct shard *s, struct state_visitor *v, int worker,
                                      int workers, int64_t *next, struct counts *c, struct view g)
{
    const double most = (double)STATE_STEPS;
    TRY(state_enter_own(v, "worker", worker, workers));
    TRY(state_count(v, "next", next, STATE_STEPS));
    TRY(state_within(v, "loss", &c->loss, -DBL_MAX, DBL_MAX));
    TRY(state_within(v, "targets", &c->targets, 0, most));
    TRY(state_within(v, "tokens", &c->tokens, 0, most));
    TRY(state_within(v, "microbatches", &c->microbatches, 0, most));
    TRY(state_enter(v, "g"));
    TRY(visit_gradient(s, v, g));
    state_leave(v);
    state_leave(v);
    return SOTTO_OK;
}

/* Visits the place in the data alone, of any worker of the saved run. */
static enum sotto_status visit_worker_place(struct state_visitor *v, int worker, int workers,
                                            int64_t *next)
{
    TRY(state_enter_own(v, "worker", worker, workers));
    TRY(state_count(v, "next", next, STATE_STEPS));
    state_leave(v);
    return SOTTO_OK;
}

/* Takes over the gradients of workers rank, rank + size, ... of `saved`, so that each gradient is
 * added once. All workers continue after the worker that was furthest in its data. */
static enum sotto_status take_over(struct shard *s, struct state_visitor *v, struct view g,
                                   int saved)
{
    const struct worker *w = s->is.mesh->worker;
    const size_t count = table_count(s->is.oracle->table);
    struct device *dev = s->is.dev;
    struct buffer more = {0};
    enum sotto_status st = buffer_init(&more, dev, g.type, count, MEMORY_SCRATCH);
    s->counts = (struct counts){0};
    dev->ops->fill(dev, g, count, 0);
    int64_t furthest = 0, next = 0;
    for (int i = 0; i < saved && st == SOTTO_OK; i++) {
        struct counts c = {0};
        if (i % w->size == w->rank) {
            st = visit_worker(s, v, i, saved, &next, &c, more.view);
            dev->ops->axpy(dev, g, 1, more.view, count);
        } else {
            st = visit_worker_place(v, i, saved, &next);
        }
        if (st != SOTTO_OK)
            break; /* the values may be out of bounds */
        if (next > furthest)
            furthest = next;
        s->counts.loss += c.loss;
        s->counts.targets += c.targets;
        s->counts.tokens += c.tokens;
        s->counts.microbatches += c.microbatches;
    }
    if (st == SOTTO_OK)
        s->next = (furthest * saved + w->size - 1) / w->size;
    buffer_free(&more);
    return st;
}

enum sotto_status shard_visit_pending(struct shard *s, struct state_visitor *v, struct view g)
{
    const struct worker *w = s->is.mesh->worker;
    int64_t workers = w->size;
    if (state_loading(v)) {
        if (!state_has(v, "pending"))
            return SOTTO_OK;
        TRY(state_count(v, "pending", &workers, STATE_WORKERS));
        if (workers < 1)
            return fail(SOTTO_EFORMAT, "state 'pending' is of %lld workers", (long long)workers);
        s->carried = true;
        s->empty = NULL;
        if (workers == w->size && s->base.ops->history) /* other members need equal places */
            TRY(visit_worker(s, v, w->rank, w->size, &s->next, &s->counts, g));
        else
            TRY(take_over(s, v, g, (int)workers));
        TRY(state_ignore(v, "worker."));
        return device_check(s->is.dev);
    }
    if (!s->carried)
        return SOTTO_OK;
    assert(!s->empty);
    TRY(state_int(v, "pending", &workers));
    return visit_worker(s, v, w->rank, w->size, &s->next, &s->counts, g);
}
