#include "train/oracle/null_oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static size_t *held_bytes(struct null_oracle *o, int slot, int k)
{
    return &o->held[slot * o->base.table->n_stage + k];
}

static void release_held(struct null_oracle *o, int slot, int k)
{
    size_t *bytes = held_bytes(o, slot, k);
    if (*bytes)
        memory_remove(o->dev->memory, MEMORY_ACTIVATIONS, *bytes);
    *bytes = 0;
}

static void release_all_held(struct null_oracle *o, int slot)
{
    for (int k = 0; k < o->base.table->n_stage; k++)
        release_held(o, slot, k);
}

/* Takes the time of a stage. A micro-batch has three parts: a forward pass, and a backward pass of
 * twice its work. */
static enum sotto_status null_compute(struct null_oracle *o, int slot, int k, int parts)
{
    const struct table *table = o->base.table;
    struct worker *w = o->worker;
    double share = (double)table_stage_count(table, k) / (double)table_count(table);
    double start = clock_now(w->clock);
    w->computing = o->number[slot];
    TRY(w->ops->compute(w, NULL, NULL, o->config.seconds * share * parts / 3));
    o->base.seconds += clock_now(w->clock) - start;
    return SOTTO_OK;
}

/* Returns the bytes of activations of all stages before k, so that stages sum to the whole. */
static size_t activations_before(const struct null_oracle *o, int k)
{
    const struct table *table = o->base.table;
    if (k == table->n_stage)
        return o->config.activations;
    return (size_t)((double)o->config.activations * (double)table->stage_start[k] /
                    (double)table_count(table));
}

/* Writes a row of the trace. `most`: peak bytes during the stage. */
static void trace_stage(struct null_oracle *o, int slot, int k, bool backward, size_t most)
{
    if (o->config.trace)
        trace_put(o->config.trace,
                  &(struct trace_row){clock_now(o->worker->clock), o->place[slot], k, backward,
                                      o->dev->memory->now[MEMORY_ACTIVATIONS], most});
}

static enum sotto_status null_begin(struct oracle *oracle, int slot, int64_t index, int rank,
                                    bool sum)
{
    (void)sum;
    struct null_oracle *o = (struct null_oracle *)oracle;
    release_all_held(o, slot); /* of an unfinished micro-batch */
    o->number[slot] = o->worker->begun++;
    o->place[slot] = index * o->worker->size + rank;
    return SOTTO_OK;
}

/* Supported as by models, so that gradients are not filled with zeros. */
static void null_fresh(struct oracle *oracle, int slot)
{
    (void)oracle, (void)slot;
}

static enum sotto_status null_forward(struct oracle *oracle, int slot, int k,
                                      const struct view *theta)
{
    (void)theta;
    struct null_oracle *o = (struct null_oracle *)oracle;
    release_held(o, slot, k); /* computed again */
    *held_bytes(o, slot, k) = activations_before(o, k + 1) - activations_before(o, k);
    memory_add(o->dev->memory, MEMORY_ACTIVATIONS, *held_bytes(o, slot, k));
    TRY(null_compute(o, slot, k, 1));
    trace_stage(o, slot, k, false, o->dev->memory->now[MEMORY_ACTIVATIONS]);
    return SOTTO_OK;
}

static enum sotto_status null_backward(struct oracle *oracle, int slot, int k,
                                       const struct view *theta, const struct view *grad)
{
    (void)theta, (void)grad;
    struct null_oracle *o = (struct null_oracle *)oracle;
    const size_t most = o->dev->memory->now[MEMORY_ACTIVATIONS];
    TRY(null_compute(o, slot, k, 2));
    release_held(o, slot, k);
    trace_stage(o, slot, k, true, most);
    return SOTTO_OK;
}

/* An edge is part of a stage's declared activations, so it is not accounted. */
static enum sotto_status null_edge(struct oracle *oracle, int slot, int k, bool gradient,
                                   struct view *out, size_t *count)
{
    (void)slot, (void)k, (void)gradient;
    *out = view_none;
    *count = ((const struct null_oracle *)oracle)->config.edge;
    return SOTTO_OK;
}

static void null_drop(struct oracle *oracle, int slot, int k)
{
    (void)oracle, (void)slot, (void)k;
}

static enum sotto_status null_result(struct oracle *oracle, int slot, struct device *dev,
                                     struct oracle_result *out)
{
    const struct null_oracle *o = (const struct null_oracle *)oracle;
    (void)slot, (void)dev;
    *out = (struct oracle_result){0, o->config.tokens, o->config.tokens};
    return SOTTO_OK;
}

static const struct oracle_ops null_oracle_ops = {.begin = null_begin,
                                                  .fresh = null_fresh,
                                                  .forward = null_forward,
                                                  .backward = null_backward,
                                                  .edge = null_edge,
                                                  .drop = null_drop,
                                                  .result = null_result};

enum sotto_status null_oracle_init(struct null_oracle *o, const struct table *table,
                                   struct worker *worker, struct device *dev,
                                   const struct null_config *config)
{
    const int slots = config->slots ? config->slots : 1;
    *o = (struct null_oracle){
        .base = {.ops = &null_oracle_ops, .table = table, .slots = slots, .rank = worker->rank},
        .worker = worker,
        .dev = dev,
        .config = *config};
    if (!(config->seconds >= 0) || !isfinite(config->seconds))
        return fail(SOTTO_EINVAL, "a micro-batch of %g seconds: want 0 or more", config->seconds);
    o->number = calloc((size_t)slots, sizeof *o->number);
    o->place = calloc((size_t)slots, sizeof *o->place);
    o->held = calloc((size_t)slots * (size_t)table->n_stage, sizeof *o->held);
    return o->held && o->number && o->place
               ? SOTTO_OK
               : fail(SOTTO_ENOMEM, "no memory for %d stages", table->n_stage);
}

void null_oracle_free(struct null_oracle *o)
{
    for (int i = 0; i < o->base.slots && o->held; i++)
        release_all_held(o, i);
    free(o->held);
    free(o->number);
    free(o->place);
    *o = (struct null_oracle){0};
}

enum sotto_status null_table(struct table *table, size_t parameters, int n_stage, int pad)
{
    *table = (struct table){0};
    if (n_stage < 1 || parameters < (size_t)n_stage)
        return fail(SOTTO_EINVAL, "%zu parameters cannot be cut into %d stages", parameters,
                    n_stage);
    enum sotto_status st = SOTTO_OK;
    for (int k = 0; k < n_stage && st == SOTTO_OK; k++) {
        struct comm_block part = comm_block(parameters, n_stage, k);
        const int64_t shape[] = {(int64_t)(part.end - part.begin), 0};
        char name[TABLE_NAME_ROOM];
        snprintf(name, sizeof name, "stage.%d", k);
        int i = table_add(table, name, shape, TABLE_ZERO, 0);
        if (i >= 0)
            table->entry[i].stage = k;
        else
            st = fail(SOTTO_ENOMEM, "no memory for %d stages", n_stage);
    }
    if (st == SOTTO_OK)
        st = table_layout(table, n_stage, pad);
    if (st != SOTTO_OK)
        table_free(table);
    return st;
}
