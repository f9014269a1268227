/* Tiles of the cosine transform with rows of 64 elements, the largest and most frequent tiles: by
 * butterflies in registers. A block of 64 threads has a tile, a thread a row and then a column, or
 * a thread has a chunk (a tile of one row). Between the steps tiles are in shared memory, rows LINE
 * floats apart so that rows and columns cause no bank conflicts. codec.cu has the other tiles and
 * explains the steps. */
#include "tensor/cuda/kernels/dct.cuh"
#include "tensor/cuda/kernels/element.cuh"

namespace {

enum { SIDE = DCT_SIDE, LINE = SIDE + 1, WARPS = SIDE / 32 };
typedef float numbers[SIDE];

struct butterfly_tile {
    size_t begin, kept; /* offset in the vector; offset in index and value */
};

__device__ __forceinline__ butterfly_tile butterfly_tile_of(const tile_shape &p, int i)
{
    return {p.at + (size_t)(i / p.nx) * p.h * p.stride + (size_t)(i % p.nx) * SIDE,
            p.kept + (size_t)i * p.keep};
}

__device__ __forceinline__ void load_line(numbers &x, const float *from, size_t step)
{
#pragma unroll
    for (int i = 0; i < SIDE; i++)
        x[i] = from[i * step];
}

__device__ __forceinline__ void clear_numbers(numbers &x)
{
#pragma unroll
    for (int i = 0; i < SIDE; i++)
        x[i] = 0;
}

__device__ __forceinline__ void store_line(float *to, const numbers &x, int step)
{
#pragma unroll
    for (int i = 0; i < SIDE; i++)
        to[i * step] = x[i];
}

/* Returns the sum of x over a group of threads, 1 or all of the block. `turn` alternates 0, 1, 0,
 * ... between calls. */
template <int GROUP> __device__ __forceinline__ int group_total(int x, int *room, int turn)
{
    if (GROUP == 1)
        return x;
    x = __reduce_add_sync(0xffffffffu, x);
    if (threadIdx.x % 32 == 0)
        room[turn * WARPS + threadIdx.x / 32] = x;
    __syncthreads();
    int sum = 0;
    for (int i = 0; i < WARPS; i++)
        sum += room[turn * WARPS + i];
    return sum;
}

template <int GROUP> __device__ __forceinline__ unsigned group_largest(unsigned x, int *room)
{
    if (GROUP == 1)
        return x;
    x = __reduce_max_sync(0xffffffffu, x);
    if (threadIdx.x % 32 == 0)
        room[threadIdx.x / 32] = (int)x;
    __syncthreads();
    for (int i = 0; i < WARPS; i++)
        x = max(x, (unsigned)room[i]);
    return x;
}

/* Returns the sum of x over the threads of the group before this thread. */
template <int GROUP> __device__ __forceinline__ int group_before(int x, int *room, int turn)
{
    if (GROUP == 1)
        return 0;
    const int own = x;
    for (int far = 1; far < 32; far *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, x, far);
        x += (int)(threadIdx.x % 32) >= far ? other : 0;
    }
    if (threadIdx.x % 32 == 31)
        room[turn * WARPS + threadIdx.x / 32] = x;
    __syncthreads();
    for (int i = 0; i < (int)threadIdx.x / 32; i++)
        x += room[turn * WARPS + i];
    return x - own;
}

/* Returns the number of the group's coefficients that reach a magnitude; a NaN counts as
 * infinite. */
template <int GROUP>
__device__ __forceinline__ int group_reach(const numbers &c, unsigned magnitude, int *room,
                                           int turn)
{
    const float least = __uint_as_float(magnitude);
    int n = 0;
#pragma unroll
    for (int j = 0; j < SIDE; j++)
        n += !(fabsf(c[j]) < least);
    return group_total<GROUP>(n, room, turn);
}

/* Returns a magnitude that exactly `keep` of the group's coefficients reach or, with equal
 * coefficients at the border, the largest magnitude that at least `keep` reach. Found bit by bit,
 * starting from an eighth of the largest if possible. */
template <int GROUP> __device__ float group_threshold(const numbers &c, int keep, int *room)
{
    const unsigned infinite = 0x7f800000u, power = 1u << 23; /* doubles a magnitude */
    float peak = 0;
#pragma unroll
    for (int j = 0; j < SIDE; j++)
        peak = fmaxf(peak, fabsf(c[j]));
    const unsigned most = group_largest<GROUP>(__float_as_uint(peak), room) & infinite;
    unsigned found = most > 3 * power ? most - 3 * power : 0;
    const int n = group_reach<GROUP>(c, found, room, 1);
    int bit = 24;
    bool done = n == keep || keep == 0;
    if (n < keep) {
        found = 0;
        bit = 30;
    }
    for (; GROUP == 1 ? !__all_sync(0xffffffffu, done || bit < 0) : !done && bit >= 0; bit--) {
        const unsigned next = found + (1u << max(bit, 0));
        const int m = group_reach<GROUP>(c, next, room, bit & 1);
        if (!done && bit >= 0 && m >= keep && next <= infinite) {
            found = next;
            done = m == keep;
        }
    }
    return __uint_as_float(found);
}

/* Returns x with only its first n set bits. */
__device__ __forceinline__ uint64_t first_bits(uint64_t x, int n)
{
    for (int k = __popcll(x); k > n; k--)
        x &= ~(0x8000000000000000ull >> __clzll((long long)x));
    return x;
}

/* Writes the `keep` largest of the group's coefficients in the order of their places; this thread
 * has the coefficients from `first` on. c keeps only these, as rounded, and zeros. Overwrites
 * `row`, 64 floats. */
template <int GROUP>
__device__ __forceinline__ void keep_group_largest(numbers &c, float *row, int keep, int first,
                                                   int32_t *index, vec value, size_t kept,
                                                   int *room)
{
    const float least = group_threshold<GROUP>(c, keep, room);
    unsigned above[2] = {0, 0}, same[2] = {0, 0};
#pragma unroll
    for (int j = 0; j < SIDE; j++) {
        above[j / 32] |= (unsigned)!(fabsf(c[j]) <= least) << j % 32;
        same[j / 32] |= (unsigned)(fabsf(c[j]) == least) << j % 32;
    }
    uint64_t larger = (uint64_t)above[1] << 32 | above[0],
             equal = (uint64_t)same[1] << 32 | same[0];
    store_line(row, c, 1); /* indexable, unlike registers */
    if (GROUP > 1)         /* room is not read any more */
        __syncthreads();
    const int n = __popcll(larger);
    const int spare = max(keep - group_total<GROUP>(n, room, 0), 0); /* for coefficients equal to
                                                                        the border */
    const int equal_before = group_before<GROUP>(__popcll(equal), room, 1);
    int at = group_before<GROUP>(n, room, 0) + min(equal_before, spare);
    const uint64_t take =
        first_bits(larger | first_bits(equal, max(spare - equal_before, 0)), max(keep - at, 0));
    for (uint64_t left = take; left; left &= left - 1, at++) {
        const int j = __ffsll((long long)left) - 1;
        index[kept + at] = first + j;
        put_element(value, kept + at, row[j]);
    }
#pragma unroll
    for (int j = 0; j < SIDE; j++)
        c[j] = (unsigned)(take >> j / 32 * 32) >> j % 32 & 1 ? c[j] : 0;
    if (!value.half)
        return;
#pragma unroll
    for (int j = 0; j < SIDE; j++)
        c[j] = __bfloat162float(__float2bfloat16_rn(c[j]));
}

/* Transforms along h by the matrix if h is not 64: calls f(i, sum over y of b[i, y] or b[y, i]
 * times element y of the column). */
template <class F>
__device__ __forceinline__ void each_along_h(const float *column, const tile_shape &p, bool back,
                                             F f)
{
    for (int i = 0; i < p.h; i++) {
        float sum = 0;
        for (int y = 0; y < p.h; y++)
            sum = fmaf(column[y * LINE], p.basis_h[back ? y * p.h + i : i * p.h + y], sum);
        f(i, sum);
    }
}

/* Encodes tiles of 64 rows, WHOLE, or fewer. Columns and rows share the loop body, since its code
 * is long. */
template <bool WHOLE>
__global__ void __launch_bounds__(SIDE, 8)
    encode_tiles(tile_shape p, float *m, int32_t *index, vec value)
{
    __shared__ float a[SIDE * LINE], b[WHOLE ? 1 : SIDE * LINE];
    __shared__ int room[2 * WARPS];
    const int t = threadIdx.x;
    for (int i = p.begin + blockIdx.x; i < p.end; i += gridDim.x) {
        const butterfly_tile own = butterfly_tile_of(p, i);
        float *column = m + own.begin + t, *row = a + t * LINE;
        numbers x;
#pragma unroll 16
        for (int y = 0; y < (WHOLE ? SIDE : p.h); y++)
            a[y * LINE + t] = column[y * p.stride];
        if (!WHOLE)
            each_along_h(a + t, p, false, [&](int y, float sum) { b[y * LINE + t] = sum; });
#pragma unroll 1
        for (int pass = WHOLE ? 0 : 1; pass < 2; pass++) {
            if (pass == 1)
                __syncthreads();
            load_line(x, pass == 0 ? a + t : WHOLE ? row : b + t * LINE, pass == 0 ? LINE : 1);
            if (t >= p.h && !WHOLE)
                clear_numbers(x);
            dct_forward(x);
            if (pass == 0)
                store_line(a + t, x, LINE);
        }
        keep_group_largest<SIDE>(x, row, p.keep, t * SIDE, index, value, own.kept, room);
#pragma unroll 1
        for (int pass = WHOLE ? 0 : 1; pass < 2; pass++) {
            dct_back(x);
            if (pass == 1 && WHOLE)
                break;
            store_line(row, x, 1);
            __syncthreads();
            load_line(x, a + t, LINE);
        }
        if (WHOLE) {
#pragma unroll
            for (int y = 0; y < SIDE; y++)
                column[y * p.stride] -= x[y];
        } else {
            each_along_h(a + t, p, true, [&](int y, float sum) { column[y * p.stride] -= sum; });
        }
        __syncthreads();
    }
}

/* Calls f(place in shared memory, place in the vector) for the rows of 64 chunks from `first` on,
 * by all threads. */
template <class F> __device__ __forceinline__ void each_row(const tile_shape &p, int first, F f)
{
    const bool dense = p.stride == (size_t)p.nx * SIDE; /* rows are contiguous */
    const size_t begin = p.at + (size_t)first * SIDE + threadIdx.x;
    if (dense && first + SIDE <= p.end) {
#pragma unroll 16
        for (int y = 0; y < SIDE; y++)
            f(y * LINE + threadIdx.x, begin + y * SIDE);
    } else {
        for (int y = 0; y < SIDE && first + y < p.end; y++)
            f(y * LINE + threadIdx.x, butterfly_tile_of(p, first + y).begin + threadIdx.x);
    }
}

__global__ void __launch_bounds__(SIDE, 8)
    encode_chunks(tile_shape p, float *m, int32_t *index, vec value)
{
    __shared__ float a[SIDE * LINE];
    const int t = threadIdx.x;
    float *row = a + t * LINE;
    for (int first = p.begin + blockIdx.x * SIDE; first < p.end; first += gridDim.x * SIDE) {
        numbers x;
        each_row(p, first, [&](int at, size_t of) { a[at] = m[of]; });
        __syncthreads();
        load_line(x, row, 1);
        dct_forward(x);
        const int keep = first + t < p.end ? p.keep : 0;
        keep_group_largest<1>(x, row, keep, 0, index, value, p.kept + (size_t)(first + t) * p.keep,
                              NULL);
        dct_back(x);
        store_line(row, x, 1);
        __syncthreads();
        each_row(p, first, [&](int at, size_t of) { m[of] -= a[at]; });
        __syncthreads();
    }
}

/* Adds a coefficient of sender r to the tile of `size` elements at a. */
__device__ __forceinline__ void add_one(const tile_shape &p, const tile_messages &sent, int r,
                                        size_t at, float *a, uint16_t *count, int size,
                                        uint64_t *damaged)
{
    const uint32_t e = (uint32_t)sent.index[r * sent.index_step + at];
    if (e >= (uint32_t)size) {
        *damaged = (uint64_t)e << 32 | (uint64_t)p.h << 16 | (uint64_t)p.w;
        return;
    }
    const int place = e / SIDE * LINE + e % SIDE;
    a[place] += get_element(sent.value, r * sent.value_step + at);
    count[place]++;
}

/* Turns a row of sums into means, given the number of summands. */
__device__ __forceinline__ void make_means(float *row, const uint16_t *count)
{
#pragma unroll 4
    for (int j = 0; j < SIDE; j++)
        if (count[j] > 1)
            row[j] /= (float)count[j];
}

template <bool WHOLE>
__global__ void __launch_bounds__(SIDE, 8)
    decode_tiles(tile_shape p, float *y, tile_messages sent, uint64_t *damaged)
{
    __shared__ float a[SIDE * LINE];
    __shared__ uint16_t count[SIDE * LINE];
    const int t = threadIdx.x;
    for (int i = p.begin + blockIdx.x; i < p.end; i += gridDim.x) {
        const butterfly_tile own = butterfly_tile_of(p, i);
        numbers x;
        for (int e = t; e < SIDE * LINE; e += SIDE) {
            a[e] = 0;
            count[e] = 0;
        }
        for (int r = 0; r < sent.senders; r++) {
            __syncthreads(); /* one sender after the other */
            for (int k = t; k < p.keep; k += SIDE)
                add_one(p, sent, r, own.kept + k, a, count, p.h * SIDE, damaged);
        }
        __syncthreads();
        float *column = y + own.begin + t;
        make_means(a + t * LINE, count + t * LINE);
        load_line(x, a + t * LINE, 1);
#pragma unroll 1
        for (int pass = WHOLE ? 0 : 1; pass < 2; pass++) {
            dct_back(x);
            if (pass == 1 && WHOLE)
                break;
            store_line(a + t * LINE, x, 1);
            __syncthreads();
            load_line(x, a + t, LINE);
        }
        if (WHOLE) {
#pragma unroll
            for (int j = 0; j < SIDE; j++)
                column[j * p.stride] = x[j];
        } else {
            each_along_h(a + t, p, true, [&](int j, float sum) { column[j * p.stride] = sum; });
        }
        __syncthreads();
    }
}

__global__ void __launch_bounds__(SIDE, 8)
    decode_chunks(tile_shape p, float *y, tile_messages sent, uint64_t *damaged)
{
    __shared__ float a[SIDE * LINE];
    __shared__ uint16_t count[SIDE * LINE];
    const int t = threadIdx.x;
    float *row = a + t * LINE;
    for (int first = p.begin + blockIdx.x * SIDE; first < p.end; first += gridDim.x * SIDE) {
        numbers x;
        for (int j = 0; j < SIDE; j++) {
            row[j] = 0;
            count[t * LINE + j] = 0;
        }
        for (int r = 0; r < sent.senders && first + t < p.end; r++)
            for (int k = 0; k < p.keep; k++)
                add_one(p, sent, r, p.kept + (size_t)(first + t) * p.keep + k, row,
                        count + t * LINE, SIDE, damaged);
        make_means(row, count + t * LINE);
        load_line(x, row, 1);
        dct_back(x);
        store_line(row, x, 1);
        __syncthreads();
        each_row(p, first, [&](int at, size_t of) { y[of] = a[at]; });
        __syncthreads();
    }
}

int blocks_for(const tile_shape *p)
{
    const int n = p->h == 1 ? (p->end - p->begin + SIDE - 1) / SIDE : p->end - p->begin;
    return n < 1 << 14 ? n : 1 << 14;
}

} // namespace

int tiles_by_butterflies(const tile_shape *p)
{
    return p->w == SIDE && p->h <= SIDE;
}

int launch_butterflies_encode(stream_t s, const tile_shape *p, float *m, int32_t *index, vec value)
{
    auto kernel = p->h == 1      ? encode_chunks
                  : p->h == SIDE ? encode_tiles<true>
                                 : encode_tiles<false>;
    kernel<<<blocks_for(p), SIDE, 0, s>>>(*p, m, index, value);
    return cudaGetLastError();
}

int launch_butterflies_decode(stream_t s, const tile_shape *p, float *y, const tile_messages *sent,
                              uint64_t *damaged)
{
    auto kernel = p->h == 1      ? decode_chunks
                  : p->h == SIDE ? decode_tiles<true>
                                 : decode_tiles<false>;
    kernel<<<blocks_for(p), SIDE, 0, s>>>(*p, y, *sent, damaged);
    return cudaGetLastError();
}
