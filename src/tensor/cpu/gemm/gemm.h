/* Matrix products of the CPU table. */
#ifndef SOTTO_TENSOR_CPU_GEMM_GEMM_H
#define SOTTO_TENSOR_CPU_GEMM_GEMM_H

#include "tensor/cpu/gemm/plan.h"

/* Whether a product of m rows takes b as bf16. */
bool cpu_gemm_takes_half(int m);
void cpu_gemm(struct device *dev, const struct gemm *g);
/* Whether two products at once take less time than one after the other. */
bool cpu_gemm_takes_both(const struct device *dev);
/* Two that have nothing to do with each other, with rooms of their own. */
void cpu_gemm_both(struct device *dev, const struct gemm *g, const struct gemm *h);

/* sums (n) += the sums of y's first n columns, over rows `stride` elements apart. */
void cpu_add_columns(struct device *dev, struct view sums, struct view y, size_t stride,
                     size_t rows, size_t n);

#endif
