/* Flat vectors: conversion, sums, scaling. */
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

const struct vector_kernels KERNELS(fast_vector) = {
    .widen = widen,
    .narrow = narrow,
    .fill = fill,
    .add = add,
    .axpy = axpy,
    .scale = scale,
    .sum_squares = sum_squares,
};
