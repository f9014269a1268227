/* Softmax of rows of scores. */
#include <math.h>

#include "tensor/cpu/simd/kernels.h"
#include "tensor/cpu/simd/math.h"

/* Rows are short, so arithmetic is not the cost: loops run over whole groups of GROUP scores, the
 * same number for every row of a strip, and scores that a row does not see are masked by their
 * index. */
enum { GROUP = ATTENTION_PAD };

static float group_max(float x[GROUP])
{
#pragma GCC unroll 4
    for (int half = GROUP / 2; half > 0; half /= 2) {
        for (int j = 0; j < half; j++)
            x[j] = x[j + half] > x[j] ? x[j + half] : x[j];
    }
    return x[0];
}

static float group_sum(float x[GROUP])
{
#pragma GCC unroll 4
    for (int half = GROUP / 2; half > 0; half /= 2) {
        for (int j = 0; j < half; j++)
            x[j] += x[j + half];
    }
    return x[0];
}

static float softmax_row(float *s, int lo, int hi, int n, float scale, float *lse)
{
    float most[GROUP], part[GROUP] = {0};
    for (int j = 0; j < GROUP; j++)
        most[j] = -INFINITY;
    for (int i = 0; i < n; i += GROUP) {
#pragma omp simd
        for (int j = 0; j < GROUP; j++) {
            const bool seen = (unsigned)(i + j - lo) < (unsigned)(hi - lo);
            s[i + j] = seen ? s[i + j] * scale : -INFINITY;
            most[j] = s[i + j] > most[j] ? s[i + j] : most[j];
        }
    }
    const float max = group_max(most);
    for (int i = 0; i < n; i += GROUP) {
#pragma omp simd
        for (int j = 0; j < GROUP; j++) {
            float e = fast_exp(s[i + j] - max);
            s[i + j] = e;
            part[j] += e;
        }
    }
    const float sum = group_sum(part);
    *lse = max + logf(sum);
    return 1.0f / sum;
}

/* Computes p and ds of a group, of which [lo, hi) are seen; all of the group if not at an
 * `edge`. */
static inline __attribute__((always_inline)) void group_backward(float *s, float *dp, int lo,
                                                                 int hi, float scale, float lse,
                                                                 float delta, bool edge)
{
#pragma omp simd
    for (int j = 0; j < GROUP; j++) {
        const uint32_t seen = !edge || (unsigned)(j - lo) < (unsigned)(hi - lo) ? ~0u : 0;
        const float p = fast_exp(scale * s[j] - lse), ds = p * (dp[j] - delta) * scale;
        s[j] = bits_float(float_bits(p) & seen);
        dp[j] = bits_float(float_bits(ds) & seen);
    }
}

static void softmax_row_backward(float *s, float *dp, int lo, int hi, int n, float scale, float lse,
                                 float delta)
{
    for (int i = 0; i < n; i += GROUP) {
        if (lo <= i && i + GROUP <= hi)
            group_backward(s + i, dp + i, 0, GROUP, scale, lse, delta, false);
        else
            group_backward(s + i, dp + i, lo - i, hi - i, scale, lse, delta, true);
    }
}

static float dot_product(const float *a, const float *b, int n)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

const struct attention_kernels KERNELS(fast_attention) = {
    .softmax = softmax_row,
    .softmax_backward = softmax_row_backward,
    .dot = dot_product,
};
