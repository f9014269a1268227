/* Shared by the tests of the op tables: kernels, mixes of types, and the name of a case. */
#ifndef SOTTO_TESTS_TENSOR_OP_CHECK_H
#define SOTTO_TESTS_TENSOR_OP_CHECK_H

#include <math.h>

#include "base/scratch.h"
#include "tensor/cpu/cpu.h"
#include "tensor/op_cases.h"

static struct memory memory;

/* Kernels, the fastest ones first. */
static const char *const variants[] = {"amx", "v4", "v3", "bf16", "baseline"};
enum { VARIANTS = sizeof variants / sizeof *variants };

/* Kinds of operands that are bf16: none, all, weights alone, activations and gradients. */
static const unsigned halves[] = {0, KIND_ACTIVATION | KIND_WEIGHT | KIND_GRADIENT, KIND_WEIGHT,
                                  KIND_WEIGHT | KIND_GRADIENT, KIND_ACTIVATION | KIND_GRADIENT};
enum { HALVES = sizeof halves / sizeof *halves };

/* True if this run takes the case `i / HALVES` with its mix of types `i % HALVES`: one in
 * OP_STRIDE, and of cases with millions of elements, most of what the table costs, with a share one
 * in six of these. */
static inline bool op_share_has(size_t i)
{
    const bool rare = share_given() && op_case_elements(&op_cases[i / HALVES]) > 2000000;
    const size_t step = (size_t)share_step(rare ? 6 * OP_STRIDE : OP_STRIDE);
    return i % step == share_number() % step;
}

static inline double element(struct view v, size_t i)
{
    return v.type == DTYPE_F32 ? ((float *)v.data)[i] : bf16_widen(((uint16_t *)v.data)[i]);
}

static inline void print_case(const struct op_case *c, unsigned half)
{
    print_error("%s (%s) =", c->op, family_of(c)->shape);
    for (int i = 0; i < 8; i++)
        print_error(" %d", c->d[i]);
    print_error(", flags %u, bf16 %u: ", c->flags, half);
}

#endif
