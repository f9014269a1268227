/* Layer norm and RMS norm of a row. A row fits the first cache, so passes over the row are cheap
 * and the variance is computed around the mean. */
#include <math.h>

#include "tensor/cpu/simd/kernels.h"

static float sum_values(const float *x, int n)
{
    float s = 0;
#pragma omp simd reduction(+ : s)
    for (int i = 0; i < n; i++)
        s += x[i];
    return s;
}

static float squares_around(const float *x, float mean, int n)
{
    float s = 0;
#pragma omp simd reduction(+ : s)
    for (int i = 0; i < n; i++)
        s += (x[i] - mean) * (x[i] - mean);
    return s;
}

static void layer_forward(float *y, const float *x, const float *gain, const float *bias,
                          float stats[2], int width, float eps)
{
    float mean = sum_values(x, width) / (float)width;
    float rstd = 1.0f / sqrtf(squares_around(x, mean, width) / (float)width + eps);
    stats[0] = mean;
    stats[1] = rstd;
    if (bias) {
#pragma omp simd
        for (int i = 0; i < width; i++)
            y[i] = (x[i] - mean) * rstd * gain[i] + bias[i];
    } else {
#pragma omp simd
        for (int i = 0; i < width; i++)
            y[i] = (x[i] - mean) * rstd * gain[i];
    }
}

static void accumulate_row(float *y, const float *x, int n)
{
#pragma omp simd
    for (int i = 0; i < n; i++)
        y[i] += x[i];
}

/* dx = from + rstd * (d - mean(d) - xhat mean(d xhat)) with d = dy gain, xhat = (x - mean) rstd. */
static void layer_backward(float *dx, float *dgain, float *dbias, const float *dy, const float *x,
                           const float *gain, const float stats[2], const float *from, int width)
{
    float mean = stats[0], rstd = stats[1], mean_d = 0, mean_dx = 0;
    if (dgain) {
#pragma omp simd reduction(+ : mean_d, mean_dx)
        for (int i = 0; i < width; i++) {
            float hat = (x[i] - mean) * rstd, d = dy[i] * gain[i];
            mean_d += d;
            mean_dx += d * hat;
            dgain[i] += dy[i] * hat;
        }
    } else {
#pragma omp simd reduction(+ : mean_d, mean_dx)
        for (int i = 0; i < width; i++) {
            float d = dy[i] * gain[i];
            mean_d += d;
            mean_dx += d * ((x[i] - mean) * rstd);
        }
    }
    if (dbias)
        accumulate_row(dbias, dy, width);
    mean_d /= (float)width;
    mean_dx /= (float)width;
    if (from) {
#pragma omp simd
        for (int i = 0; i < width; i++)
            dx[i] = from[i] + rstd * (dy[i] * gain[i] - mean_d - (x[i] - mean) * rstd * mean_dx);
    } else {
#pragma omp simd
        for (int i = 0; i < width; i++)
            dx[i] = rstd * (dy[i] * gain[i] - mean_d - (x[i] - mean) * rstd * mean_dx);
    }
}

static void rms_forward(float *y, const float *x, const float *gain, float stats[2], int width,
                        float eps)
{
    float rstd = 1.0f / sqrtf(squares_around(x, 0, width) / (float)width + eps);
    stats[0] = 0;
    stats[1] = rstd;
#pragma omp simd
    for (int i = 0; i < width; i++)
        y[i] = x[i] * rstd * gain[i];
}

/* dx = from + rstd * (d - xhat mean(d xhat)) with d = dy gain, xhat = x rstd. */
static void rms_backward(float *dx, float *dgain, const float *dy, const float *x,
                         const float *gain, const float stats[2], const float *from, int width)
{
    float rstd = stats[1], mean_dx = 0;
#pragma omp simd reduction(+ : mean_dx)
    for (int i = 0; i < width; i++)
        mean_dx += dy[i] * gain[i] * (x[i] * rstd);
    mean_dx /= (float)width;
    if (dgain) {
#pragma omp simd
        for (int i = 0; i < width; i++)
            dgain[i] += dy[i] * (x[i] * rstd);
    }
    if (from) {
#pragma omp simd
        for (int i = 0; i < width; i++)
            dx[i] = from[i] + rstd * (dy[i] * gain[i] - x[i] * rstd * mean_dx);
    } else {
#pragma omp simd
        for (int i = 0; i < width; i++)
            dx[i] = rstd * (dy[i] * gain[i] - x[i] * rstd * mean_dx);
    }
}

const struct norm_kernels KERNELS(fast_norm) = {
    .layer_forward = layer_forward,
    .layer_backward = layer_backward,
    .rms_forward = rms_forward,
    .rms_backward = rms_backward,
};
