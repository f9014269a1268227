#include "comm/sum.h"

enum { PIECE = 2048 }; /* elements: a piece and its sources stay in the first cache */

/* y may be a or b. */
static void add_f32(float *y, const float *a, const float *b, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}

static void widen(float *y, const uint16_t *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = bf16_widen(x[i]);
}

static void add_bf16(float *sum, const uint16_t *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        sum[i] += bf16_widen(x[i]);
}

static void narrow(uint16_t *y, const float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = bf16_round(x[i]);
}

/* The pieces at `at`, summed into y, which may be any of the x: only the last sum goes there, and
 * of two vectors that is the only one. */
static void sum_f32(float *y, const struct view *x, int size, int first, size_t at, size_t n)
{
    float partial[PIECE];
    const float *sum = (const float *)x[first % size].data + at;
    for (int i = 1; i < size; i++) {
        float *to = i + 1 < size ? partial : y;
        add_f32(to, sum, (const float *)x[(first + i) % size].data + at, n);
        sum = to;
    }
    if (size == 1)
        memmove(y, sum, n * sizeof *y);
}

static void sum_bf16(uint16_t *y, const struct view *x, int size, int first, size_t at, size_t n)
{
    float sum[PIECE];
    widen(sum, (const uint16_t *)x[first % size].data + at, n);
    for (int i = 1; i < size; i++)
        add_bf16(sum, (const uint16_t *)x[(first + i) % size].data + at, n);
    narrow(y, sum, n);
}

void sum_block(struct view *const out, int n_out, const struct view *x, int size, int first,
               size_t begin, size_t end)
{
    size_t unit = dtype_size(out[0].type);
    for (size_t at = begin; at < end; at += PIECE) {
        size_t n = end - at < PIECE ? end - at : PIECE;
        void *y = view_at(out[0], at).data;
        if (out[0].type == DTYPE_F32)
            sum_f32(y, x, size, first, at, n);
        else
            sum_bf16(y, x, size, first, at, n);
        for (int i = 1; i < n_out; i++)
            memcpy(view_at(out[i], at).data, y, n * unit);
    }
}
