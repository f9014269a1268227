#include "comm/sum.h"

enum { PIECE = 2048 }; /* elements: a piece and its sources stay in the first cache */

static void add_f32(float *sum, const float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        sum[i] += x[i];
}

static void widen(float *y, const uint16_t *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = bf16_widen(x[i]);
}

static void add_bf16(float *sum, const uint16_t *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum[i] += bf16_widen(x[i]);
}

static void put(struct view out, size_t at, const float *sum, size_t n)
{
    if (out.type == DTYPE_F32) {
        memcpy((float *)out.data + at, sum, n * sizeof *sum);
        return;
    }
    uint16_t *to = (uint16_t *)out.data + at;
    for (size_t i = 0; i < n; i++)
        to[i] = bf16_round(sum[i]);
}

void sum_block(struct view *const out, int n_out, const struct view *x, int size, int first,
               size_t begin, size_t end)
{
    float sum[PIECE];
    for (size_t at = begin; at < end; at += PIECE) {
        size_t n = end - at < PIECE ? end - at : PIECE;
        for (int i = 0; i < size; i++) {
            struct view v = x[(first + i) % size];
            if (v.type == DTYPE_F32 && i == 0)
                memcpy(sum, (const float *)v.data + at, n * sizeof *sum);
            else if (v.type == DTYPE_F32)
                add_f32(sum, (const float *)v.data + at, n);
            else if (i == 0)
                widen(sum, (const uint16_t *)v.data + at, n);
            else
                add_bf16(sum, (const uint16_t *)v.data + at, n);
        }
        for (int i = 0; i < n_out; i++)
            put(out[i], at, sum, n);
    }
}
