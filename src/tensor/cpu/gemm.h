/* Matrix products of the CPU table. */
#ifndef SOTTO_TENSOR_CPU_GEMM_H
#define SOTTO_TENSOR_CPU_GEMM_H

#include "tensor/cpu/gemm_plan.h"

/* Whether a product of m rows takes b as bf16. */
bool cpu_gemm_takes_half(int m);
void cpu_gemm(struct device *dev, const struct gemm *g);

/* sums[at, at + n) += the sums of y's first n columns, over rows `stride` elements apart. */
void cpu_add_columns(struct device *dev, struct view sums, size_t at, struct view y, size_t stride,
                     size_t rows, size_t n);

#endif
