/* Ops that depend on positions or tokens: rotations, embeddings, and the loss. */
#include <math_constants.h>

#include "tensor/cuda/kernels/element.cuh"

namespace {

/* Rotates pairs: a thread has a position and a pair, in all heads of a sequence. Sines are in
 * double, since angles of far positions have no digits left in float. */
__global__ void rope_kernel(rope_shape p, vec x)
{
    const int half = p.width / 2, e = blockIdx.x * THREADS + threadIdx.x;
    if (e >= p.t * half)
        return;
    const int t = e / half, i = e % half;
    double sine, cosine;
    sincos((double)(p.start + t) * p.frequencies[i], &sine, &cosine);
    const float s = p.inverse ? -(float)sine : (float)sine, c = (float)cosine;
    for (int h = 0; h < p.heads; h++) {
        const size_t a = ((size_t)blockIdx.y * p.t + t) * p.stride + (size_t)h * p.width + i;
        const float xa = get_element(x, a), xb = get_element(x, a + half);
        put_element(x, a, xa * c - xb * s);
        put_element(x, a + half, xb * c + xa * s);
    }
}

__global__ void embedding_forward_kernel(embedding_shape p, vec y, const int32_t *tokens, vec table,
                                         vec positions)
{
    const size_t r = blockIdx.x, position = p.start + r % p.t;
    const size_t token = (size_t)tokens[r];
    for (int i = threadIdx.x; i < p.width; i += blockDim.x)
        put_element(y, r * p.width + i,
                    get_element(table, token * p.width + i) +
                        element_or_zero(positions, position * p.width + i));
}

/* Rows are sorted by token in groups of GROUP, so that the block that adds up a token's rows finds
 * the rows of each group by bisection. A key is token << 32 | row. */
enum { GROUP = 2048, SORTERS = 1024 };

__global__ void sort_group_kernel(uint64_t *keys, const int32_t *tokens, int rows)
{
    __shared__ uint64_t key[GROUP];
    const int begin = blockIdx.x * GROUP;
    for (int i = threadIdx.x; i < GROUP; i += SORTERS) {
        const int r = begin + i;
        key[i] = r < rows ? (uint64_t)(uint32_t)tokens[r] << 32 | (uint32_t)r : ~(uint64_t)0;
    }
    for (int size = 2; size <= GROUP; size *= 2) /* bitonic */
        for (int far = size / 2; far > 0; far /= 2) {
            __syncthreads();
            for (int e = threadIdx.x; e < GROUP / 2; e += SORTERS) {
                const int i = e / far * 2 * far + e % far, j = i + far;
                const uint64_t a = key[i], b = key[j];
                if ((a > b) == ((i & size) == 0)) {
                    key[i] = b;
                    key[j] = a;
                }
            }
        }
    __syncthreads();
    for (int i = threadIdx.x; i < GROUP; i += SORTERS)
        keys[begin + i] = key[i];
}

/* Returns the place of the first key of a group that is not below `key`. */
__device__ int find_key(const uint64_t *group, uint64_t key)
{
    int low = 0, high = GROUP;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (group[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

enum { LISTED = 256, ADDERS = 512 }; /* rows listed at once; threads of a block, at most */

/* The rows of a token in all groups: first[g] is the place of the first row in group g, before[g]
 * the number of rows in the groups before g. */
struct token_rows {
    const uint64_t *keys;
    int *first, *before; /* shared, (groups) and (groups + 1) */
    int groups;

    /* Returns the k-th row, k < before[groups]. */
    __device__ int at(int k) const
    {
        int low = 0, high = groups;
        while (high - low > 1) {
            const int middle = (low + high) / 2;
            if (before[middle] <= k)
                low = middle;
            else
                high = middle;
        }
        return (int)(uint32_t)keys[(size_t)low * GROUP + first[low] + (k - before[low])];
    }
};

/* A block for each sorted key; the block with the first row of a token adds up all rows of the
 * token, the other blocks return. A block has blockDim.y lanes of blockDim.x threads, a thread for
 * V columns: lane j adds rows j, j + blockDim.y, ... of the token, and lane 0 adds the lanes' sums
 * in order. In text a token in twenty is the same token, so its rows are many, and several rows are
 * loaded at a time. */
template <int V>
__global__ void __launch_bounds__(ADDERS)
    embedding_backward_kernel(embedding_shape p, int groups, vec dtable, vec dy,
                              const uint64_t *keys)
{
    extern __shared__ int room[]; /* (2 groups + 1) */
    __shared__ int listed[LISTED];
    __shared__ float part[ADDERS * V];
    const token_rows rows = {keys, room, room + groups, groups};
    const int own = blockIdx.x / GROUP, place = blockIdx.x % GROUP;
    const int thread = threadIdx.y * blockDim.x + threadIdx.x, threads = blockDim.x * blockDim.y;
    const uint64_t key = keys[blockIdx.x];
    const uint32_t token = (uint32_t)(key >> 32);
    if (key == ~(uint64_t)0 || (place > 0 && (uint32_t)(keys[blockIdx.x - 1] >> 32) == token))
        return;
    bool earlier = false;
    for (int g = thread; g < groups; g += threads) {
        const uint64_t *group = keys + (size_t)g * GROUP;
        rows.first[g] = g == own ? place : find_key(group, (uint64_t)token << 32);
        rows.before[g + 1] = find_key(group, (uint64_t)(token + 1) << 32) - rows.first[g];
        earlier |= g < own && rows.before[g + 1] > 0;
    }
    if (__syncthreads_or(earlier))
        return;
    if (thread == 0) {
        rows.before[0] = 0;
        for (int g = 0; g < groups; g++)
            rows.before[g + 1] += rows.before[g];
    }
    __syncthreads();
    const int all = rows.before[groups];
    for (int column = 0; column < p.width; column += blockDim.x * V) {
        const int mine = column + threadIdx.x * V, adds = mine < p.width;
        few<V> sum = {};
        for (int begin = 0; begin < all; begin += LISTED) {
            const int n = min(all - begin, (int)LISTED);
            for (int k = thread; k < n; k += threads)
                listed[k] = rows.at(begin + k);
            __syncthreads();
#pragma unroll 4
            for (int k = threadIdx.y; k < n * adds; k += blockDim.y) {
                const few<V> x = load_few<V>(dy, (size_t)listed[k] * p.width + mine);
                for (int e = 0; e < V; e++)
                    sum.at[e] += x.at[e];
            }
            __syncthreads();
        }
        for (int e = 0; e < V; e++)
            part[e * ADDERS + thread] = sum.at[e];
        __syncthreads();
        if (threadIdx.y == 0 && adds) {
            const size_t to = (size_t)token * p.width + mine;
            few<V> total = load_few<V>(dtable, to);
            for (int e = 0; e < V; e++) {
                float lanes = 0;
                for (int j = 0; j < (int)blockDim.y; j++)
                    lanes += part[e * ADDERS + j * blockDim.x + threadIdx.x];
                total.at[e] += lanes;
            }
            store_few<V>(dtable, to, total);
        }
        __syncthreads();
    }
}

template <int V>
void launch_token_rows(stream_t s, embedding_shape p, int groups, vec dtable, vec dy,
                       const uint64_t *keys)
{
    const int columns = (p.width + V - 1) / V, x = min(columns, 128);
    const dim3 block(x, min(ADDERS / x, 16));
    embedding_backward_kernel<V><<<(unsigned)groups * GROUP, block,
                                   (2 * (size_t)groups + 1) * sizeof(int), s>>>(p, groups, dtable,
                                                                                dy, keys);
}

__global__ void positions_backward_kernel(embedding_shape p, vec dpositions, vec dy)
{
    const size_t e = blockIdx.x * (size_t)THREADS + threadIdx.x, all = (size_t)p.t * p.width;
    if (e >= all)
        return;
    float sum = 0;
    for (int b = 0; b < p.batch; b++)
        sum += get_element(dy, b * all + e);
    put_element(dpositions, e, get_element(dpositions, e) + sum);
}

/* The largest of some logits, and the sum of exponentials relative to that logit. */
struct softmax_tail {
    float max, sum;
};

__device__ __forceinline__ softmax_tail join_tails(softmax_tail a, softmax_tail b)
{
    const float max = fmaxf(a.max, b.max);
    const float sum = (a.sum == 0 ? 0 : a.sum * expf(a.max - max)) +
                      (b.sum == 0 ? 0 : b.sum * expf(b.max - max));
    return softmax_tail{max, sum};
}

__device__ softmax_tail join_block(softmax_tail t, softmax_tail *room)
{
    for (int far = 16; far > 0; far /= 2) {
        const softmax_tail other = {__shfl_xor_sync(0xffffffffu, t.max, far),
                            __shfl_xor_sync(0xffffffffu, t.sum, far)};
        t = threadIdx.x & far ? join_tails(other, t) : join_tails(t, other);
    }
    if (threadIdx.x % 32 == 0)
        room[threadIdx.x / 32] = t;
    __syncthreads();
    t = room[0];
    for (int i = 1; i < (int)blockDim.x / 32; i++)
        t = join_tails(t, room[i]);
    return t;
}

enum { LOSS_THREADS = 512 };

struct loss_row {
    vec logits; /* the row's first logit */
    int target;
    float own;      /* the target's logit */
    softmax_tail t; /* in the end: of the whole row */
    int before;     /* logits that rank before the target's */
    float scale, part;

    template <int V> __device__ void add(int i)
    {
        const few<V> x = load_few<V>(logits, i);
        softmax_tail here = {x.at[0], 0};
        for (int e = 1; e < V; e++)
            here.max = fmaxf(here.max, x.at[e]);
        for (int e = 0; e < V; e++) {
            here.sum += x.at[e] == -CUDART_INF_F ? 0 : expf(x.at[e] - here.max);
            before += x.at[e] > own || (x.at[e] == own && i + e < target);
        }
        t = join_tails(t, here);
    }

    template <int V> __device__ void turn(int i)
    {
        few<V> x = load_few<V>(logits, i);
        for (int e = 0; e < V; e++)
            x.at[e] =
                target < 0 ? 0 : part * expf(x.at[e] - t.max) - (i + e == target ? scale : 0);
        store_few<V>(logits, i, x);
    }
};

/* Returns a target's place, with `before` logits before its own. */
__device__ __forceinline__ uint8_t place_of_target(int target, float own, int before)
{
    return (uint8_t)(target < 0 ? 0 : isnan(own) || before > 254 ? 255 : before + 1);
}

/* A block for each row: the row is read from memory, and from the cache when it is written.
 * Elements are taken V at a time: rows begin on 16 bytes for V = 8, anywhere for 4; the first and
 * last few elements are taken one by one. */
template <int V>
__global__ void __launch_bounds__(LOSS_THREADS)
    cross_entropy_kernel(int vocab, size_t stride, vec logits, const int32_t *targets, float scale,
                         float *losses, uint8_t *places)
{
    __shared__ softmax_tail room[LOSS_THREADS / 32];
    __shared__ int counts[LOSS_THREADS / 32];
    const size_t r = blockIdx.x;
    const int size = logits.half ? 2 : 4, thread = threadIdx.x;
    loss_row row = {{(char *)logits.data + r * stride * size, logits.half}, targets[r]};
    const int off = V == 8 ? 0 : (int)((uintptr_t)row.logits.data / size % 4);
    const int head = min((4 - off) % 4, vocab), body = (vocab - head) / V * V;
    const int edge = vocab - body, at_edge = thread < head ? thread : body + thread;
    row.own = row.target < 0 ? 0 : get_element(row.logits, row.target);
    row.t = softmax_tail{-CUDART_INF_F, 0};
    if (thread < edge)
        row.add<1>(at_edge);
    for (int i = thread * V; i < body; i += LOSS_THREADS * V)
        row.add<V>(head + i);
    row.t = join_block(row.t, room);
    row.before = block_sum(row.before, counts);
    if (thread == 0) {
        losses[r] = row.target < 0 ? 0 : logf(row.t.sum) - (row.own - row.t.max);
        if (places)
            places[r] = place_of_target(row.target, row.own, row.before);
    }
    if (scale == 0)
        return;
    row.scale = scale;
    row.part = scale / row.t.sum;
    if (thread < edge)
        row.turn<1>(at_edge);
    for (int i = thread * V; i < body; i += LOSS_THREADS * V)
        row.turn<V>(head + i);
}

/* Rows of bf16 on 16 bytes that fit into shared memory, two rows in a multiprocessor, are read once
 * and written once. A thread reads only data that the thread stored, so threads need no barrier.
 * Whole eights are written: up to 7 elements after a row, too. */
enum { HELD_BYTES = 112 << 10 };

__device__ __forceinline__ few<8> held_eight(const uint4 *held, int i)
{
    return load_few<8>(vec{(void *)(held + i), 1}, 0);
}

/* Returns the last eight of a row, with -inf after the row's end. */
__device__ __forceinline__ uint4 close_row(uint4 x, int columns)
{
    unsigned pairs[4] = {x.x, x.y, x.z, x.w};
    for (int e = 0; e < 8; e++)
        if (e >= columns)
            pairs[e / 2] = e % 2 ? (pairs[e / 2] & 0xffffu) | 0xff800000u
                                 : (pairs[e / 2] & 0xffff0000u) | 0xff80u;
    return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

__device__ __forceinline__ unsigned larger_pair(unsigned a, unsigned b)
{
    const __nv_bfloat162 both =
        __hmax2(*(const __nv_bfloat162 *)&a, *(const __nv_bfloat162 *)&b);
    return *(const unsigned *)&both;
}

__device__ float block_max(float x, float *room)
{
    for (int far = 16; far > 0; far /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, far));
    if (threadIdx.x % 32 == 0)
        room[threadIdx.x / 32] = x;
    __syncthreads();
    x = room[0];
    for (int i = 1; i < LOSS_THREADS / 32; i++)
        x = fmaxf(x, room[i]);
    return x;
}

__global__ void __launch_bounds__(LOSS_THREADS, 2)
    held_cross_entropy_kernel(int vocab, size_t stride, bf16 *logits, const int32_t *targets,
                              float scale, float *losses, uint8_t *places)
{
    extern __shared__ uint4 held[];
    __shared__ float room[2][LOSS_THREADS / 32];
    __shared__ int counts[LOSS_THREADS / 32];
    const size_t r = blockIdx.x;
    uint4 *row = (uint4 *)(logits + r * stride);
    const int eights = (vocab + 7) / 8, target = targets[r];
    const float own = target < 0 ? 0 : __bfloat162float(((const bf16 *)row)[target]);
    float max = -CUDART_INF_F, sum = 0;
#pragma unroll 4
    for (int i = threadIdx.x; i < eights; i += LOSS_THREADS)
        held[i] = row[i];
    if (vocab % 8 && threadIdx.x == (eights - 1) % LOSS_THREADS)
        held[eights - 1] = close_row(held[eights - 1], vocab % 8);
    unsigned top = 0xff80ff80u; /* -inf twice */
#pragma unroll 4
    for (int i = threadIdx.x; i < eights; i += LOSS_THREADS) {
        const uint4 x = held[i];
        top = larger_pair(top, larger_pair(larger_pair(x.x, x.y), larger_pair(x.z, x.w)));
    }
    max = fmaxf(__uint_as_float(top << 16), __uint_as_float(top & 0xffff0000u));
    max = block_max(max, room[0]);
    const float base = max == -CUDART_INF_F ? 0 : -max * LOG2E;
#pragma unroll 4
    for (int i = threadIdx.x; i < eights; i += LOSS_THREADS) {
        const few<8> x = held_eight(held, i);
        for (int e = 0; e < 8; e++)
            sum += power_of_two(fmaf(x.at[e], LOG2E, base));
    }
    sum = block_sum(sum, room[1]);
    if (places) {
        int before = 0;
        for (int i = threadIdx.x; i < eights; i += LOSS_THREADS) {
            const few<8> x = held_eight(held, i);
            for (int e = 0; e < 8; e++)
                before += x.at[e] > own || (x.at[e] == own && i * 8 + e < target);
        }
        before = block_sum(before, counts);
        if (threadIdx.x == 0)
            places[r] = place_of_target(target, own, before);
    }
    if (threadIdx.x == 0)
        losses[r] = target < 0 ? 0 : logf(sum) - (own - max);
    if (scale == 0)
        return;
    const float part = target < 0 ? 0 : scale / sum;
#pragma unroll 4
    for (int i = threadIdx.x; i < eights; i += LOSS_THREADS) {
        few<8> x = held_eight(held, i);
        for (int e = 0; e < 8; e++)
            x.at[e] = target < 0 ? 0 : part * power_of_two(fmaf(x.at[e], LOG2E, base));
        if (i == target / 8)
            for (int e = 0; e < 8; e++)
                x.at[e] -= i * 8 + e == target ? scale : 0;
        store_few<8>(vec{row, 1}, (size_t)i * 8, x);
    }
}

} // namespace

int launch_rope(stream_t s, const rope_shape *p, vec x)
{
    const dim3 grid(blocks_of((size_t)p->t * (p->width / 2), THREADS), p->batch);
    rope_kernel<<<grid, THREADS, 0, s>>>(*p, x);
    return cudaGetLastError();
}

int launch_embedding_forward(stream_t s, embedding_shape p, vec y, const int32_t *tokens, vec table,
                             vec positions)
{
    embedding_forward_kernel<<<(unsigned)p.batch * p.t, p.width > 128 ? THREADS : 64, 0, s>>>(
        p, y, tokens, table, positions);
    return cudaGetLastError();
}

size_t embedding_keys(int rows)
{
    return (size_t)blocks_of(rows, GROUP) * GROUP;
}

int launch_embedding_backward(stream_t s, embedding_shape p, vec dtable, vec dpositions,
                              const int32_t *tokens, vec dy, uint64_t *keys)
{
    const int rows = p.batch * p.t, groups = (int)blocks_of(rows, GROUP);
    if (dtable.data) {
        sort_group_kernel<<<groups, SORTERS, 0, s>>>(keys, tokens, rows);
        if (p.width % 8 == 0 && lanes_of(dtable, dy) == 8)
            launch_token_rows<8>(s, p, groups, dtable, dy, keys);
        else
            launch_token_rows<1>(s, p, groups, dtable, dy, keys);
    }
    if (dpositions.data)
        positions_backward_kernel<<<blocks_of((size_t)p.t * p.width, THREADS), THREADS, 0, s>>>(
            p, dpositions, dy);
    return cudaGetLastError();
}

int launch_cross_entropy(stream_t s, int rows, int vocab, size_t stride, vec logits,
                         const int32_t *targets, float scale, float *losses, uint8_t *places)
{
    if (rows == 0)
        return 0;
    const size_t eights = ((size_t)vocab + 7) / 8;
    const bool by_eight =
        (uintptr_t)logits.data % 16 == 0 && stride * (logits.half ? 2 : 4) % 16 == 0;
    if (logits.half && by_eight && eights * 8 <= stride && eights * 16 <= HELD_BYTES) {
        const int st = ask_room(held_cross_entropy_kernel, HELD_BYTES);
        if (st)
            return st;
        held_cross_entropy_kernel<<<rows, LOSS_THREADS, eights * 16, s>>>(
            vocab, stride, (bf16 *)logits.data, targets, scale, losses, places);
    } else if (by_eight)
        cross_entropy_kernel<8><<<rows, LOSS_THREADS, 0, s>>>(vocab, stride, logits, targets, scale,
                                                              losses, places);
    else
        cross_entropy_kernel<4><<<rows, LOSS_THREADS, 0, s>>>(vocab, stride, logits, targets, scale,
                                                              losses, places);
    return cudaGetLastError();
}
