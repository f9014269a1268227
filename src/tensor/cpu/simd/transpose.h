/* Transposition by 4 x 4 blocks in registers, the largest block of every instruction set. */
#ifndef SOTTO_TENSOR_CPU_SIMD_TRANSPOSE_H
#define SOTTO_TENSOR_CPU_SIMD_TRANSPOSE_H

#include <stddef.h>
#include <stdint.h>

typedef float quad __attribute__((vector_size(16)));
typedef float quad_at __attribute__((vector_size(16), aligned(4), may_alias));

#ifdef __clang__
#define SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
typedef int32_t quad_index __attribute__((vector_size(16)));
#define SHUFFLE(a, b, i, j, k, l) __builtin_shuffle(a, b, (quad_index){i, j, k, l})
#endif

static inline void transpose_4x4(float *y, size_t ldy, const float *x, size_t ldx)
{
    quad a = *(const quad_at *)x, b = *(const quad_at *)(x + ldx);
    quad c = *(const quad_at *)(x + 2 * ldx), d = *(const quad_at *)(x + 3 * ldx);
    quad ab0 = SHUFFLE(a, b, 0, 4, 1, 5), ab1 = SHUFFLE(a, b, 2, 6, 3, 7);
    quad cd0 = SHUFFLE(c, d, 0, 4, 1, 5), cd1 = SHUFFLE(c, d, 2, 6, 3, 7);
    *(quad_at *)y = SHUFFLE(ab0, cd0, 0, 1, 4, 5);
    *(quad_at *)(y + ldy) = SHUFFLE(ab0, cd0, 2, 3, 6, 7);
    *(quad_at *)(y + 2 * ldy) = SHUFFLE(ab1, cd1, 0, 1, 4, 5);
    *(quad_at *)(y + 3 * ldy) = SHUFFLE(ab1, cd1, 2, 3, 6, 7);
}

/* Computes y[c*ldy + r] = x[r*ldx + c]; columns in runs of 16, so lines of x are used whole. */
static inline void transpose_block(float *y, size_t ldy, const float *x, size_t ldx, int rows,
                                   int columns)
{
    for (int c0 = 0; c0 < columns; c0 += 16) {
        int end = columns - c0 < 16 ? columns : c0 + 16, r = 0;
        for (; r + 4 <= rows; r += 4) {
            const float *from = x + (size_t)r * ldx;
            int c = c0;
            for (; c + 4 <= end; c += 4)
                transpose_4x4(y + (size_t)c * ldy + r, ldy, from + c, ldx);
            for (; c < end; c++) {
                for (int i = 0; i < 4; i++)
                    y[(size_t)c * ldy + (size_t)(r + i)] = from[(size_t)i * ldx + (size_t)c];
            }
        }
        for (; r < rows; r++) {
            for (int c = c0; c < end; c++)
                y[(size_t)c * ldy + (size_t)r] = x[(size_t)r * ldx + (size_t)c];
        }
    }
}

#endif
