/* Matrix products of the CPU table. */
#ifndef SOTTO_TENSOR_CPU_GEMM_H
#define SOTTO_TENSOR_CPU_GEMM_H

#include "tensor/cpu/cpu.h"

/* c (m, n) = op(a) op(b) + bias + residual, or c += op(a) op(b) when `add`; row-major, k >= 1. */
struct gemm {
    int m, n, k;
    bool trans_a, trans_b; /* a is (k, m), b is (n, k) */
    bool add;
    const float *a, *b;
    float *c;
    size_t lda, ldb, ldc;
    const float *bias;     /* (optional) (n)                    */
    const float *residual; /* (optional) (m, n), may be c       */
    size_t ld_residual;
    float *room; /* cpu_gemm_room floats of scratch, 64-byte aligned */
};

size_t cpu_gemm_room(const struct device *dev, int m, int n, int k);
void cpu_gemm(struct device *dev, const struct gemm *g);

#endif
