/* Tiles of the cosine transform: a block for a tile, along w and then along h as products with the
 * matrices of the transform, in shared memory if a tile fits. tiles.cu has tiles with rows of 64
 * elements. */
#include "tensor/cuda/kernels/element.cuh"

namespace {

enum { FITS = 4096 }; /* elements of the largest tile in shared memory */
enum { SHARED = 3 * sizeof(float) * FITS };

int tile_size(const tile_shape *p)
{
    return p->h * p->w;
}

/* A tile of a block: two buffers of the tile's size and, for decoding, counts of senders. */
struct block_tile {
    float *a, *b;
    int *count;
    size_t begin, kept; /* offset in the vector; offset in index and value */
};

__device__ block_tile open_tile(const tile_shape &p, int i, float *room, float *shared)
{
    const int size = p.h * p.w;
    block_tile t;
    t.a = size <= FITS ? shared : room + (size_t)blockIdx.x * 3 * size;
    t.b = t.a + size;
    t.count = (int *)(t.b + size);
    t.begin = p.at + (size_t)(i / p.nx) * p.h * p.stride + (size_t)(i % p.nx) * p.w;
    t.kept = p.kept + (size_t)i * p.keep;
    return t;
}

/* Multiplies each row of `from` by the matrix along w into `to` (n, w): all frequencies, or
 * `back`. */
__device__ void transform_along_w(const tile_shape &p, float *to, const float *from, size_t stride,
                                  bool back)
{
    for (int e = threadIdx.x; e < p.h * p.w; e += blockDim.x) {
        const int y = e / p.w, j = e % p.w;
        const float *row = from + y * stride;
        float sum = 0;
        for (int x = 0; x < p.w; x++)
            sum = fmaf(row[x], back ? p.basis_w[x * p.w + j] : p.basis_w[j * p.w + x], sum);
        to[e] = sum;
    }
}

__device__ void transform_along_h(const tile_shape &p, float *to, const float *from, bool back)
{
    for (int e = threadIdx.x; e < p.h * p.w; e += blockDim.x) {
        const int i = e / p.w, j = e % p.w;
        float sum = 0;
        for (int y = 0; y < p.h; y++)
            sum = fmaf(from[y * p.w + j], back ? p.basis_h[y * p.h + i] : p.basis_h[i * p.h + y],
                       sum);
        to[e] = sum;
    }
}

/* Inverts the coefficients in t.a; returns the buffer with the result. */
__device__ float *inverse_transform(const tile_shape &p, const block_tile &t)
{
    transform_along_w(p, t.b, t.a, p.w, true);
    __syncthreads();
    if (p.h == 1) /* the matrix along h is 1 */
        return t.b;
    transform_along_h(p, t.a, t.b, true);
    __syncthreads();
    return t.a;
}

/* Returns the magnitude's bits, which are in the order of the numbers. */
__device__ __forceinline__ unsigned magnitude_bits(float x)
{
    return __float_as_uint(x) & 0x7fffffffu;
}

__device__ int count_reaching(const float *c, int size, unsigned least, int *room)
{
    int mine = 0;
    for (int e = threadIdx.x; e < size; e += blockDim.x)
        mine += magnitude_bits(c[e]) >= least;
    return block_sum(mine, room);
}

/* Returns a magnitude that exactly `keep` elements reach or, with equal elements at the border, the
 * largest magnitude that at least `keep` reach; found bit by bit. */
__device__ unsigned block_threshold(const float *c, int size, int keep, int *room)
{
    unsigned found = 0;
    for (int bit = 30, n = 0; bit >= 0 && n != keep; bit--) {
        const int reach = count_reaching(c, size, found | 1u << bit, room);
        if (reach < keep)
            continue;
        found |= 1u << bit;
        n = reach;
    }
    return found;
}

/* Returns the sum of `x` over the threads before this thread; `room`: a value for each thread. */
__device__ int before_me(int x, int *room)
{
    __syncthreads();
    room[threadIdx.x] = x;
    __syncthreads();
    for (int far = 1; far < (int)blockDim.x; far *= 2) {
        const int more = (int)threadIdx.x >= far ? room[threadIdx.x - far] : 0;
        __syncthreads();
        room[threadIdx.x] += more;
        __syncthreads();
    }
    return room[threadIdx.x] - x;
}

/* Writes the `keep` largest of t.a in the order of their places; t.a keeps only these, as rounded,
 * and zeros. A thread has a stretch of places. */
__device__ void keep_block_largest(const tile_shape &p, const block_tile &t, int32_t *index,
                                   vec value, int *room)
{
    const int size = p.h * p.w, each = (size + blockDim.x - 1) / blockDim.x;
    const int begin = min((int)threadIdx.x * each, size), end = min(begin + each, size);
    const unsigned least = block_threshold(t.a, size, p.keep, room);
    int larger = 0, equal = 0;
    for (int e = begin; e < end; e++) {
        larger += magnitude_bits(t.a[e]) > least;
        equal += magnitude_bits(t.a[e]) == least;
    }
    const int spare = p.keep - count_reaching(t.a, size, least + 1, room); /* for elements equal to
                                                                              the border */
    int equal_before = before_me(equal, room);
    int at = before_me(larger, room) + min(equal_before, spare);
    for (int e = begin; e < end; e++) {
        const unsigned own = magnitude_bits(t.a[e]);
        const bool kept = own > least || (own == least && equal_before < spare);
        equal_before += own == least;
        if (!kept) {
            t.a[e] = 0;
            continue;
        }
        index[t.kept + at] = e;
        put_element(value, t.kept + at, t.a[e]);
        t.a[e] = get_element(value, t.kept + at);
        at++;
    }
    __syncthreads();
}

__global__ void encode_kernel(tile_shape p, float *m, int32_t *index, vec value, float *rooms)
{
    extern __shared__ float shared[];
    __shared__ int room[THREADS];
    for (int i = p.begin + blockIdx.x; i < p.end; i += gridDim.x) {
        const block_tile t = open_tile(p, i, rooms, shared);
        transform_along_w(p, p.h == 1 ? t.a : t.b, m + t.begin, p.stride, false);
        __syncthreads();
        if (p.h > 1)
            transform_along_h(p, t.a, t.b, false);
        __syncthreads();
        keep_block_largest(p, t, index, value, room);
        const float *back = inverse_transform(p, t);
        for (int e = threadIdx.x; e < p.h * p.w; e += blockDim.x)
            m[t.begin + e / p.w * p.stride + e % p.w] -= back[e];
        __syncthreads();
    }
}

/* Stores the means of the senders' coefficients in t.a. */
__device__ void average_messages(const tile_shape &p, const block_tile &t,
                                 const tile_messages &sent, uint64_t *damaged)
{
    const int size = p.h * p.w;
    for (int e = threadIdx.x; e < size; e += blockDim.x) {
        t.a[e] = 0;
        t.count[e] = 0;
    }
    for (int r = 0; r < sent.senders; r++) {
        __syncthreads(); /* one sender after the other */
        for (int k = threadIdx.x; k < p.keep; k += blockDim.x) {
            const uint32_t e = (uint32_t)sent.index[r * sent.index_step + t.kept + k];
            if (e >= (uint32_t)size) {
                *damaged = (uint64_t)e << 32 | (uint64_t)p.h << 16 | (uint64_t)p.w;
                continue;
            }
            t.a[e] += get_element(sent.value, r * sent.value_step + t.kept + k);
            t.count[e]++;
        }
    }
    __syncthreads();
    for (int e = threadIdx.x; e < size; e += blockDim.x)
        if (t.count[e] > 1)
            t.a[e] /= (float)t.count[e];
    __syncthreads();
}

__global__ void decode_kernel(tile_shape p, float *y, tile_messages sent, float *rooms,
                              uint64_t *damaged)
{
    extern __shared__ float shared[];
    for (int i = p.begin + blockIdx.x; i < p.end; i += gridDim.x) {
        const block_tile t = open_tile(p, i, rooms, shared);
        average_messages(p, t, sent, damaged);
        const float *back = inverse_transform(p, t);
        for (int e = threadIdx.x; e < p.h * p.w; e += blockDim.x)
            y[t.begin + e / p.w * p.stride + e % p.w] = back[e];
        __syncthreads();
    }
}

/* Returns the threads of a block: whole warps, fewer for small tiles. */
int threads_of(const tile_shape *p)
{
    const int size = tile_size(p);
    return size <= 64 ? 64 : size <= 128 ? 128 : THREADS;
}

size_t shared_bytes(const tile_shape *p)
{
    return tile_size(p) <= FITS ? 3 * sizeof(float) * tile_size(p) : 0;
}

} // namespace

int tile_blocks(const tile_shape *p)
{
    const int n = p->end - p->begin, most = tile_size(p) <= FITS ? 1 << 14 : 256;
    return n < most ? n : most;
}

size_t tile_room(const tile_shape *p)
{
    return tile_size(p) <= FITS ? 0 : (size_t)3 * tile_size(p);
}

int launch_tiles_encode(stream_t s, const tile_shape *p, float *m, int32_t *index, vec value,
                        float *room)
{
    if (p->end <= p->begin)
        return 0;
    if (tiles_by_butterflies(p))
        return launch_butterflies_encode(s, p, m, index, value);
    const int st = ask_room(encode_kernel, SHARED);
    encode_kernel<<<tile_blocks(p), threads_of(p), shared_bytes(p), s>>>(*p, m, index, value, room);
    return st ? st : cudaGetLastError();
}

int launch_tiles_decode(stream_t s, const tile_shape *p, float *y, const tile_messages *sent,
                        float *room, uint64_t *damaged)
{
    if (p->end <= p->begin)
        return 0;
    if (tiles_by_butterflies(p))
        return launch_butterflies_decode(s, p, y, sent, damaged);
    const int st = ask_room(decode_kernel, SHARED);
    decode_kernel<<<tile_blocks(p), threads_of(p), shared_bytes(p), s>>>(*p, y, *sent, room,
                                                                         damaged);
    return st ? st : cudaGetLastError();
}
