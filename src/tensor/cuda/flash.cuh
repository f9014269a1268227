/* What both passes of attention on the matrix units share. */
#ifndef SOTTO_TENSOR_CUDA_FLASH_CUH
#define SOTTO_TENSOR_CUDA_FLASH_CUH

#include <type_traits>

#include "tensor/cuda/attend.cuh"
#include "tensor/cuda/mma.cuh"

namespace {

enum { WARPS = 4 };

constexpr float LOG2E = 1.4426950408889634f;

__device__ __forceinline__ const bf16 *rows_at(vec v, size_t at)
{
    return (const bf16 *)v.data + at;
}

/* Whether queries [i, i + n) all see keys [j, j + m): no need to look at each. */
__device__ __forceinline__ bool all_see(const attention_shape &p, int i, int n, int j, int m)
{
    if (i + n > p.t_q || j + m > p.t_k)
        return false;
    return p.whole || (sees(p, i, j + m - 1) && sees(p, i + n - 1, j));
}

/* Rows of a strip of 16 that a lane has: this and 8 more; and its first column of 8. */
__device__ __forceinline__ int lane_row()
{
    return threadIdx.x % 32 / 4;
}

__device__ __forceinline__ int lane_column()
{
    return threadIdx.x % 4 * 2;
}

/* Rows of results of a strip, of `width` columns, times `scale`, from the first of a warp's, `row`,
 * on. */
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

/* f of the width of tiles that heads of `width` take; tiles that are wider end in columns of 0. */
template <class F> int by_width(int width, F f)
{
    return width <= 32   ? f(std::integral_constant<int, 32>())
           : width <= 48 ? f(std::integral_constant<int, 48>())
           : width <= 64 ? f(std::integral_constant<int, 64>())
           : width <= 80 ? f(std::integral_constant<int, 80>())
           : width <= 96 ? f(std::integral_constant<int, 96>())
                         : f(std::integral_constant<int, 128>());
}

/* Bytes of shared memory that rows of tiles take. */
template <int W> size_t room_of(int rows)
{
    return (size_t)rows * tile_of<W>::stride * sizeof(bf16);
}

} // namespace

#endif
