/* Elements of vectors of a type known at run time only, one, four or eight at a time, and loops and
 * reductions that kernels share. The type is the same for a whole launch, so a branch on the type
 * costs next to nothing compared with the memory access. */
#ifndef SOTTO_TENSOR_CUDA_ELEMENT_CUH
#define SOTTO_TENSOR_CUDA_ELEMENT_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "tensor/cuda/kernels/launch.h"

typedef __nv_bfloat16 bf16;

enum { THREADS = 256 };

/* Returns the number of blocks, at least 1: a launch without blocks is an error. */
static inline unsigned blocks_of(size_t n, size_t each)
{
    return n > each ? (unsigned)((n + each - 1) / each) : 1;
}

/* Raises the limit of a kernel's shared memory, 48 KB by default. `most` is the largest size of any
 * launch of the kernel, since workers launch at the same time and the last call counts for all of
 * them. */
template <class K> static int ask_room(K *kernel, size_t most)
{
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)most);
}

static __device__ __forceinline__ float get_element(vec v, size_t i)
{
    return v.half ? __bfloat162float(((const bf16 *)v.data)[i]) : ((const float *)v.data)[i];
}

static __device__ __forceinline__ float element_or_zero(vec v, size_t i)
{
    return v.data ? get_element(v, i) : 0;
}

static __device__ __forceinline__ void put_element(vec v, size_t i, float x)
{
    if (v.half)
        ((bf16 *)v.data)[i] = __float2bfloat16_rn(x);
    else
        ((float *)v.data)[i] = x;
}

/* V consecutive elements, 1, 4 or 8; four elements are on a boundary of four elements, eight on 16
 * bytes. */
template <int V> struct few {
    float at[V];
};

template <int V> static __device__ __forceinline__ few<V> load_few(vec v, size_t i)
{
    few<V> out;
    if (V == 1) {
        out.at[0] = get_element(v, i);
    } else if (V == 8 && v.half) {
        const uint4 raw = *(const uint4 *)((const bf16 *)v.data + i);
        const unsigned pairs[4] = {raw.x, raw.y, raw.z, raw.w};
        for (int e = 0; e < V; e++)
            out.at[e] = __uint_as_float(e % 2 ? pairs[e / 2] & 0xffff0000u : pairs[e / 2] << 16);
    } else if (V == 8) {
        for (int e = 0; e < V; e += 4) {
            const float4 raw = *(const float4 *)((const float *)v.data + i + e);
            out.at[e % V] = raw.x;
            out.at[(e + 1) % V] = raw.y;
            out.at[(e + 2) % V] = raw.z;
            out.at[(e + 3) % V] = raw.w;
        }
    } else if (v.half) {
        const uint2 raw = *(const uint2 *)((const bf16 *)v.data + i);
        out.at[0] = __uint_as_float(raw.x << 16);
        out.at[1 % V] = __uint_as_float(raw.x & 0xffff0000u);
        out.at[2 % V] = __uint_as_float(raw.y << 16);
        out.at[3 % V] = __uint_as_float(raw.y & 0xffff0000u);
    } else {
        const float4 raw = *(const float4 *)((const float *)v.data + i);
        out.at[0] = raw.x;
        out.at[1 % V] = raw.y;
        out.at[2 % V] = raw.z;
        out.at[3 % V] = raw.w;
    }
    return out;
}

template <int V> static __device__ __forceinline__ few<V> load_or_zero(vec v, size_t i)
{
    if (v.data)
        return load_few<V>(v, i);
    few<V> zero;
    for (int e = 0; e < V; e++)
        zero.at[e] = 0;
    return zero;
}

static __device__ __forceinline__ unsigned pair_of(float low, float high)
{
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *(const unsigned *)&both;
}

template <int V> static __device__ __forceinline__ void store_few(vec v, size_t i, few<V> x)
{
    if (V == 1)
        put_element(v, i, x.at[0]);
    else if (V == 8 && v.half)
        *(uint4 *)((bf16 *)v.data + i) =
            make_uint4(pair_of(x.at[0], x.at[1 % V]), pair_of(x.at[2 % V], x.at[3 % V]),
                       pair_of(x.at[4 % V], x.at[5 % V]), pair_of(x.at[6 % V], x.at[7 % V]));
    else if (V == 8)
        for (int e = 0; e < V; e += 4)
            *(float4 *)((float *)v.data + i + e) = make_float4(
                x.at[e % V], x.at[(e + 1) % V], x.at[(e + 2) % V], x.at[(e + 3) % V]);
    else if (v.half)
        *(uint2 *)((bf16 *)v.data + i) =
            make_uint2(pair_of(x.at[0], x.at[1 % V]), pair_of(x.at[2 % V], x.at[3 % V]));
    else
        *(float4 *)((float *)v.data + i) =
            make_float4(x.at[0], x.at[1 % V], x.at[2 % V], x.at[3 % V]);
}

constexpr float LOG2E = 1.4426950408889634f;

/* Returns 2^x, 0 for -inf. */
static __device__ __forceinline__ float power_of_two(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Loads eight bf16 without conversion. */
static __device__ __forceinline__ uint4 raw_eight(vec v, size_t i)
{
    return *(const uint4 *)((const bf16 *)v.data + i);
}

static __device__ __forceinline__ few<8> eight_of(uint4 raw)
{
    const unsigned pairs[4] = {raw.x, raw.y, raw.z, raw.w};
    few<8> out;
    for (int e = 0; e < 8; e++)
        out.at[e] = __uint_as_float(e % 2 ? pairs[e / 2] & 0xffff0000u : pairs[e / 2] << 16);
    return out;
}

/* True if four elements at a time may be loaded from multiples of four; also of an absent
 * vector. */
static inline bool by_four(vec v)
{
    return (uintptr_t)v.data % (v.half ? 8 : 16) == 0;
}

/* Returns the number of elements that may be loaded at a time from all arguments. */
static inline int lanes_of(vec v)
{
    return (uintptr_t)v.data % 16 == 0 ? 8 : by_four(v) ? 4 : 1;
}

template <class... Rest> static inline int lanes_of(vec v, Rest... rest)
{
    const int one = lanes_of(v), all = lanes_of(rest...);
    return one < all ? one : all;
}

/* Calls f.run<V>(i) for every V of n elements. */
template <int V, class F> __global__ void each_kernel(F f, size_t n)
{
    size_t i = (blockIdx.x * (size_t)THREADS + threadIdx.x) * V;
    if (i + V <= n)
        f.template run<V>(i);
    else
        for (; i < n; i++)
            f.template run<1>(i);
}

template <class F> static int launch_each(stream_t s, F f, size_t n, int lanes)
{
    if (n == 0)
        return 0;
    if (lanes == 8 && n >= (size_t)1 << 16)
        each_kernel<8, F><<<blocks_of(n, 8 * THREADS), THREADS, 0, s>>>(f, n);
    else if (lanes >= 4)
        each_kernel<4, F><<<blocks_of(n, 4 * THREADS), THREADS, 0, s>>>(f, n);
    else
        each_kernel<1, F><<<blocks_of(n, THREADS), THREADS, 0, s>>>(f, n);
    return cudaGetLastError();
}

/* Calls f.run<1>(i) for every element. */
template <class F> static int launch_each_one(stream_t s, F f, size_t n)
{
    if (n)
        each_kernel<1, F><<<blocks_of(n, THREADS), THREADS, 0, s>>>(f, n);
    return cudaGetLastError();
}

/* Sums over a warp; the result is the same in every lane and every run. */
template <class T> static __device__ __forceinline__ T warp_sum(T x)
{
    for (int far = 16; far > 0; far /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, far);
    return x;
}

/* Sums over a block; `room` is shared, a value for each warp. */
template <class T> static __device__ T block_sum(T x, T *room)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    x = warp_sum(x);
    __syncthreads();
    if (lane == 0)
        room[warp] = x;
    __syncthreads();
    T sum = 0;
    for (int i = 0; i < (int)blockDim.x / 32; i++)
        sum += room[i];
    return sum;
}

#endif
