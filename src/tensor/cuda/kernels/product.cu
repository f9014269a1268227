/* Matrix products in plain fp32, of factors of any type and layout: used without cuBLASLt, and for
 * shapes without a cuBLASLt kernel. A block computes a tile of the result, a thread 4 x 4
 * elements. */
#include "tensor/cuda/kernels/element.cuh"

namespace {

enum { TILE = 64, DEPTH = 16, SIDE = 4 };

/* Returns the offset of element (r, c) of the result. */
__device__ __forceinline__ size_t result_place(const product &p, int r, int c)
{
    return r * (p.c_row ? p.c_row : (size_t)p.n) + c;
}

/* Loads rows [at, at + TILE) x depth [k0, k0 + DEPTH) of a factor into shared memory, (DEPTH,
 * TILE); neighbouring threads read neighbours. `row`, `column`: strides as for a; swapped for b. */
__device__ void load_tile(float to[DEPTH][TILE + 1], vec v, size_t row, size_t column, int at,
                          int rows, int k0, int depth)
{
    for (int e = threadIdx.x; e < TILE * DEPTH; e += THREADS) {
        const int i = row == 1 ? e % TILE : e / DEPTH, k = row == 1 ? e / TILE : e % DEPTH;
        const bool in = at + i < rows && k0 + k < depth;
        to[k][i] = in ? get_element(v, (size_t)(at + i) * row + (size_t)(k0 + k) * column) : 0;
    }
}

__global__ void __launch_bounds__(THREADS) product_kernel(product p)
{
    __shared__ float a[DEPTH][TILE + 1], b[DEPTH][TILE + 1];
    const int m0 = blockIdx.y * TILE, n0 = blockIdx.x * TILE;
    const int i0 = threadIdx.x / (TILE / SIDE), j0 = threadIdx.x % (TILE / SIDE);
    float sum[SIDE][SIDE] = {};
    for (int k0 = 0; k0 < p.k; k0 += DEPTH) {
        load_tile(a, p.a.v, p.a.row, p.a.column, m0, p.m, k0, p.k);
        load_tile(b, p.b.v, p.b.column, p.b.row, n0, p.n, k0, p.k);
        __syncthreads();
        for (int k = 0; k < DEPTH; k++)
            for (int i = 0; i < SIDE; i++)
                for (int j = 0; j < SIDE; j++)
                    sum[i][j] = fmaf(a[k][i0 + i * (TILE / SIDE)], b[k][j0 + j * (TILE / SIDE)],
                                     sum[i][j]);
        __syncthreads();
    }
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            const int r = m0 + i0 + i * (TILE / SIDE), c = n0 + j0 + j * (TILE / SIDE);
            const size_t at = result_place(p, r, c);
            if (r < p.m && c < p.n)
                put_element(p.c, at,
                            sum[i][j] + element_or_zero(p.bias, c) +
                                element_or_zero(p.residual, at));
        }
}

/* Multiplies a few rows: a warp for each element of the result, so decoding reads weights once, at
 * full speed. */
__global__ void row_product_kernel(product p)
{
    const int c = blockIdx.x * (THREADS / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    const int r = blockIdx.y;
    if (c >= p.n)
        return;
    float sum = 0;
    for (int k = lane; k < p.k; k += 32)
        sum = fmaf(get_element(p.a.v, r * p.a.row + k * p.a.column),
                   get_element(p.b.v, k * p.b.row + c * p.b.column), sum);
    sum = warp_sum(sum);
    const size_t at = result_place(p, r, c);
    if (lane == 0)
        put_element(p.c, at, sum + element_or_zero(p.bias, c) + element_or_zero(p.residual, at));
}

} // namespace

int launch_product(stream_t s, const product *p)
{
    if (p->m <= 4 && p->b.row == 1) {
        const dim3 grid(blocks_of(p->n, THREADS / 32), p->m);
        row_product_kernel<<<grid, THREADS, 0, s>>>(*p);
        return cudaGetLastError();
    }
    const dim3 grid(blocks_of(p->n, TILE), blocks_of(p->m, TILE)); /* rows: 4 million at most */
    if (grid.y > 65535)
        return cudaErrorInvalidConfiguration;
    product_kernel<<<grid, THREADS, 0, s>>>(*p);
    return cudaGetLastError();
}
