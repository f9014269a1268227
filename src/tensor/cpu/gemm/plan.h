/* A matrix product, and how it is cut for the threads that it has. */
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

/* A product (m, n): parts down (rows), across (columns) and along the depth, of so many rows,
 * columns and so deep each; tiles of a part. */
struct gemm_plan {
    const struct gemm *g; /* whoever multiplies sets it */
    int m, n;
    int threads; /* that it is cut for */
    const struct vector_kernels *vector;
    const struct gemm_kernels *kernels;
    int down, across, deep;
    int rows, columns, depth;
    int tile_rows, tile_columns;
    int abreast;       /* slices at once                                          */
    int help;          /* parts left of a block for which others pack its rows, too */
    bool send;         /* results go past the caches                              */
    float *a, *b;      /* packed: of the team, or of the first thread             */
    size_t apart;      /* floats from a thread's to the next one's                */
    atomic_int *taken; /* (deep, down): parts of a slice and block that are taken */
    /* What is in the result, and what waits for it: see gemm/many.c. */
    atomic_int *added; /* (down, across)                                          */
    atomic_int *left;  /* (down, across, abreast)                                   */
    float *sums;       /* (down, across, abreast, rows, columns) where abreast > 1    */
};
/* Of depth k; `half`: operands may be rounded to bf16. */
struct gemm_plan gemm_plan_of(const struct device *dev, int m, int n, int k, bool half, float *room,
                              int threads);
/* For so many of the device's many threads; there is room for all, since any may help. */
struct gemm_plan gemm_plan_many(const struct device *dev, int m, int n, int k, bool half,
                                float *room, int threads);

/* Floats of `room`. */
size_t cpu_gemm_room(const struct device *dev, int m, int n, int k, bool half);
/* The deepest product of one slice. */
int cpu_gemm_slice(const struct device *dev, bool half);
/* Floats of `tiles` for a product of depth k; 0: it needs c. */
size_t cpu_gemm_tiles(const struct device *dev, int k, bool half);

#endif
