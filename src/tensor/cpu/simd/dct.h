/* The cosine transform of 64 numbers by butterflies, of a vector of numbers at once: without a
 * scale,
 *
 *     C2(n): y_k = sum_i x_i cos(pi (2i + 1) k / 2n)            and, back, its transpose
 *     C4(n): y_k = sum_i x_i cos(pi (2i + 1)(2k + 1) / 4n)      equal to its transpose
 *
 * Frequencies of C2(n) are even or odd about the middle, in turn: C2(n/2) of the sums of mirrored
 * elements, and C4(n/2) of the differences. In C4(n), mirrored pairs turned by pi (2i + 1) / 4n are
 * two C2(n/2): with p = C2 of the first and q = C2 of the second with alternating signs, y_2k = p_k
 * + q_(n/2-k) and y_(2k-1) = p_k - q_(n/2-k) (Wang 1984). In total 9 operations a number; the
 * product with the matrix has 64.
 *
 * A file that includes this header defines LANES and vec, a vector of LANES floats. */
#ifndef SOTTO_TENSOR_CPU_SIMD_DCT_H
#define SOTTO_TENSOR_CPU_SIMD_DCT_H

#include <stddef.h>
#include <stdint.h>

#include "base/sanitized.h"

/* The sanitizer checks every access: a single function of all steps would compile for minutes. */
#ifdef SANITIZED_ADDRESS
#define DCT_INLINE static __attribute__((noinline))
#define DCT_UNROLL
#else
#define DCT_INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define DCT_UNROLL _Pragma("clang loop unroll(full)")
#else
#define DCT_UNROLL _Pragma("GCC unroll 32")
#endif
#endif

/* cos(pi k / 128); sines are the same numbers in reverse order. */
/* clang-format off */
static const float dct_cosine[65] = {
    1, 0.999698819f, 0.998795456f, 0.997290457f, 0.995184727f, 0.992479535f, 0.98917651f,
    0.985277642f, 0.98078528f, 0.97570213f, 0.970031253f, 0.963776066f, 0.956940336f, 0.949528181f,
    0.941544065f, 0.932992799f, 0.923879533f, 0.914209756f, 0.903989293f, 0.893224301f,
    0.881921264f, 0.870086991f, 0.85772861f, 0.844853565f, 0.831469612f, 0.817584813f,
    0.803207531f, 0.788346428f, 0.773010453f, 0.757208847f, 0.740951125f, 0.724247083f,
    0.707106781f, 0.689540545f, 0.671558955f, 0.653172843f, 0.634393284f, 0.615231591f,
    0.595699304f, 0.575808191f, 0.555570233f, 0.53499762f, 0.514102744f, 0.492898192f,
    0.471396737f, 0.44961133f, 0.427555093f, 0.405241314f, 0.382683432f, 0.359895037f,
    0.336889853f, 0.31368174f, 0.290284677f, 0.266712757f, 0.24298018f, 0.21910124f, 0.195090322f,
    0.170961889f, 0.146730474f, 0.122410675f, 0.0980171403f, 0.0735645636f, 0.0490676743f,
    0.0245412285f, 0,
};
/* clang-format on */

DCT_INLINE void dct_c2_1(vec *y, const vec *x)
{
    y[0] = x[0];
}

DCT_INLINE void dct_back_1(vec *y, const vec *x)
{
    y[0] = x[0];
}

DCT_INLINE void dct_c4_1(vec *y, const vec *x)
{
    y[0] = dct_cosine[32] * x[0];
}

#define DCT_C2(n, half)                                                                            \
    DCT_INLINE void dct_c2_##n(vec *y, const vec *x)                                               \
    {                                                                                              \
        vec sum[half], difference[half], even[half], odd[half];                                    \
        DCT_UNROLL for (int i = 0; i < half; i++)                                                  \
        {                                                                                          \
            sum[i] = x[i] + x[n - 1 - i];                                                          \
            difference[i] = x[i] - x[n - 1 - i];                                                   \
        }                                                                                          \
        dct_c2_##half(even, sum);                                                                  \
        dct_c4_##half(odd, difference);                                                            \
        DCT_UNROLL for (int i = 0; i < half; i++)                                                  \
        {                                                                                          \
            y[2 * i] = even[i];                                                                    \
            y[2 * i + 1] = odd[i];                                                                 \
        }                                                                                          \
    }                                                                                              \
    DCT_INLINE void dct_back_##n(vec *y, const vec *x)                                             \
    {                                                                                              \
        vec even[half], odd[half], sum[half], difference[half];                                    \
        DCT_UNROLL for (int i = 0; i < half; i++)                                                  \
        {                                                                                          \
            even[i] = x[2 * i];                                                                    \
            odd[i] = x[2 * i + 1];                                                                 \
        }                                                                                          \
        dct_back_##half(sum, even);                                                                \
        dct_c4_##half(difference, odd);                                                            \
        DCT_UNROLL for (int i = 0; i < half; i++)                                                  \
        {                                                                                          \
            y[i] = sum[i] + difference[i];                                                         \
            y[n - 1 - i] = sum[i] - difference[i];                                                 \
        }                                                                                          \
    }

#define DCT_C4(n, half)                                                                            \
    DCT_INLINE void dct_c4_##n(vec *y, const vec *x)                                               \
    {                                                                                              \
        vec a[half], b[half], p[half], q[half];                                                    \
        DCT_UNROLL for (int i = 0; i < half; i++)                                                  \
        {                                                                                          \
            const int angle = (2 * i + 1) * (32 / n);                                              \
            const float c = dct_cosine[angle], s = dct_cosine[64 - angle];                         \
            const vec turned = c * x[n - 1 - i] - s * x[i];                                        \
            a[i] = c * x[i] + s * x[n - 1 - i];                                                    \
            b[i] = i % 2 ? -turned : turned;                                                       \
        }                                                                                          \
        dct_c2_##half(p, a);                                                                       \
        dct_c2_##half(q, b);                                                                       \
        y[0] = p[0];                                                                               \
        y[n - 1] = -q[0];                                                                          \
        DCT_UNROLL for (int i = 1; i < half; i++)                                                  \
        {                                                                                          \
            y[2 * i] = p[i] + q[half - i];                                                         \
            y[2 * i - 1] = p[i] - q[half - i];                                                     \
        }                                                                                          \
    }

DCT_C2(2, 1)
DCT_C4(2, 1)
DCT_C2(4, 2)
DCT_C4(4, 2)
DCT_C2(8, 4)
DCT_C4(8, 4)
DCT_C2(16, 8)
DCT_C4(16, 8)
DCT_C2(32, 16)
DCT_C4(32, 16)
DCT_C2(64, 32)

/* Returns the factor of frequency k that makes the transform orthonormal. */
DCT_INLINE float dct_scale(int k)
{
    return k ? 0.176776695f : 0.125f; /* sqrt(2 / 64), sqrt(1 / 64) */
}

/* Transposes x (LANES, LANES): each round interleaves the two halves. */
typedef int32_t dct_order __attribute__((vector_size(LANES * 4)));
#if defined(__AVX512F__)
#define DCT_LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define DCT_HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif defined(__AVX__)
#define DCT_LOW 0, 8, 1, 9, 2, 10, 3, 11
#define DCT_HIGH 4, 12, 5, 13, 6, 14, 7, 15
#else
#define DCT_LOW 0, 4, 1, 5
#define DCT_HIGH 2, 6, 3, 7
#endif
#ifdef __clang__
#define DCT_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define DCT_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (dct_order){__VA_ARGS__})
#endif

DCT_INLINE void dct_transpose(vec *x)
{
    DCT_UNROLL for (int n = 1; n < LANES; n *= 2)
    {
        vec y[LANES];
        DCT_UNROLL for (int i = 0; i < LANES / 2; i++)
        {
            y[2 * i] = DCT_SHUFFLE(x[i], x[i + LANES / 2], DCT_LOW);
            y[2 * i + 1] = DCT_SHUFFLE(x[i], x[i + LANES / 2], DCT_HIGH);
        }
        DCT_UNROLL for (int i = 0; i < LANES; i++)
        {
            x[i] = y[i];
        }
    }
}

#endif
