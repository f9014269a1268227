/* Products of bf16 tiles in shared memory on the matrix units (mma.sync, 16 x 8 x 16), by warps.
 *
 * A warp has M strips of 16 rows of a result, in fp32: element (row, 8 t + column) of strip m is in
 * acc[m][t][...], two rows (lane / 4 and 8 more) of two columns (2 (lane % 4) and 1 more) in each
 * lane. Rows of tiles are W + 8 elements apart, so that eight rows begin in different banks. */
#ifndef SOTTO_TENSOR_CUDA_MMA_CUH
#define SOTTO_TENSOR_CUDA_MMA_CUH

#include "tensor/cuda/kernels/element.cuh"

template <int W> struct tile_of {
    static const int stride = W + 8;
};

static __device__ __forceinline__ unsigned shared_address(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

/* Load four 8 x 8 matrices, as stored or transposed; lanes 8 i to 8 i + 7 pass the rows of matrix
 * i. */
static __device__ __forceinline__ void load_matrices(unsigned to[4], const bf16 *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row)));
}

static __device__ __forceinline__ void load_turned(unsigned to[4], const bf16 *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row)));
}

static __device__ __forceinline__ void multiply_16x8(float c[4], const unsigned a[4], unsigned b0,
                                                     unsigned b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Adds a (16 M, W) b (N, W)^T to acc (16 M, N); a and b are stored by rows in shared memory. */
template <int W, int M, int N>
static __device__ __forceinline__ void rows_by_rows(float acc[M][N / 8][4], const bf16 *a,
                                                    const bf16 *b)
{
    const int lane = threadIdx.x % 32, stride = tile_of<W>::stride;
    const bf16 *a_row = a + (lane % 16) * stride + lane / 16 * 8;
    const bf16 *b_row = b + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 8;
#pragma unroll
    for (int k = 0; k < W; k += 16) {
        unsigned left[M][4];
#pragma unroll
        for (int m = 0; m < M; m++)
            load_matrices(left[m], a_row + m * 16 * stride + k);
#pragma unroll
        for (int n = 0; n < N; n += 16) {
            unsigned right[4];
            load_matrices(right, b_row + n * stride + k);
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply_16x8(acc[m][n / 8], left[m], right[0], right[1]);
                multiply_16x8(acc[m][n / 8 + 1], left[m], right[2], right[3]);
            }
        }
    }
}

/* Adds rounded weights (16 M, N) times b (N, W) to acc (16 M, W); b is stored by rows in shared
 * memory. */
template <int W, int M, int N>
static __device__ __forceinline__ void weights_by_rows(float acc[M][W / 8][4],
                                                       const float weights[M][N / 8][4],
                                                       const bf16 *b)
{
    const int lane = threadIdx.x % 32, stride = tile_of<W>::stride;
    const bf16 *b_row = b + (lane % 16) * stride + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < N; k += 16) {
        unsigned left[M][4];
#pragma unroll
        for (int m = 0; m < M; m++) {
            const float *low = weights[m][k / 8], *high = weights[m][k / 8 + 1];
            left[m][0] = pair_of(low[0], low[1]);
            left[m][1] = pair_of(low[2], low[3]);
            left[m][2] = pair_of(high[0], high[1]);
            left[m][3] = pair_of(high[2], high[3]);
        }
#pragma unroll
        for (int n = 0; n < W; n += 16) {
            unsigned right[4];
            load_turned(right, b_row + k * stride + n);
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply_16x8(acc[m][n / 8], left[m], right[0], right[1]);
                multiply_16x8(acc[m][n / 8 + 1], left[m], right[2], right[3]);
            }
        }
    }
}

template <int M, int N> static __device__ __forceinline__ void clear_results(float acc[M][N][4])
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                acc[m][n][e] = 0;
}

/* Starts to copy rows [at, at + ROWS) of `from` into a tile; rows beyond `rows` and columns beyond
 * `width` become 0. */
template <int W, int ROWS>
static __device__ __forceinline__ void start_tile(bf16 *to, const bf16 *from, size_t stride, int at,
                                                  int rows, int width)
{
    for (int e = threadIdx.x; e < ROWS * (W / 8); e += blockDim.x) {
        const int i = e / (W / 8), c = e % (W / 8) * 8, in = at + i < rows && c < width;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                         shared_address(to + i * tile_of<W>::stride + c)),
                     "l"(in ? from + (at + i) * stride + c : from), "r"(in ? 16 : 0));
    }
}

/* Starts to copy a number, or 0 unless `in`. */
static __device__ __forceinline__ void start_float(float *to, const float *from, bool in)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(in ? 4 : 0));
}

static __device__ __forceinline__ void end_starts()
{
    asm volatile("cp.async.commit_group;");
}

/* Waits until all but the last LEFT groups of copies are done. */
template <int LEFT> static __device__ __forceinline__ void wait_tiles()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT));
}

#endif
