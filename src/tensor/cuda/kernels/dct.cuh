/* The cosine transform of 64 numbers by butterflies, in the registers of a thread, without a scale.
 * tensor/cpu/simd/dct.h explains the method. */
#ifndef SOTTO_TENSOR_CUDA_DCT_CUH
#define SOTTO_TENSOR_CUDA_DCT_CUH

enum { DCT_SIDE = 64 };

/* cos(pi k / 128); sines are the same numbers in reverse order. */
/* clang-format off */
static __device__ const float dct_cosine[DCT_SIDE + 1] = {
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

template <int N> struct dct_butterflies {
    typedef dct_butterflies<N / 2> below;
    enum { HALF = N / 2 };

    static __device__ __forceinline__ void c2(float *y, const float *x)
    {
        float sum[HALF], difference[HALF], even[HALF], odd[HALF];
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            sum[i] = x[i] + x[N - 1 - i];
            difference[i] = x[i] - x[N - 1 - i];
        }
        below::c2(even, sum);
        below::c4(odd, difference);
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            y[2 * i] = even[i];
            y[2 * i + 1] = odd[i];
        }
    }

    static __device__ __forceinline__ void back(float *y, const float *x)
    {
        float sum[HALF], difference[HALF], even[HALF], odd[HALF];
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            even[i] = x[2 * i];
            odd[i] = x[2 * i + 1];
        }
        below::back(sum, even);
        below::c4(difference, odd);
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            y[i] = sum[i] + difference[i];
            y[N - 1 - i] = sum[i] - difference[i];
        }
    }

    static __device__ __forceinline__ void c4(float *y, const float *x)
    {
        float a[HALF], b[HALF], p[HALF], q[HALF];
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            const int angle = (2 * i + 1) * (32 / N);
            const float c = dct_cosine[angle], s = dct_cosine[DCT_SIDE - angle];
            const float turned = c * x[N - 1 - i] - s * x[i];
            a[i] = c * x[i] + s * x[N - 1 - i];
            b[i] = i % 2 ? -turned : turned;
        }
        below::c2(p, a);
        below::c2(q, b);
        y[0] = p[0];
        y[N - 1] = -q[0];
#pragma unroll
        for (int i = 1; i < HALF; i++) {
            y[2 * i] = p[i] + q[HALF - i];
            y[2 * i - 1] = p[i] - q[HALF - i];
        }
    }
};

template <> struct dct_butterflies<1> {
    static __device__ __forceinline__ void c2(float *y, const float *x)
    {
        y[0] = x[0];
    }
    static __device__ __forceinline__ void back(float *y, const float *x)
    {
        y[0] = x[0];
    }
    static __device__ __forceinline__ void c4(float *y, const float *x)
    {
        y[0] = dct_cosine[DCT_SIDE / 2] * x[0];
    }
};

/* Returns the factor of frequency k that makes the transform orthonormal. */
static __device__ __forceinline__ float dct_factor(int k)
{
    return k ? 0.176776695f : 0.125f; /* sqrt(2 / 64), sqrt(1 / 64) */
}

/* Transform x in place, and back. */
static __device__ __forceinline__ void dct_forward(float (&x)[DCT_SIDE])
{
    float y[DCT_SIDE];
    dct_butterflies<DCT_SIDE>::c2(y, x);
#pragma unroll
    for (int i = 0; i < DCT_SIDE; i++)
        x[i] = y[i] * dct_factor(i);
}

static __device__ __forceinline__ void dct_back(float (&x)[DCT_SIDE])
{
    float y[DCT_SIDE];
#pragma unroll
    for (int i = 0; i < DCT_SIDE; i++)
        y[i] = x[i] * dct_factor(i);
    dct_butterflies<DCT_SIDE>::back(x, y);
}

#endif
