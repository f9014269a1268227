/* A part of a matrix product: rows [i, i + m), columns [j, j + n), depth [l, l + k). */
#ifndef SOTTO_TENSOR_CPU_GEMM_PART_H
#define SOTTO_TENSOR_CPU_GEMM_PART_H

#include "tensor/cpu/gemm/plan.h"

struct gemm_part {
    const struct gemm_plan *plan;
    float *a, *b;      /* packed operands */
    float *sums;       /* (optional) (m, plan->columns): receives the product in place of c */
    bool new_a, new_b; /* true: must be packed */
    int i, m, j, n, l, k;
};

/* Returns part `index` of a plan: rows change fastest, then depth, then columns. */
struct gemm_part part_of(const struct gemm_plan *plan, int index);

/* A part's strips to pack, rows first and then columns, and a part's tiles, which part_pack and
 * part_multiply take by index. */
int part_strips(const struct gemm_part *p);
void part_pack(const struct gemm_part *p, int strip);
int part_tiles(const struct gemm_part *p);
void part_multiply(const struct gemm_part *p, int tile);

/* Adds `sums` to c. */
void part_add(const struct gemm_part *p);

/* Convert elements (i, j) to (i + m, j + n) of c, stored at `at`, from and to bf16 while a tile is
 * in the cache. */
void gemm_widen(const struct vector_kernels *f, const struct gemm *g, float *at, size_t ld,
                size_t i, size_t j, int m, int n);
void gemm_narrow(const struct vector_kernels *f, const struct gemm *g, const float *at, size_t ld,
                 size_t i, size_t j, int m, int n);

#endif
