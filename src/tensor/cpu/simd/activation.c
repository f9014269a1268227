/* GELU, SwiGLU, ReLU and rotary embedding. */
#include "tensor/cpu/simd/kernels.h"
#include "tensor/cpu/simd/math.h"

/* gelu(x) = x/2 (1 + tanh u), u = sqrt(2/pi) (x + 0.044715 x^3). Since (1 + tanh u)/2 =
 * sigmoid(2u), an exponential and a division suffice, and the left tail keeps its relative
 * accuracy. */
#define TWO_ROOT 1.59576912f /* 2 sqrt(2/pi) */
#define CUBIC 0.044715f

static inline float gelu_tanh(float x)
{
    return x * fast_sigmoid(TWO_ROOT * (x + CUBIC * x * x * x));
}

static inline float gelu_tanh_slope(float x)
{
    float e = fast_exp(-TWO_ROOT * (x + CUBIC * x * x * x));
    float s = 1.0f / (1.0f + e); /* and 1 - s = e s, without cancellation */
    return s + x * s * (e * s) * TWO_ROOT * (1.0f + 3.0f * CUBIC * x * x);
}

static void gelu_forward(enum gelu_kind kind, float *y, const float *x, size_t n)
{
    if (kind == GELU_TANH) {
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            y[i] = gelu_tanh(x[i]);
        return;
    }
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float pdf;
        y[i] = x[i] * fast_normal_cdf(x[i], &pdf);
    }
}

static void gelu_backward(enum gelu_kind kind, float *dx, const float *dy, const float *x, size_t n)
{
    if (kind == GELU_TANH) {
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            dx[i] = dy[i] * gelu_tanh_slope(x[i]);
        return;
    }
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float pdf, cdf = fast_normal_cdf(x[i], &pdf);
        dx[i] = dy[i] * (cdf + x[i] * pdf);
    }
}

static void swiglu_forward(float *y, const float *gate, const float *up, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = gate[i] * fast_sigmoid(gate[i]) * up[i];
}

static void swiglu_backward(float *dgate, float *dup, const float *dy, const float *gate,
                            const float *up, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float d = dy[i], e = fast_exp(-gate[i]), s = 1.0f / (1.0f + e);
        float du = d * gate[i] * s;
        dgate[i] = d * up[i] * s * (1.0f + gate[i] * (e * s)); /* 1 - s = e s */
        dup[i] = du;
    }
}

/* A NaN stays NaN. */
static void relu_forward(float *y, const float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] < 0 ? 0 : x[i];
}

static void relu_backward(float *dx, const float *dy, const float *y, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        dx[i] = y[i] <= 0 ? 0 : dy[i];
}

static void rope_angles(float *cosine, float *sine, int p, const float *frequencies, int n)
{
#pragma omp simd
    for (int i = 0; i < n; i++)
        fast_sincos((double)p * frequencies[i], &sine[i], &cosine[i]);
}

static void rope_rotate(float *a, float *b, const float *cosine, const float *sine, int n)
{
#pragma omp simd
    for (int i = 0; i < n; i++) {
        float x = a[i], y = b[i];
        a[i] = x * cosine[i] - y * sine[i];
        b[i] = y * cosine[i] + x * sine[i];
    }
}

const struct activation_kernels KERNELS(fast_activation) = {
    .gelu_forward = gelu_forward,
    .gelu_backward = gelu_backward,
    .swiglu_forward = swiglu_forward,
    .swiglu_backward = swiglu_backward,
    .relu_forward = relu_forward,
    .relu_backward = relu_backward,
    .rope_angles = rope_angles,
    .rope_rotate = rope_rotate,
};
