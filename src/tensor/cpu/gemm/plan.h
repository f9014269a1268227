/* A matrix product, and its cut into parts for the threads of a team. */
#ifndef SOTTO_TENSOR_CPU_GEMM_PLAN_H
#define SOTTO_TENSOR_CPU_GEMM_PLAN_H

#include <stdatomic.h>

#include "tensor/cpu/cpu.h"

/* c (m, n) = op(a) op(b) + bias + residual, or c += op(a) op(b) when `add`; row-major, k >= 1. */
struct gemm {
    int m, n, k;
    bool trans_a, trans_b; /* a is (k, m), b is (n, k) */
    bool add;
    bool half; /* operands may be rounded to bf16 */
    const float *a, *b;
    const uint16_t *b_half; /* in place of b, where cpu_gemm_takes_half */
    float *c;               /* (optional) NULL if c_to and `tiles` are given */
    size_t lda, ldb, ldc;
    const uint16_t *c_from; /* (optional) bf16: initial value of c, which is scratch then */
    uint16_t *c_to;         /* (optional) bf16: receives c, rounded once                  */
    size_t ld_half;         /* row stride of c_from and c_to, elements                    */
    const float *bias;      /* (optional) (n)                                             */
    const float *residual;  /* (optional) (m, n), may be c                                */
    size_t ld_residual;
    float *room;  /* scratch: cpu_gemm_room floats, 64-byte aligned */
    float *tiles; /* (optional) cpu_gemm_tiles floats, aligned like room: replace c, tile by tile */
};

/* A product (m, n), cut into parts: `down` (rows) times `across` (columns) times `deep` (slices of
 * the depth), each of `rows`, `columns` and `depth` at most. A part is cut into tiles. */
struct gemm_plan {
    const struct gemm *g; /* set by the caller before the product runs */
    int m, n;
    int threads; /* threads of the team */
    const struct vector_kernels *vector;
    const struct gemm_kernels *kernels;
    int down, across, deep;
    int rows, columns, depth;
    int tile_rows, tile_columns;
    int abreast;          /* slices multiplied at once */
    int help;             /* parts left in a block that are worth packing the block's rows again */
    bool send;            /* results bypass the caches */
    float *a, *b;         /* packed operands: of the team, or of thread 0 */
    size_t thread_stride; /* floats from one thread's packed operands to the next thread's */
    atomic_int *taken;    /* (deep, down): parts taken from a slice of a block */
    /* Progress of the result, see gemm/many.c. */
    atomic_int *added; /* (down, across)                                          */
    atomic_int *left;  /* (down, across, abreast)                                   */
    float *sums;       /* (down, across, abreast, rows, columns) where abreast > 1    */
};
/* Returns the plan of a product (m, n) of depth k for a team of `threads`; `half`: operands may be
 * rounded to bf16. `room` is the product's scratch. */
struct gemm_plan gemm_plan_of(const struct device *dev, int m, int n, int k, bool half, float *room,
                              int threads);
/* Returns the plan for a team of many threads. `room` has space for all threads of the device,
 * since any thread may help. */
struct gemm_plan gemm_plan_many(const struct device *dev, int m, int n, int k, bool half,
                                float *room, int threads);

/* Returns the floats of `room`. */
size_t cpu_gemm_room(const struct device *dev, int m, int n, int k, bool half);
/* Returns the largest depth of a product with a single slice. */
int cpu_gemm_slice(const struct device *dev, bool half);
/* Returns the floats of `tiles` for a product of depth k; 0: the product needs c. */
size_t cpu_gemm_tiles(const struct device *dev, int k, bool half);

#endif
