#include "train/null_oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void drop(struct null_oracle *o, int k)
{
    if (o->held[k])
        memory_remove(o->dev->memory, MEMORY_ACTIVATIONS, o->held[k]);
    o->held[k] = 0;
}

static void drop_all(struct null_oracle *o)
{
    for (int k = 0; k < o->base.table->n_stage; k++)
        drop(o, k);
}

/* A micro-batch is three parts: the forward pass, and a backward pass of twice its work. */
static enum sotto_status compute(struct null_oracle *o, int k, int parts)
{
    const struct table *table = o->base.table;
    struct worker *w = o->worker;
    double share = (double)table_stage_count(table, k) / (double)table_count(table);
    double start = clock_now(w->clock);
    TRY(w->ops->compute(w, NULL, NULL, o->config.seconds * share * parts / 3));
    o->base.seconds += clock_now(w->clock) - start;
    return SOTTO_OK;
}

/* Bytes of the activations of all stages before k, so that the stages' add up to the whole. */
static size_t activations_before(const struct null_oracle *o, int k)
{
    const struct table *table = o->base.table;
    if (k == table->n_stage)
        return o->config.activations;
    return (size_t)((double)o->config.activations * (double)table->stage_start[k] /
                    (double)table_count(table));
}

static enum sotto_status begin(struct oracle *oracle, int64_t index, bool sum)
{
    (void)index, (void)sum;
    drop_all((struct null_oracle *)oracle); /* of one that was left unfinished */
    return SOTTO_OK;
}

static enum sotto_status forward(struct oracle *oracle, int k, const struct view *theta)
{
    (void)theta;
    struct null_oracle *o = (struct null_oracle *)oracle;
    drop(o, k); /* computed again */
    o->held[k] = activations_before(o, k + 1) - activations_before(o, k);
    memory_add(o->dev->memory, MEMORY_ACTIVATIONS, o->held[k]);
    return compute(o, k, 1);
}

static enum sotto_status backward(struct oracle *oracle, int k, const struct view *theta,
                                  const struct view *grad)
{
    (void)theta, (void)grad;
    struct null_oracle *o = (struct null_oracle *)oracle;
    TRY(compute(o, k, 2));
    drop(o, k);
    return SOTTO_OK;
}

static struct oracle_result result(struct oracle *oracle)
{
    const struct null_oracle *o = (const struct null_oracle *)oracle;
    return (struct oracle_result){0, o->config.tokens, o->config.tokens};
}

static const struct oracle_ops null_oracle_ops = {
    .begin = begin, .forward = forward, .backward = backward, .result = result};

enum sotto_status null_oracle_init(struct null_oracle *o, const struct table *table,
                                   struct worker *worker, struct device *dev,
                                   const struct null_config *config)
{
    *o = (struct null_oracle){.base = {.ops = &null_oracle_ops, .table = table},
                              .worker = worker,
                              .dev = dev,
                              .config = *config};
    if (!(config->seconds >= 0) || !isfinite(config->seconds))
        return fail(SOTTO_EINVAL, "a micro-batch of %g seconds: want 0 or more", config->seconds);
    o->held = calloc((size_t)table->n_stage, sizeof *o->held);
    return o->held ? SOTTO_OK : fail(SOTTO_ENOMEM, "no memory for %d stages", table->n_stage);
}

void null_oracle_free(struct null_oracle *o)
{
    if (o->held)
        drop_all(o);
    free(o->held);
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
