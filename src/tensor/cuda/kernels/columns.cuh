/* Sums over the rows of a matrix, for each column: parts of COLUMN_ROWS rows, added in order. */
#ifndef SOTTO_TENSOR_CUDA_COLUMNS_CUH
#define SOTTO_TENSOR_CUDA_COLUMNS_CUH

#include "tensor/cuda/kernels/element.cuh"

enum { COLUMN_LANES = 8 }; /* threads that share the rows of a column's part */

/* Sums columns: f.add(row, column, sum) adds an element's contribution to each of F::sums sums.
 * `parts` is (part, sum, column). */
template <class F> __global__ void columns_kernel(F f, int rows, int width, double *parts)
{
    __shared__ double room[COLUMN_LANES][F::sums][32];
    const int column = blockIdx.x * 32 + threadIdx.x, lane = threadIdx.y;
    const int begin = blockIdx.y * COLUMN_ROWS;
    const int end = begin + COLUMN_ROWS < rows ? begin + COLUMN_ROWS : rows;
    double sum[F::sums];
    for (int k = 0; k < F::sums; k++)
        sum[k] = 0;
    if (column < width)
        for (int r = begin + lane; r < end; r += COLUMN_LANES)
            f.add((size_t)r, column, sum);
    for (int k = 0; k < F::sums; k++)
        room[lane][k][threadIdx.x] = sum[k];
    __syncthreads();
    if (lane != 0 || column >= width)
        return;
    for (int k = 0; k < F::sums; k++) {
        double total = 0;
        for (int l = 0; l < COLUMN_LANES; l++)
            total += room[l][k][threadIdx.x];
        parts[((size_t)blockIdx.y * F::sums + k) * width + column] = total;
    }
}

enum { EIGHT_LANES = 16 };

/* Sums eight columns a thread, in fp32 since a thread has few rows: f.add_eight(row, column, x,
 * sum) for x = f.load_eight(row, column). f.add_eight may write, so F::held rows are loaded before
 * the first is added; F::unroll turns of the loop are unrolled. */
template <class F>
__global__ void __launch_bounds__(32 * EIGHT_LANES, F::held)
    eight_columns_kernel(F f, int rows, int width, double *parts)
{
    __shared__ few<8> room[EIGHT_LANES][F::sums][32];
    const int column = (blockIdx.x * 32 + threadIdx.x) * 8, lane = threadIdx.y;
    const int begin = blockIdx.y * COLUMN_ROWS;
    const int end = begin + COLUMN_ROWS < rows ? begin + COLUMN_ROWS : rows;
    few<8> sum[F::sums];
    for (int k = 0; k < F::sums; k++)
        for (int e = 0; e < 8; e++)
            sum[k].at[e] = 0;
    if (column < width)
#pragma unroll F::unroll
        for (int r = begin + lane; r < end; r += F::held * EIGHT_LANES) {
            typename F::eight x[F::held];
#pragma unroll
            for (int h = 0; h < F::held; h++)
                if (h == 0 || r + h * EIGHT_LANES < end)
                    x[h] = f.load_eight((size_t)r + h * EIGHT_LANES, column);
#pragma unroll
            for (int h = 0; h < F::held; h++)
                if (h == 0 || r + h * EIGHT_LANES < end)
                    f.add_eight((size_t)r + h * EIGHT_LANES, column, x[h], sum);
        }
    for (int k = 0; k < F::sums; k++)
        room[lane][k][threadIdx.x] = sum[k];
    __syncthreads();
    for (int t = lane * 32 + threadIdx.x; t < F::sums * 256; t += 32 * EIGHT_LANES) {
        const int k = t / 256, c = t % 256, to = blockIdx.x * 256 + c;
        double total = 0;
        for (int l = 0; l < EIGHT_LANES; l++)
            total += room[l][k][c / 8].at[c % 8];
        if (to < width)
            parts[((size_t)blockIdx.y * F::sums + k) * width + to] = total;
    }
}

template <class F>
static int sum_columns(stream_t s, F f, int rows, int width, double *parts)
{
    const dim3 grid(blocks_of(width, 32), blocks_of(rows, COLUMN_ROWS)), block(32, COLUMN_LANES);
    columns_kernel<<<grid, block, 0, s>>>(f, rows, width, parts);
    return cudaGetLastError();
}

/* Returns sum k of `sums` over all parts. */
static __device__ __forceinline__ double column_total(const double *parts, int n, int sums, int k,
                                                      int width, int column)
{
    double total = 0;
    for (int i = 0; i < n; i++)
        total += parts[((size_t)i * sums + k) * width + column];
    return total;
}

struct column_targets {
    vec to[2];
};

enum { TOTAL_LANES = 32 };

/* Adds the parts. A block has 32 columns of a sum, TOTAL_LANES threads each, which take every
 * TOTAL_LANES-th part. */
static __global__ void __launch_bounds__(32 * TOTAL_LANES)
    add_totals_kernel(column_targets y, const double *parts, int n, int sums, int width)
{
    __shared__ double room[TOTAL_LANES][32];
    const int column = blockIdx.x * 32 + threadIdx.x, lane = threadIdx.y;
    const vec to = blockIdx.y ? y.to[1] : y.to[0];
    if (!to.data)
        return;
    double total = 0;
    if (column < width)
#pragma unroll 4
        for (int i = lane; i < n; i += TOTAL_LANES)
            total += parts[((size_t)i * sums + blockIdx.y) * width + column];
    room[lane][threadIdx.x] = total;
    __syncthreads();
    if (lane != 0 || column >= width)
        return;
    for (int l = 1; l < TOTAL_LANES; l++)
        total += room[l][threadIdx.x];
    put_element(to, column, (float)(get_element(to, column) + total));
}

/* to[k] += sum k of each column over n parts, unless to[k] is absent. */
static inline int add_totals(stream_t s, const vec *to, int sums, int n, int width,
                             const double *parts)
{
    column_targets y = {};
    for (int k = 0; k < sums; k++)
        y.to[k] = to[k];
    add_totals_kernel<<<dim3(blocks_of(width, 32), sums), dim3(32, TOTAL_LANES), 0, s>>>(
        y, parts, n, sums, width);
    return cudaGetLastError();
}

/* to[k] += sum k of each column, unless to[k] is absent; `eight`: rows can be loaded by eight. */
template <class F>
static int add_columns(stream_t s, F f, const vec *to, int rows, int width, bool eight,
                       double *parts)
{
    int st = 0;
    if (eight)
        eight_columns_kernel<<<dim3(blocks_of(width, 256), blocks_of(rows, COLUMN_ROWS)),
                               dim3(32, EIGHT_LANES), 0, s>>>(f, rows, width, parts);
    else
        st = sum_columns(s, f, rows, width, parts);
    const int added = add_totals(s, to, F::sums, (int)blocks_of(rows, COLUMN_ROWS), width, parts);
    return st ? st : added;
}

#endif
