/* Matrix products of the CPU table. */
#ifndef SOTTO_TENSOR_CPU_GEMM_GEMM_H
#define SOTTO_TENSOR_CPU_GEMM_GEMM_H

#include "tensor/cpu/gemm/plan.h"

/* True if a product of `m` rows accepts b as bf16. */
bool cpu_gemm_takes_half(int m);
void cpu_gemm(struct device *dev, const struct gemm *g);
/* True if two products at once take less time than one after the other. */
bool cpu_gemm_takes_both(const struct device *dev);
/* Computes two independent products at once; each has its own `room`. */
void cpu_gemm_both(struct device *dev, const struct gemm *g, const struct gemm *h);

/* Adds to `sums` (n) the sums of y's first n columns; rows of y are `stride` elements apart. */
void cpu_add_columns(struct device *dev, struct view sums, struct view y, size_t stride,
                     size_t rows, size_t n);

#endif
