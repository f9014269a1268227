/* Strips of operands: `width` rows of a matrix, or columns, side by side. */
#ifndef SOTTO_TENSOR_CPU_SIMD_STRIPS_H
#define SOTTO_TENSOR_CPU_SIMD_STRIPS_H

#include <stddef.h>
#include <string.h>

#include "tensor/cpu/simd/transpose.h"

/* Rows that are asked for while others are copied: they lie pages apart, where no processor guesses
 * the next. */
#if defined(__x86_64__)
enum { ROWS_AHEAD = 16 };
#else
enum { ROWS_AHEAD = 0 };
#endif

/* Asks for what will be read so many bytes behind x, wherever that is. */
static inline __attribute__((always_inline)) void fetch_ahead(const void *x, size_t bytes)
{
    __builtin_prefetch((const void *)((uintptr_t)x + bytes));
}

/* The same of all `bytes` of a row, at most two lines. */
static inline __attribute__((always_inline)) void fetch_row(const void *x, size_t ahead,
                                                            size_t bytes)
{
    fetch_ahead(x, ahead);
    fetch_ahead(x, ahead + bytes - 1);
}

/* to[l][i] = x[l][i] for i < n, zero up to `width`. */
static inline __attribute__((always_inline)) void copy_strip(float *to, const float *x, size_t ld,
                                                             int n, int k, int width)
{
    if (n == width) {
        for (int l = 0; l < k; l++, to += width, x += ld) {
            if (ROWS_AHEAD > 0)
                fetch_row(x, ROWS_AHEAD * ld * sizeof *x, (size_t)width * sizeof *x);
            memcpy(to, x, (size_t)width * sizeof *to);
        }
        return;
    }
    for (int l = 0; l < k; l++, to += width, x += ld) {
        for (int i = 0; i < width; i++)
            to[i] = i < n ? x[i] : 0;
    }
}

/* to[l][i] = x[i][l] for i < n, zero up to `width`. */
static inline __attribute__((always_inline)) void turn_strip(float *to, const float *x, size_t ld,
                                                             int n, int k, int width)
{
    transpose_block(to, (size_t)width, x, ld, n, k);
    for (int l = 0; l < k && n < width; l++)
        memset(to + l * width + n, 0, (size_t)(width - n) * sizeof *to);
}

#endif
