/* Flat vectors: conversion, sums, scaling. */
#include <math.h>

#include "tensor/cpu/kernels.h"

static void widen(float *y, const uint16_t *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = bf16_widen(x[i]);
}

static void narrow(uint16_t *y, const float *x, size_t n)
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

static void fill(float *y, float value, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = value;
}

static void add(float *y, const float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

static void axpy(float *y, float a, const float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

static void axpby(float *y, float b, float a, const float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = a * x[i] + b * y[i];
}

static void scale(float *y, float a, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] *= a;
}

static double sum_squares(const float *x, size_t n)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

/* The Feistel network of rng_permute over 2 * half <= 32 bits, of which the rounds need the lowest
 * word of Philox alone. Elements lie in the innermost loop, and few enough for the first cache. */
enum { TOGETHER = 256 };

struct philox {
    uint32_t c[4][TOGETHER];
};

static void philox_round(struct philox *p, uint32_t k0, uint32_t k1, size_t n)
{
    uint32_t *restrict c0 = p->c[0], *restrict c1 = p->c[1];
    uint32_t *restrict c2 = p->c[2], *restrict c3 = p->c[3];
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0[i], p1 = (uint64_t)0xCD9E8D57u * c2[i];
        c0[i] = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
        c1[i] = (uint32_t)p1;
        c2[i] = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
        c3[i] = (uint32_t)p0;
    }
}

static void feistel(uint32_t *restrict x, size_t n, int half, uint64_t seed, uint64_t stream)
{
    const uint32_t mask = ((uint32_t)1 << half) - 1;
    struct philox p;
    for (uint32_t round = 0; round < 4; round++) {
        for (size_t i = 0; i < n; i++) {
            p.c[0][i] = x[i] & mask;
            p.c[1][i] = round << 30;
            p.c[2][i] = (uint32_t)stream;
            p.c[3][i] = (uint32_t)(stream >> 32);
        }
        for (uint32_t r = 0; r < 10; r++)
            philox_round(&p, (uint32_t)seed + r * 0x9E3779B9u,
                         (uint32_t)(seed >> 32) + r * 0xBB67AE85u, n);
        for (size_t i = 0; i < n; i++)
            x[i] = (x[i] & mask) << half | (x[i] >> half ^ (p.c[0][i] & mask));
    }
}

/* Those that fall outside walk on, together. */
static void permute(const struct choice *p, size_t first, int32_t *out, size_t n)
{
    int half = 1;
    while ((uint64_t)1 << (2 * half) < p->of)
        half++;
    for (size_t at = 0; at < n; at += TOGETHER) {
        uint32_t x[TOGETHER];
        uint16_t whose[TOGETHER];
        size_t left = n - at < TOGETHER ? n - at : TOGETHER;
        for (size_t i = 0; i < left; i++) {
            x[i] = (uint32_t)(first + at + i);
            whose[i] = (uint16_t)i;
        }
        while (left) {
            size_t outside = 0;
            feistel(x, left, half, p->seed, p->stream);
            for (size_t i = 0; i < left; i++) {
                if (x[i] < p->of) {
                    out[at + whose[i]] = (int32_t)x[i];
                } else {
                    x[outside] = x[i];
                    whose[outside++] = whose[i];
                }
            }
            left = outside;
        }
    }
}

static uint32_t sign_bits(float x)
{
    return (uint32_t)(x > 0) | (x < 0 ? 3u : 0u) | (x != x ? 2u : 0u);
}

static void signs_pack(uint8_t *y, const float *x, size_t n)
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

static void signs_unpack(float *y, const uint8_t *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) { /* 0, 1, 3 -> 0, 1, -1 */
        const int bits = x[i / 4] >> 2 * (i % 4) & 3;
        y[i] = bits == 2 ? NAN : (float)((bits & 1) - (bits & 2));
    }
}

const struct vector_kernels KERNELS(fast_vector) = {
    .widen = widen,
    .narrow = narrow,
    .fill = fill,
    .add = add,
    .axpy = axpy,
    .axpby = axpby,
    .scale = scale,
    .sum_squares = sum_squares,
    .permute = permute,
    .signs_pack = signs_pack,
    .signs_unpack = signs_unpack,
};
