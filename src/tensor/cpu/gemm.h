/* Matrix products of the CPU table. */
#ifndef SOTTO_TENSOR_CPU_GEMM_H
#define SOTTO_TENSOR_CPU_GEMM_H

#include "tensor/cpu/gemm_plan.h"

/* c (m, n) = op(a) op(b) + bias + residual, or c += op(a) op(b) when `add`; row-major, k >= 1. */
struct gemm {
    int m, n, k;
    bool trans_a, trans_b; /* a is (k, m), b is (n, k) */
    bool add;
    bool half; /* operands may be rounded to bf16 */
    const float *a, *b;
    const uint16_t *b_half; /* in place of b, where cpu_gemm_takes_half */
    float *c;               /* (optional) where c_to is, and `tiles` */
    size_t lda, ldb, ldc;
    const uint16_t *c_from; /* (optional) bf16: what is added to, in place of c, which is scratch */
    uint16_t *c_to;         /* (optional) bf16: gets c, rounded once                              */
    size_t ld_half;         /* of both                                                            */
    const float *bias;      /* (optional) (n)                    */
    const float *residual;  /* (optional) (m, n), may be c       */
    size_t ld_residual;
    float *room;  /* cpu_gemm_room floats of scratch, 64-byte aligned              */
    float *tiles; /* (optional) cpu_gemm_tiles floats, the same: in place of c, tile by tile */
};

/* Whether a product of m rows takes b as bf16. */
bool cpu_gemm_takes_half(int m);
void cpu_gemm(struct device *dev, const struct gemm *g);

/* sums[at, at + n) += the sums of y's first n columns, over rows `stride` elements apart. */
void cpu_add_columns(struct device *dev, struct view sums, size_t at, struct view y, size_t stride,
                     size_t rows, size_t n);

#endif
