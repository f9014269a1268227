/* Flat vectors: conversion, sums, scaling. */
#include <math.h>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "tensor/cpu/simd/kernels.h"
#include "tensor/cpu/simd/math.h"

static void vector_widen(float *y, const uint16_t *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = bf16_widen(x[i]);
}

static void vector_narrow(uint16_t *y, const float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], 4);
        uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        uint32_t nan = bits >> 16 | 0x40;
        y[i] = (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
    }
}

#if defined(__AVX512F__)
static void vector_send(float *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; (uintptr_t)y % 64 == 0 && i + 16 <= n; i += 16)
        _mm512_stream_ps(y + i, _mm512_loadu_ps(x + i));
    memcpy(y + i, x + i, (n - i) * sizeof *y);
}

static void vector_sent(void)
{
    _mm_sfence();
}
#endif

static void vector_fill(float *y, float value, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = value;
}

static void vector_add(float *y, const float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

static void vector_axpy(float *y, float a, const float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = mul_add(a, x[i], y[i]);
}

static void vector_axpby(float *y, float b, float a, const float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = mul_add(a, x[i], b * y[i]);
}

static void vector_scale(float *y, float a, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] *= a;
}

static double vector_sum_squares(const float *x, size_t n)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

/* Elements that are permuted at once as shuffle_at does: few enough for the first cache. Elements
 * outside the range take the next step together. */
enum { TOGETHER = 512 };

static void mix_shuffle(const struct shuffle *p, uint32_t *restrict x, size_t n)
{
    const uint32_t mask = p->mask;
    const int shift = p->shift;
    for (int r = 0; r < SHUFFLE_ROUNDS; r++) {
        const uint32_t multiply = p->multiply[r], plus = p->add[r];
#pragma omp simd
        for (size_t i = 0; i < n; i++) {
            const uint32_t y = (x[i] * multiply + plus) & mask;
            x[i] = y ^ y >> shift;
        }
    }
}

static void vector_shuffle(const struct shuffle *p, size_t first, int32_t *out, size_t n)
{
    for (size_t at = 0; at < n; at += TOGETHER) {
        uint32_t x[TOGETHER];
        uint16_t places[TOGETHER];
        size_t left = n - at < TOGETHER ? n - at : TOGETHER;
        for (size_t i = 0; i < left; i++) {
            x[i] = (uint32_t)(first + at + i);
            places[i] = (uint16_t)i;
        }
        while (left) {
            size_t outside = 0;
            mix_shuffle(p, x, left);
            for (size_t i = 0; i < left; i++) { /* an element outside is written again */
                const uint32_t to = x[i];
                const uint16_t place = places[i];
                out[at + place] = (int32_t)to;
                x[outside] = to;
                places[outside] = place;
                outside += to >= p->count;
            }
            left = outside;
        }
    }
}

static uint32_t sign_bits(float x)
{
    return (uint32_t)(x > 0) | (x < 0 ? 3u : 0u) | (x != x ? 2u : 0u);
}

static void vector_signs_pack(uint8_t *y, const float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n / 4; i++)
        y[i] = (uint8_t)(sign_bits(x[4 * i]) | sign_bits(x[4 * i + 1]) << 2 |
                         sign_bits(x[4 * i + 2]) << 4 | sign_bits(x[4 * i + 3]) << 6);
    if (n % 4)
        y[n / 4] = 0;
    for (size_t i = n / 4 * 4; i < n; i++)
        y[i / 4] |= (uint8_t)(sign_bits(x[i]) << 2 * (i % 4));
}

static void vector_signs_unpack(float *y, const uint8_t *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) { /* 0, 1, 3 -> 0, 1, -1 */
        const int bits = x[i / 4] >> 2 * (i % 4) & 3;
        y[i] = bits == 2 ? NAN : (float)((bits & 1) - (bits & 2));
    }
}

const struct vector_kernels KERNELS(fast_vector) = {
    .widen = vector_widen,
    .narrow = vector_narrow,
#if defined(__AVX512F__)
    .send = vector_send,
    .sent = vector_sent,
#endif
    .fill = vector_fill,
    .add = vector_add,
    .axpy = vector_axpy,
    .axpby = vector_axpby,
    .scale = vector_scale,
    .sum_squares = vector_sum_squares,
    .shuffle = vector_shuffle,
    .signs_pack = vector_signs_pack,
    .signs_unpack = vector_signs_unpack,
};
