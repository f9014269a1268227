/* Ways to share a flat vector that no method uses. */
#ifndef SOTTO_TESTS_TENSOR_SHARES_H
#define SOTTO_TESTS_TENSOR_SHARES_H

#include "tensor/owned.h"

/* Worker j owns stage j; with more workers than stages the rest own nothing. */
static inline enum sotto_status own_stage(struct owned *out, const struct table *table, int index,
                                          int of)
{
    (void)of;
    return index < table->n_stage
               ? owned_add(out, table->stage_start[index], table->stage_start[index + 1])
               : SOTTO_OK;
}

/* Every of-th run of two elements, across tensors, padding and stages. */
static inline enum sotto_status own_runs(struct owned *out, const struct table *table, int index,
                                         int of)
{
    const size_t count = table_count(table);
    for (size_t at = 2 * (size_t)index; at < count; at += 2 * (size_t)of)
        TRY(owned_add(out, at, at + 2 < count ? at + 2 : count));
    return SOTTO_OK;
}

#endif
