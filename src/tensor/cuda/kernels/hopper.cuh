/* Hopper's matrix units (wgmma), copies of tiles (TMA) and barriers for both.
 *
 * A tile is rows of 64 bf16 elements, 128 bytes, aligned to 1024 bytes; the eight pieces of 16
 * bytes of a row are permuted by the row's last three bits, as the copies write and the units read
 * them. Rows of 128 elements are two tiles, one after the other. A product is of a warpgroup: four
 * warps, each with a strip of 16 of the 64 rows of a result, as in mma.cuh. A product is
 * asynchronous: its registers are touched only after a wait and `settle_results`. */
#ifndef SOTTO_TENSOR_CUDA_HOPPER_CUH
#define SOTTO_TENSOR_CUDA_HOPPER_CUH

#include <cuda.h>

#include "tensor/cuda/kernels/mma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define HOPPER_CODE
#endif

enum { WARPGROUP = 128, TILE_WIDTH = 64, TILE_ROW = 128 /* bytes */ };

/* A barrier: a phase is over when `count` arrivals and the announced bytes have arrived. */
typedef uint64_t barrier;

#ifdef HOPPER_CODE

/* Return a thread's warpgroup and its warp in the warpgroup, as values that the compiler knows to
 * be the same in a whole warp. */
static __device__ __forceinline__ int warpgroup_index()
{
    return __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP, 0);
}

static __device__ __forceinline__ int warp_index()
{
    return __shfl_sync(0xffffffffu, threadIdx.x / 32 % 4, 0);
}

/* Return the descriptor of a tile for the units: address in units of 16 bytes, distance between
 * groups of eight rows, and the permutation; for columns, also the distance to the next 64
 * columns. */
static __device__ __forceinline__ uint64_t tile_rows_of(const bf16 *tile)
{
    const uint64_t apart = 8 * TILE_ROW / 16, permuted = 1;
    return (shared_address(tile) & 0x3ffff) >> 4 | 1ull << 16 | apart << 32 | permuted << 62;
}

static __device__ __forceinline__ uint64_t tile_columns_of(const bf16 *tile, int rows)
{
    const uint64_t apart = 8 * TILE_ROW / 16, permuted = 1, next = rows * TILE_ROW / 16;
    return (shared_address(tile) & 0x3ffff) >> 4 | next << 16 | apart << 32 | permuted << 62;
}

/* Return the descriptor offset of the k-th 16 columns of a tile of `rows` rows, and of the k-th 16
 * rows. */
static __device__ __forceinline__ uint64_t columns_on(int k, int rows)
{
    return k / 4 * (rows * TILE_ROW / 16) + k % 4 * 2;
}

static __device__ __forceinline__ uint64_t rows_on(int k)
{
    return k * (16 * TILE_ROW / 16);
}

#define FOUR(n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define SIXTEEN(n) FOUR(n), FOUR(n + 1), FOUR(n + 2), FOUR(n + 3)
#define REGISTERS_32                                                                               \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "  \
    "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define REGISTERS_64                                                                               \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "  \
    "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "   \
    "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "   \
    "%56, %57, %58, %59, %60, %61, %62, %63}"

/* Computes d (64, N) = (`add`: +=) a (64, 16) b (N, 16)^T, both stored by rows in shared memory. */
static __device__ __forceinline__ void product_of(float (&d)[8][4], uint64_t a, uint64_t b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " REGISTERS_32
                 ", %32, %33, p, 1, 1, 0, 0;\n}"
                 : SIXTEEN(0), SIXTEEN(4)
                 : "l"(a), "l"(b), "r"(add));
}

static __device__ __forceinline__ void product_of(float (&d)[16][4], uint64_t a, uint64_t b,
                                                  int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " REGISTERS_64
                 ", %64, %65, p, 1, 1, 0, 0;\n}"
                 : SIXTEEN(0), SIXTEEN(4), SIXTEEN(8), SIXTEEN(12)
                 : "l"(a), "l"(b), "r"(add));
}

/* Adds a (64, 16) b (16, N) to d (64, N); a is in registers, as in mma.cuh, b stored by rows in
 * shared memory. */
static __device__ __forceinline__ void product_of(float (&d)[8][4], const unsigned (&a)[4],
                                                  uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " REGISTERS_32
                 ", {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
                 : SIXTEEN(0), SIXTEEN(4)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

static __device__ __forceinline__ void product_of(float (&d)[16][4], const unsigned (&a)[4],
                                                  uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " REGISTERS_64
                 ", {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
                 : SIXTEEN(0), SIXTEEN(4), SIXTEEN(8), SIXTEEN(12)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#undef FOUR
#undef SIXTEEN
#undef REGISTERS_32
#undef REGISTERS_64

/* Precedes products that read or add to registers written by other instructions. */
static __device__ __forceinline__ void open_products()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void end_products()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until all but the last LEFT groups of products are done. */
template <int LEFT> static __device__ __forceinline__ void wait_products()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

/* Keeps the compiler from using results before the wait for the products. */
template <int N> static __device__ __forceinline__ void settle_results(float (&acc)[N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            asm volatile("" : "+f"(acc[n][e])::"memory");
}

/* Computes d (64, N) = a (64, W) b (N, W)^T. */
template <int W, int N>
static __device__ __forceinline__ void rows_product(float (&d)[N / 8][4], const bf16 *a,
                                                    const bf16 *b)
{
    const uint64_t left = tile_rows_of(a), right = tile_rows_of(b);
#pragma unroll
    for (int k = 0; k < W / 16; k++)
        product_of(d, left + columns_on(k, 64), right + columns_on(k, N), k > 0);
}

/* Adds a (64, K) b (K, W) to d (64, W). */
template <int W, int K>
static __device__ __forceinline__ void columns_product(float (&d)[W / 8][4],
                                                       const unsigned (&a)[K / 16][4],
                                                       const bf16 *b)
{
    const uint64_t right = tile_columns_of(b, K);
#pragma unroll
    for (int k = 0; k < K / 16; k++)
        product_of(d, a[k], right + rows_on(k));
}

/* Rounds results into the left operand of a product. */
template <int N>
static __device__ __forceinline__ void round_weights(unsigned (&to)[N / 2][4],
                                                     const float (&from)[N][4])
{
#pragma unroll
    for (int k = 0; k < N / 2; k++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            to[k][e] = pair_of(from[2 * k + e / 2][e % 2 * 2], from[2 * k + e / 2][e % 2 * 2 + 1]);
}

static __device__ __forceinline__ void init_barrier(barrier *b, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(count)
                 : "memory");
}

/* Makes barriers visible to the block and its copies, together with a __syncthreads(). */
static __device__ __forceinline__ void publish_barriers()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

static __device__ __forceinline__ void arrive_once(barrier *b)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}

static __device__ __forceinline__ void arrive_for(barrier *b, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)),
                 "r"(bytes)
                 : "memory");
}

/* Waits until the phase of this parity is over: 0 for the first, 1 for the second, ... */
static __device__ __forceinline__ void await_barrier(barrier *b, int parity)
{
    int over;
    do {
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.b32 %0, 1, 0, p;\n}"
                     : "=r"(over)
                     : "r"(shared_address(b)), "r"(parity)
                     : "memory");
    } while (!over);
}

/* Starts to copy rows of a head, the height of the map's boxes, into W / 64 tiles of `rows`. */
template <int W>
static __device__ __forceinline__ void start_tile_rows(bf16 *to, int rows, const CUtensorMap *map,
                                                       barrier *b, int head, int row, int batch)
{
#pragma unroll
    for (int c = 0; c < W; c += TILE_WIDTH)
        asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(to + c * rows)),
                     "l"(map), "r"(shared_address(b)), "r"(c), "r"(head), "r"(row), "r"(batch)
                     : "memory");
}

/* Starts to copy `bytes` bytes; count and addresses are multiples of 16. */
static __device__ __forceinline__ void start_bytes(void *to, const void *from, int bytes,
                                                   barrier *b)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
        "[%3];" ::"r"(shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(b))
        : "memory");
}

/* Makes a thread's stores to shared memory visible to copies that start after a barrier. */
static __device__ __forceinline__ void publish_stores()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Rounds a strip of results, times `scale`, into the tiles of a warpgroup's 64 rows. */
template <int W>
static __device__ __forceinline__ void round_strip(bf16 *to, const float (&acc)[W / 8][4],
                                                   float scale_low, float scale_high)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = threadIdx.x / 32 % 4 * 16 + lane / 4 + 8 * half;
        const float scale = half ? scale_high : scale_low;
#pragma unroll
        for (int n = 0; n < W / 8; n++)
            *(unsigned *)(to + (n / 8 * 64 + row) * TILE_WIDTH + (n % 8 ^ row % 8) * 8 +
                          lane % 4 * 2) =
                pair_of(acc[n][2 * half] * scale, acc[n][2 * half + 1] * scale);
    }
}

/* Copies tiles of 64 rows to global memory, except rows and columns outside the map. */
template <int W>
static __device__ __forceinline__ void store_tile_rows(const bf16 *from, const CUtensorMap *map,
                                                       int head, int row, int batch)
{
#pragma unroll
    for (int c = 0; c < W; c += TILE_WIDTH)
        asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group "
                     "[%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
                     "r"(shared_address(from + c * 64)), "r"(c), "r"(head), "r"(row), "r"(batch)
                     : "memory");
}

/* Waits until the shared memory of this thread's stores may be reused. */
static __device__ __forceinline__ void end_stores()
{
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
}

#endif /* HOPPER_CODE */

/* True if this GPU is a Hopper. */
static inline bool on_hopper()
{
    int device, major = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           major == 9;
}

/* Makes a map of the rows of all heads, for copies of `rows` rows of TILE_WIDTH elements of a head;
 * elements beyond a head's width and rows beyond the last are 0. Returns 0 if CUDA refuses. */
static inline int map_rows(CUtensorMap *map, vec v, int width, int heads, int t, int batch,
                           size_t stride, size_t batch_stride, int rows)
{
    static void *const encode = [] {
        void *found = NULL;
        cudaDriverEntryPointQueryResult how;
#if CUDART_VERSION >= 12050
        const int st = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                                        cudaEnableDefault, &how);
#else
        const int st =
            cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &how);
#endif
        return st == cudaSuccess && how == cudaDriverEntryPointSuccess ? found : NULL;
    }();
    const cuuint64_t sizes[4] = {(cuuint64_t)width, (cuuint64_t)heads, (cuuint64_t)t,
                                 (cuuint64_t)batch};
    const cuuint64_t strides[3] = {width * sizeof(bf16), stride * sizeof(bf16),
                                   batch_stride * sizeof(bf16)};
    const cuuint32_t box[4] = {TILE_WIDTH, 1, (cuuint32_t)rows, 1}, steps[4] = {1, 1, 1, 1};
    return encode &&
           ((decltype(&cuTensorMapEncodeTiled))encode)(
               map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, v.data, sizes, strides, box, steps,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) ==
               CUDA_SUCCESS;
}

#endif
