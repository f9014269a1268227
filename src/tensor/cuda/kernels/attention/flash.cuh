/* Shared code of both passes of attention on the matrix units. */
#ifndef SOTTO_TENSOR_CUDA_FLASH_CUH
#define SOTTO_TENSOR_CUDA_FLASH_CUH

#include <math_constants.h>
#include <type_traits>

#include "tensor/cuda/kernels/attention/attend.cuh"
#include "tensor/cuda/kernels/mma.cuh"

namespace {

enum { WARPS = 4 };


__device__ __forceinline__ const bf16 *rows_at(vec v, size_t at)
{
    return (const bf16 *)v.data + at;
}

/* True if queries [i, i + n) all see keys [j, j + m), so pairs need no check. */
__device__ __forceinline__ bool all_see(const attention_shape &p, int i, int n, int j, int m)
{
    if (i + n > p.t_q || j + m > p.t_k)
        return false;
    return p.whole || (query_sees(p, i, j + m - 1) && query_sees(p, i + n - 1, j));
}

/* Return a lane's row in a strip of 16 (the lane also has row + 8), and its first of two columns of
 * 8. */
__device__ __forceinline__ int lane_row()
{
    return threadIdx.x % 32 / 4;
}

__device__ __forceinline__ int lane_column()
{
    return threadIdx.x % 4 * 2;
}

/* The running softmax of the two rows of a strip that a lane has. */
struct running_softmax {
    float max[2], sum[2];
};

/* Turns scores into weights; earlier sums shrink by shrink[]. Weights are relative to the largest
 * score so far, or to a score smaller by up to STEP powers of two, so that the reference rarely
 * changes. */
template <int N, int STEP>
__device__ __forceinline__ void soften_scores(running_softmax &s, float scores[N][4], float scale,
                                              float shrink[2])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float top = s.max[half];
#pragma unroll
        for (int n = 0; n < N; n++)
            top = fmaxf(top, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        if (STEP && !((top - s.max[half]) * scale > STEP))
            top = s.max[half];
        const float base = top == -CUDART_INF_F ? 0 : top * scale; /* no key seen yet */
        shrink[half] = STEP && top == s.max[half] ? 1 : power_of_two(s.max[half] * scale - base);
        float sum = 0;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 2 * half; e < 2 * half + 2; e++) {
                scores[n][e] = power_of_two(scores[n][e] * scale - base);
                sum += scores[n][e];
            }
        s.max[half] = top;
        s.sum[half] = s.sum[half] * shrink[half] + sum;
    }
}

/* Stores a strip of results, `width` columns times `scale`, from row `row` on, which is the warp's
 * first. */
template <int W>
__device__ void put_strip(vec to, size_t at, size_t stride, int row, int rows, int width,
                          const float acc[W / 8][4], float scale_low, float scale_high)
{
    for (int half = 0; half < 2; half++) {
        const int i = row + lane_row() + 8 * half;
        const float scale = half ? scale_high : scale_low;
        if (i >= rows)
            continue;
        bf16 *out = (bf16 *)to.data + at + i * stride + lane_column();
#pragma unroll
        for (int n = 0; n < W / 8; n++)
            if (8 * n < width)
                *(unsigned *)(out + 8 * n) =
                    pair_of(acc[n][2 * half] * scale, acc[n][2 * half + 1] * scale);
    }
}

/* Calls f with the width of tiles for heads of `width`; wider tiles end in columns of 0. */
template <class F> int by_width(int width, F f)
{
    return width <= 32   ? f(std::integral_constant<int, 32>())
           : width <= 48 ? f(std::integral_constant<int, 48>())
           : width <= 64 ? f(std::integral_constant<int, 64>())
           : width <= 80 ? f(std::integral_constant<int, 80>())
           : width <= 96 ? f(std::integral_constant<int, 96>())
                         : f(std::integral_constant<int, 128>());
}

/* Returns the queries of a head, rounded up to whole tiles of Hopper. */
__host__ __device__ __forceinline__ int padded_queries(int t)
{
    return (t + 63) / 64 * 64;
}

/* Returns the bytes of shared memory of `rows` rows of tiles. */
template <int W> size_t flash_room(int rows)
{
    return (size_t)rows * tile_of<W>::stride * sizeof(bf16);
}

} // namespace

/* flash_hopper.cu and flash_hopper_backward.cu: attention on Hopper. Return cudaErrorNotSupported if
 * the build, the GPU or the rows do not allow it. */
int hopper_forward(stream_t s, const attention_shape *p, const attention_rows *r);
int hopper_backward(stream_t s, const attention_shape *p, const attention_rows *r,
                    const attention_grads *g);

#endif
