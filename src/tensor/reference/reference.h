/* The reference table: every op as its formula, element by element in double precision, for
 * tests. Shares only memory with the cpu table, and is not tuned. */
#ifndef SOTTO_TENSOR_REFERENCE_REFERENCE_H
#define SOTTO_TENSOR_REFERENCE_REFERENCE_H

#include "tensor/ops.h"

static inline double get_value(struct view v, size_t i)
{
    return v.type == DTYPE_F32 ? ((const float *)v.data)[i]
                               : bf16_widen(((const uint16_t *)v.data)[i]);
}

static inline void set_value(struct view v, size_t i, double value)
{
    if (v.type == DTYPE_F32)
        ((float *)v.data)[i] = (float)value;
    else
        ((uint16_t *)v.data)[i] = bf16_round((float)value);
}

static inline void put_add(struct view v, size_t i, double value, bool add)
{
    set_value(v, i, add ? get_value(v, i) + value : value);
}

/* Returns 0 for an absent view. */
static inline double get_or_zero(struct view v, size_t i)
{
    return v.data ? get_value(v, i) : 0;
}

/* The ops of the table: reference_fill, reference_copy, ... */
#define OP(op, ...) void reference_##op(OP_PARAMETERS(__VA_ARGS__));
#include "tensor/op_list.h"

#endif
