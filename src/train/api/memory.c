/* The memory of a problem's oracle: copies of parameters and gradients that callbacks cannot use in
 * place, and the micro-batches in progress with the edges between stages. */
#include <stdlib.h>

#include "tensor/ops.h"
#include "train/api/api_impl.h"

static size_t vector_bytes(const struct problem_oracle *o)
{
    return table_count(o->base.table) * sizeof(float);
}

static enum sotto_status open_wide_copy(struct problem_oracle *o, int i)
{
    const struct table *table = o->base.table;
    if (!(o->wide_at[i] = calloc((size_t)table->n_stage, sizeof *o->wide_at[i])))
        return fail(SOTTO_ENOMEM, "no memory for %d stages", table->n_stage);
    TRY(buffer_init(&o->wide[i], o->dev, DTYPE_F32, table_count(table), MEMORY_ACTIVATIONS));
    table_stages(table, o->wide[i].view, o->wide_at[i]);
    o->seen_at[i] = o->wide_at[i];
    return SOTTO_OK;
}

static enum sotto_status open_problem_copies(struct problem_oracle *o, bool mixed)
{
    const struct table *table = o->base.table;
    for (int i = PROBLEM_THETA; i <= PROBLEM_GRAD; i++) {
        if (mixed)
            TRY(open_wide_copy(o, i));
        if (o->dev->ops->place == PLACE_HOST)
            continue;
        o->host[i] = memory_resize(o->dev->memory, MEMORY_ACTIVATIONS, NULL, 0, vector_bytes(o));
        o->seen_at[i] = o->host_at[i] = calloc((size_t)table->n_stage, sizeof *o->host_at[i]);
        if (!o->host[i] || !o->host_at[i])
            return fail(SOTTO_ENOMEM, "no memory for %zu parameters", table_count(table));
        table_stages(table, (struct view){o->host[i], DTYPE_F32, PLACE_HOST}, o->host_at[i]);
    }
    return SOTTO_OK;
}

static enum sotto_status open_problem_slots(struct problem_oracle *o, int64_t seed)
{
    const struct sotto_problem *p = &o->problem;
    const int n = o->base.table->n_stage, slots = o->base.slots;
    if (slots > 1 && !p->gradient && !p->worker_slots)
        return fail(SOTTO_EINVAL,
                    "the method has %d micro-batches in progress at once, and the problem has no "
                    "worker_slots to tell them apart",
                    slots);
    if (!(o->slot = calloc((size_t)slots, sizeof *o->slot)))
        return fail(SOTTO_ENOMEM, "no memory for %d micro-batches", slots);
    for (int i = 0; i < slots; i++) {
        o->slot[i].batch = (struct sotto_microbatch){.struct_size = sizeof o->slot[i].batch,
                                                     .size = o->worker->size,
                                                     .seed = seed,
                                                     .slot = i};
        for (int g = 0; g < 2 && p->edges; g++) {
            float **edge = o->slot[i].edge[g] = calloc((size_t)n, sizeof *edge);
            for (int k = 1; k < n && edge; k++)
                if (!(edge[k] = memory_resize(o->dev->memory, MEMORY_ACTIVATIONS, NULL, 0,
                                              p->edges[k] * sizeof **edge)))
                    edge = NULL;
            if (!edge)
                return fail(SOTTO_ENOMEM, "no memory for what passes between %d stages", n);
        }
    }
    return SOTTO_OK;
}

enum sotto_status problem_memory_init(struct problem_oracle *o, bool mixed, int64_t seed)
{
    TRY(open_problem_copies(o, mixed));
    return open_problem_slots(o, seed);
}

void problem_memory_free(struct problem_oracle *o)
{
    for (int i = PROBLEM_THETA; i <= PROBLEM_GRAD; i++) {
        buffer_free(&o->wide[i]);
        free(o->wide_at[i]);
        memory_give(o->dev->memory, MEMORY_ACTIVATIONS, o->host[i], vector_bytes(o));
        free(o->host_at[i]);
    }
    for (int i = 0; i < o->base.slots && o->slot; i++) {
        for (int g = 0; g < 2 && o->slot[i].edge[g]; g++) {
            for (int k = 1; k < o->base.table->n_stage; k++)
                memory_give(o->dev->memory, MEMORY_ACTIVATIONS, o->slot[i].edge[g][k],
                            o->problem.edges[k] * sizeof(float));
            free(o->slot[i].edge[g]);
        }
    }
    free(o->slot);
}
