/* Strips of operands: `width` rows of a matrix, or columns, side by side. */
#ifndef SOTTO_TENSOR_CPU_FAST_STRIPS_H
#define SOTTO_TENSOR_CPU_FAST_STRIPS_H

#include <stddef.h>
#include <string.h>

#include "tensor/cpu/fast_transpose.h"

/* to[l][i] = x[l][i] for i < n, zero up to `width`. */
static inline __attribute__((always_inline)) void copy_strip(float *to, const float *x, size_t ld,
                                                             int n, int k, int width)
{
    if (n == width) {
        for (int l = 0; l < k; l++, to += width, x += ld) {
            for (int i = 0; i < width; i++)
                to[i] = x[i];
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
