/* bf16 copies of fp32 gradients for sending. The lane sends a stage at a time, so a buffer for the
 * largest stage is enough. */
#include "strategy/shard/shard.h"

#include "tensor/ops.h"

size_t shard_largest(const struct shard *s)
{
    const struct table *table = s->is.oracle->table;
    size_t most = 0;
    for (int k = 0; k < table->n_stage; k++)
        if (table_stage_count(table, k) > most)
            most = table_stage_count(table, k);
    return most;
}

enum sotto_status shard_wire_open(struct shard *s, size_t most)
{
    struct device *dev = s->is.dev;
    const struct strategy_config *c = s->is.config;
    if (c->precision != PRECISION_MIXED || strategy_grad_type(c) == DTYPE_BF16)
        return SOTTO_OK;
    return buffer_init(&s->wire, dev, DTYPE_BF16, most, MEMORY_COMMUNICATION);
}

enum sotto_status shard_narrow(struct shard *s, struct view g, size_t count, struct view *sent)
{
    *sent = g;
    if (!s->wire.dev)
        return SOTTO_OK;
    *sent = s->wire.view;
    const struct work on = work_in(s->is.mesh, s->is.mesh->lane);
    return work_copy(&on, *sent, g, count);
}

enum sotto_status shard_widen(struct shard *s, struct view g, struct view sent, size_t count)
{
    if (!s->wire.dev)
        return SOTTO_OK;
    const struct work on = work_in(s->is.mesh, s->is.mesh->lane);
    return work_copy(&on, g, sent, count);
}
