/* Batch norm and pooling: channels in the innermost loop. Sums over rows run in strips of channels
 * that stay in registers. */
#include "tensor/cpu/simd/kernels.h"

enum { STRIP = 64 };

/* Adds the sum over rows of x - pivot to sums[0][c], and of its square to sums[1][c], for n
 * channels. */
static inline __attribute__((always_inline)) void sum_strip(float *sums, const float *x,
                                                            const float *pivot, size_t rows,
                                                            size_t width, size_t n)
{
    float sum[STRIP], square[STRIP];
    for (size_t c = 0; c < n; c++)
        sum[c] = square[c] = 0;
    for (size_t r = 0; r < rows; r++, x += width) {
#pragma omp simd
        for (size_t c = 0; c < n; c++) {
            const float off = x[c] - pivot[c];
            sum[c] += off;
            square[c] += off * off;
        }
    }
    for (size_t c = 0; c < n; c++) {
        sums[c] += sum[c];
        sums[width + c] += square[c];
    }
}

static void batch_sums(float *sums, const float *x, const float *pivot, size_t rows, size_t width)
{
    size_t c = 0;
    for (; c + STRIP <= width; c += STRIP)
        sum_strip(sums + c, x + c, pivot + c, rows, width, STRIP);
    if (c < width)
        sum_strip(sums + c, x + c, pivot + c, rows, width, width - c);
}

static void batch_forward(float *y, const float *x, const float *residual, const float *mean,
                          const float *scale, const float *bias, bool relu, size_t rows,
                          size_t width)
{
    const float least = relu ? 0 : -__builtin_inff();
    for (size_t at = 0; at < rows * width; at += width) {
        if (residual) {
#pragma omp simd
            for (size_t c = 0; c < width; c++) {
                const float v = (x[at + c] - mean[c]) * scale[c] + bias[c] + residual[at + c];
                y[at + c] = v < least ? least : v;
            }
        } else {
#pragma omp simd
            for (size_t c = 0; c < width; c++) {
                const float v = (x[at + c] - mean[c]) * scale[c] + bias[c];
                y[at + c] = v < least ? least : v;
            }
        }
    }
}

static inline __attribute__((always_inline)) void sum_strip_backward(float *sums, const float *dy,
                                                                     const float *x, const float *y,
                                                                     const float *mean, size_t rows,
                                                                     size_t width, size_t n)
{
    float sum[STRIP], product[STRIP];
    for (size_t c = 0; c < n; c++)
        sum[c] = product[c] = 0;
    for (size_t at = 0; at < rows * width; at += width) {
#pragma omp simd
        for (size_t c = 0; c < n; c++) {
            const float d = y && y[at + c] <= 0 ? 0 : dy[at + c];
            sum[c] += d;
            product[c] += d * (x[at + c] - mean[c]);
        }
    }
    for (size_t c = 0; c < n; c++) {
        sums[c] += sum[c];
        sums[width + c] += product[c];
    }
}

static void batch_sums_backward(float *sums, const float *dy, const float *x, const float *y,
                                const float *mean, size_t rows, size_t width)
{
    for (size_t c = 0; c < width; c += STRIP) {
        const bool whole = c + STRIP <= width;
        if (whole && y)
            sum_strip_backward(sums + c, dy + c, x + c, y + c, mean + c, rows, width, STRIP);
        else if (whole)
            sum_strip_backward(sums + c, dy + c, x + c, NULL, mean + c, rows, width, STRIP);
        else
            sum_strip_backward(sums + c, dy + c, x + c, y ? y + c : NULL, mean + c, rows, width,
                               width - c);
    }
}

static inline __attribute__((always_inline)) void backward_rows(
    float *dx, float *dresidual, const float *dy, const float *x, const float *y, const float *mean,
    const float *scale, const float *sums, size_t rows, size_t width)
{
    for (size_t at = 0; at < rows * width; at += width) {
#pragma omp simd
        for (size_t c = 0; c < width; c++) {
            const float d = y && y[at + c] <= 0 ? 0 : dy[at + c];
            dx[at + c] = scale[c] * (d - sums[c] - (x[at + c] - mean[c]) * sums[width + c]);
            if (dresidual)
                dresidual[at + c] = d;
        }
    }
}

static void batch_backward(float *dx, float *dresidual, const float *dy, const float *x,
                           const float *y, const float *mean, const float *scale, const float *sums,
                           size_t rows, size_t width)
{
    if (dresidual && y)
        backward_rows(dx, dresidual, dy, x, y, mean, scale, sums, rows, width);
    else if (dresidual)
        backward_rows(dx, dresidual, dy, x, NULL, mean, scale, sums, rows, width);
    else if (y)
        backward_rows(dx, NULL, dy, x, y, mean, scale, sums, rows, width);
    else
        backward_rows(dx, NULL, dy, x, NULL, mean, scale, sums, rows, width);
}

static void max_take(float *best, uint8_t *winner, const float *x, uint8_t tap, size_t n)
{
#pragma omp simd
    for (size_t c = 0; c < n; c++) {
        const bool takes = x[c] > best[c] || x[c] != x[c];
        best[c] = takes ? x[c] : best[c];
        winner[c] = takes ? tap : winner[c];
    }
}

static void max_give(float *y, const float *x, const uint8_t *winner, uint8_t tap, size_t n)
{
#pragma omp simd
    for (size_t c = 0; c < n; c++)
        y[c] += winner[c] == tap ? x[c] : 0;
}

const struct image_kernels KERNELS(fast_image) = {
    .batch_sums = batch_sums,
    .batch_forward = batch_forward,
    .batch_sums_backward = batch_sums_backward,
    .batch_backward = batch_backward,
    .max_take = max_take,
    .max_give = max_give,
};
