/* Elementary functions as straight-line code, so that a loop over them becomes SIMD.
 *
 * Each polynomial is a weighted minimax fit made for this file; the errors given are the largest
 * found against double precision. No function branches, sets errno or traps. */
#ifndef SOTTO_TENSOR_CPU_SIMD_MATH_H
#define SOTTO_TENSOR_CPU_SIMD_MATH_H

#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

static inline float bits_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

/* Returns a b + c, rounded once if the processor can. In a sum of two products a compiler may fuse
 * either product, and a different product in the body and in the rest of a loop: the bits of an
 * element would then depend on where its vector begins. */
static inline float mul_add(float a, float b, float c)
{
#if defined(__FMA__) || defined(__aarch64__)
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

/* Clamps x to [low, high]; `unless_nan` restores a NaN. Both forms have instructions; a compiler
 * that respects NaNs does not find one form from the other. */
#if defined(__aarch64__)
static inline float clamp_between(float x, float low, float high)
{
    return __builtin_fminf(__builtin_fmaxf(x, low), high);
}

static inline float unless_nan(float x, float y)
{
    return x == x ? y : x;
}
#else
static inline float clamp_between(float x, float low, float high)
{
    x = x < low ? low : x;
    return x > high ? high : x;
}

static inline float unless_nan(float x, float y)
{
    (void)x; /* clamp_between keeps a NaN */
    return y;
}
#endif

/* Returns exp(x), relative error 1e-7: 0 below -87.68, exp(88.3) above 88.3; a NaN stays NaN. x = n
 * ln 2 + r; adding 1.5 * 2^23 rounds to the integer n and leaves n in the low bits, which become
 * the exponent of 2^n; n = -127 makes the result 0. */
static inline float fast_exp(float x)
{
    const float round = 12582912.0f, in = clamp_between(x, -88.0f, 88.3f);
    float shifted = in * 1.44269504f + round;
    float n = shifted - round;
    float r = in - n * 0.693145752f;
    r -= n * 1.42860677e-6f;
    float p = 0.00139505998f;
    p = p * r + 0.00836895406f;
    p = p * r + 0.0416662060f;
    p = p * r + 0.166665182f;
    p = p * r + 0.5f;
    p = p * (r * r) + r + 1.0f;
    return unless_nan(x, p * bits_float((float_bits(shifted) + 127) << 23));
}

/* Returns 1 / (1 + exp(-x)). */
static inline float fast_sigmoid(float x)
{
    return 1.0f / (1.0f + fast_exp(-x));
}

/* The normal distribution: *pdf = exp(-x^2/2) / sqrt(2 pi), result = Phi(x), relative error 3e-7 in
 * both tails. erfc(z) = exp(-z^2) t P(t) with t = 1 / (1 + 0.4 z), z = |x| / sqrt 2, shares the
 * exponential. */
static inline float fast_normal_cdf(float x, float *pdf)
{
    float z = (x < 0.0f ? -x : x) * 0.707106781f;
    float t = 1.0f / (1.0f + 0.4f * z);
    float e = fast_exp(-0.5f * x * x);
    float p = 0.0402677655f;
    p = p * t - 0.135472387f;
    p = p * t + 0.0738447979f;
    p = p * t + 0.0997265875f;
    p = p * t + 0.0715103447f;
    p = p * t + 0.196962178f;
    p = p * t + 0.200958803f;
    p = p * t + 0.226575688f;
    p = p * t + 0.225626305f;
    float tail = 0.5f * e * t * p;
    *pdf = e * 0.398942280f;
    return x < 0.0f ? tail : 1.0f - tail;
}

/* sin and cos of a double angle, absolute error 1e-7: reduced by multiples of pi/2 in double, since
 * a position times a frequency is large. |angle| < 2^30. */
static inline void fast_sincos(double angle, float *sine, float *cosine)
{
    const double round = 6755399441055744.0; /* 1.5 * 2^52 */
    double n = angle * 0.63661977236758134 + round;
    uint64_t bits;
    memcpy(&bits, &n, 8);
    uint32_t quadrant = (uint32_t)bits;
    n -= round;
    float r = (float)(angle - n * 1.5707963267948966);
    float u = r * r;
    float s = r + r * u * (-0.166666538f + u * (0.00833213143f + u * -0.000195108383f));
    float c =
        1.0f - 0.5f * u + u * u * (0.0416666456f + u * (-0.00138873060f + u * 2.44312032e-5f));
    float a = quadrant & 1 ? c : s;
    float b = quadrant & 1 ? s : c;
    *sine = bits_float(float_bits(a) ^ (quadrant & 2) << 30);
    *cosine = bits_float(float_bits(b) ^ ((quadrant + 1) & 2) << 30);
}

#endif
