/* A part of a matrix product: rows [i, i + m), columns [j, j + n), depth [l, l + k). */
#ifndef SOTTO_TENSOR_CPU_GEMM_PART_H
#define SOTTO_TENSOR_CPU_GEMM_PART_H

#include "tensor/cpu/gemm/plan.h"

struct gemm_part {
    const struct gemm_plan *plan;
    float *a, *b;      /* packed                                                        */
    float *sums;       /* (optional) (m, plan->columns): they stay here, nothing added  */
    bool new_a, new_b; /* not packed before                                             */
    int i, m, j, n, l, k;
};

/* Rows change fastest, then depth, then columns. */
struct gemm_part part_of(const struct gemm_plan *plan, int index);

/* Its strips that are new, of rows and then of columns; and its tiles. */
int part_strips(const struct gemm_part *p);
void part_pack(const struct gemm_part *p, int strip);
int part_tiles(const struct gemm_part *p);
void part_multiply(const struct gemm_part *p, int tile);

/* Adds what was left in `sums`. */
void part_add(const struct gemm_part *p);

/* Elements (i, j) to (i + m, j + n) of c, which are at `at`, from bf16, and back: while a tile is
 * in the cache. */
void gemm_widen(const struct vector_kernels *f, const struct gemm *g, float *at, size_t ld,
                size_t i, size_t j, int m, int n);
void gemm_narrow(const struct vector_kernels *f, const struct gemm *g, const float *at, size_t ld,
                 size_t i, size_t j, int m, int n);

#endif
