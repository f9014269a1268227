/* Sums over long vectors and over the rows of a matrix: in double, and always in the same order. */
#include "tensor/cuda/kernels/columns.cuh"

namespace {

__global__ void squares_kernel(double *parts, vec x, vec y, size_t n)
{
    __shared__ double room[THREADS / 32];
    const size_t begin = (size_t)blockIdx.x * SQUARES_BLOCK;
    const size_t end = begin + SQUARES_BLOCK < n ? begin + SQUARES_BLOCK : n;
    double sum = 0;
    for (size_t i = begin + threadIdx.x; i < end; i += THREADS) {
        const double d = (double)get_element(x, i) - (double)element_or_zero(y, i);
        sum += d * d;
    }
    sum = block_sum(sum, room);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = sum;
}

__global__ void add_parts_kernel(double *to, const double *parts, size_t n)
{
    __shared__ double room[THREADS / 32];
    double sum = 0;
    for (size_t i = threadIdx.x; i < n; i += THREADS)
        sum += parts[i];
    sum = block_sum(sum, room);
    if (threadIdx.x == 0)
        *to = sum;
}

struct plain_column {
    static const int sums = 1, held = 1, unroll = 4;
    typedef few<8> eight;
    vec x;
    int width;
    __device__ void add(size_t r, int c, double *sum) const
    {
        sum[0] += get_element(x, r * width + c);
    }
    __device__ eight load_eight(size_t r, int c) const { return load_few<8>(x, r * width + c); }
    __device__ void add_eight(size_t, int, const eight &v, few<8> *sum) const
    {
        for (int e = 0; e < 8; e++)
            sum[0].at[e] += v.at[e];
    }
};

} // namespace

int launch_sum_squares(stream_t s, double *sum, double *parts, vec x, vec y, size_t n)
{
    const unsigned blocks = blocks_of(n, SQUARES_BLOCK);
    squares_kernel<<<blocks, THREADS, 0, s>>>(parts, x, y, n);
    add_parts_kernel<<<1, THREADS, 0, s>>>(sum, parts, blocks);
    return cudaGetLastError();
}

size_t column_parts(int rows, int width, int sums)
{
    return (size_t)blocks_of(rows, COLUMN_ROWS) * width * sums;
}

int launch_column_sums(stream_t s, vec y, vec x, int rows, int width, double *parts)
{
    const vec to[1] = {y};
    return add_columns(s, plain_column{x, width}, to, rows, width,
                       width % 8 == 0 && lanes_of(x) == 8, parts);
}
