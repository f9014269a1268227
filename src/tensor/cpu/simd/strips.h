/* Strips of operands: `width` rows, or columns, of a matrix as neighbours. */
#ifndef SOTTO_TENSOR_CPU_SIMD_STRIPS_H
#define SOTTO_TENSOR_CPU_SIMD_STRIPS_H

#include <stddef.h>
#include <string.h>

#include "tensor/cpu/simd/transpose.h"

/* Rows to prefetch while earlier rows are copied: rows are pages apart, where processors do not
 * predict the next row. */
#if defined(__x86_64__)
enum { ROWS_AHEAD = 16 };
#else
enum { ROWS_AHEAD = 0 };
#endif

/* Prefetches the line `bytes` bytes after x, at any address. */
static inline __attribute__((always_inline)) void fetch_ahead(const void *x, size_t bytes)
{
    __builtin_prefetch((const void *)((uintptr_t)x + bytes));
}

/* Prefetches `bytes` bytes of a row, at most two lines, `ahead` bytes after x. */
static inline __attribute__((always_inline)) void fetch_row(const void *x, size_t ahead,
                                                            size_t bytes)
{
    fetch_ahead(x, ahead);
    fetch_ahead(x, ahead + bytes - 1);
}

/* Copies to[l][i] = x[l][i] for i < n, zero up to `width`. */
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

/* Copies to[l][i] = x[i][l] for i < n, zero up to `width`. */
static inline __attribute__((always_inline)) void turn_strip(float *to, const float *x, size_t ld,
                                                             int n, int k, int width)
{
    transpose_block(to, (size_t)width, x, ld, n, k);
    for (int l = 0; l < k && n < width; l++)
        memset(to + l * width + n, 0, (size_t)(width - n) * sizeof *to);
}

#endif
