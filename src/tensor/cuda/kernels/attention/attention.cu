/* Attention in fp32, of rows of any type and width: for shapes that flash.cu does not support. A
 * block has SIDE queries (or keys) and goes through keys (or queries) SIDE at a time, in shared
 * memory; a thread has a pair of a query and a key, and every SIDE-th element of a row of the
 * result. */
#include <math_constants.h>

#include "tensor/cuda/kernels/attention/attend.cuh"
#include "tensor/cuda/kernels/element.cuh"

namespace {

enum { SIDE = 16, PIECES = ATTENTION_WIDTH / SIDE };

/* Loads rows [at, at + SIDE) of `v` as fp32; the first row of `v` is at `base`; 0 beyond `rows`. */
__device__ void load_side_rows(float *to, vec v, size_t base, int stride, int at, int rows,
                               int width)
{
    for (int e = threadIdx.x; e < SIDE * width; e += THREADS) {
        const int i = e / width, d = e % width;
        to[i * (width + 1) + d] =
            at + i < rows ? get_element(v, base + (size_t)(at + i) * stride + d) : 0;
    }
}

__device__ float dot_rows(const float *a, const float *b, int width)
{
    float sum = 0;
    for (int d = 0; d < width; d++)
        sum = fmaf(a[d], b[d], sum);
    return sum;
}

/* Sum over the SIDE threads of a row. */
__device__ float side_sum(float x)
{
    for (int far = SIDE / 2; far > 0; far /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, far);
    return x;
}

__device__ float side_max(float x)
{
    for (int far = SIDE / 2; far > 0; far /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, far));
    return x;
}

/* sum[u] += sum over j of weight[j] row_j[own + SIDE u]; the SIDE threads of a row have a weight
 * each. */
__device__ void add_weighted_rows(float *sum, float weight, const float *rows, int width)
{
    const int lane = threadIdx.x % 32, own = threadIdx.x % SIDE;
    for (int j = 0; j < SIDE; j++) {
        const float w = __shfl_sync(0xffffffffu, weight, lane / SIDE * SIDE + j);
        if (w == 0)
            continue; /* also skips absent keys, whose memory may hold anything */
        for (int u = 0; u < PIECES; u++)
            if (own + u * SIDE < width)
                sum[u] = fmaf(w, rows[j * (width + 1) + own + u * SIDE], sum[u]);
    }
}

__device__ void put_result_row(vec to, size_t base, const float *sum, float scale, int width)
{
    for (int u = 0; u < PIECES; u++)
        if ((int)threadIdx.x % SIDE + u * SIDE < width)
            put_element(to, base + threadIdx.x % SIDE + u * SIDE, sum[u] * scale);
}

__global__ void __launch_bounds__(THREADS)
    attention_forward_kernel(attention_shape p, attention_rows r)
{
    extern __shared__ float room[];
    const int row = p.width + 1, q0 = blockIdx.x * SIDE, head = blockIdx.y, b = blockIdx.z;
    float *q = room, *k = q + SIDE * row, *v = k + SIDE * row;
    const int i = q0 + threadIdx.x / SIDE, mine = threadIdx.x % SIDE;
    const heads_at at = heads_of(p, b, head);
    float max = -CUDART_INF_F, sum = 0, o[PIECES] = {};
    load_side_rows(q, r.q, at.q, p.q_stride, q0, p.t_q, p.width);
    const index_range keys = keys_of(p, q0, SIDE);
    for (int j0 = keys.begin / SIDE * SIDE; j0 < keys.end; j0 += SIDE) {
        __syncthreads();
        load_side_rows(k, r.k, at.k, p.k_stride, j0, p.t_k, p.width);
        load_side_rows(v, r.v, at.v, p.v_stride, j0, p.t_k, p.width);
        __syncthreads();
        const bool seen = i < p.t_q && query_sees(p, i, j0 + mine);
        const float score =
            seen ? p.scale * dot_rows(q + threadIdx.x / SIDE * row, k + mine * row, p.width)
                 : -CUDART_INF_F;
        const float top = fmaxf(max, side_max(score));
        const float shrink = max == -CUDART_INF_F ? 0 : expf(max - top);
        const float weight = seen ? expf(score - top) : 0;
        max = top;
        sum = sum * shrink + side_sum(weight);
        for (int u = 0; u < PIECES; u++)
            o[u] *= shrink;
        add_weighted_rows(o, weight, v, p.width);
    }
    if (i >= p.t_q)
        return;
    put_result_row(r.o, at.o + (size_t)i * p.o_stride, o, 1 / sum, p.width);
    if (mine == 0)
        r.lse[at.lse + i] = max + logf(sum);
}

/* Computes delta, a warp a row. */
__global__ void attention_delta_kernel(attention_shape p, float *delta, vec dy, vec o)
{
    const size_t e = blockIdx.x * (size_t)(THREADS / 32) + threadIdx.x / 32;
    if (e >= (size_t)p.batch * p.heads * p.t_q)
        return;
    const int i = e % p.t_q, head = e / p.t_q % p.heads, b = e / p.t_q / p.heads;
    const size_t at = heads_of(p, b, head).o + (size_t)i * p.o_stride;
    float sum = 0;
    for (int d = threadIdx.x % 32; d < p.width; d += 32)
        sum = fmaf(get_element(dy, at + d), get_element(o, at + d), sum);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        delta[e] = sum;
}

/* The weight of a pair of a query and a key, and ds = weight (dp - delta). */
struct pair_grads {
    float weight, ds;
};

__device__ pair_grads attention_pair_grads(const attention_shape &p, bool seen, const float *q,
                                           const float *k, const float *dy, const float *v,
                                           float lse, float delta)
{
    if (!seen)
        return pair_grads{0, 0};
    const float weight = expf(p.scale * dot_rows(q, k, p.width) - lse);
    return pair_grads{weight, weight * (dot_rows(dy, v, p.width) - delta)};
}

__global__ void __launch_bounds__(THREADS)
    attention_dq_kernel(attention_shape p, attention_rows r, attention_grads g)
{
    extern __shared__ float room[];
    const int row = p.width + 1, q0 = blockIdx.x * SIDE, head = blockIdx.y, b = blockIdx.z;
    float *q = room, *dy = q + SIDE * row, *k = dy + SIDE * row, *v = k + SIDE * row;
    const int slot = threadIdx.x / SIDE, i = q0 + slot, mine = threadIdx.x % SIDE;
    const heads_at at = heads_of(p, b, head);
    const float lse = i < p.t_q ? r.lse[at.lse + i] : 0;
    const float delta = i < p.t_q ? g.delta[at.lse + i] : 0;
    float dq[PIECES] = {};
    load_side_rows(q, r.q, at.q, p.q_stride, q0, p.t_q, p.width);
    load_side_rows(dy, g.dy, at.o, p.o_stride, q0, p.t_q, p.width);
    const index_range keys = keys_of(p, q0, SIDE);
    for (int j0 = keys.begin / SIDE * SIDE; j0 < keys.end; j0 += SIDE) {
        __syncthreads();
        load_side_rows(k, r.k, at.k, p.k_stride, j0, p.t_k, p.width);
        load_side_rows(v, r.v, at.v, p.v_stride, j0, p.t_k, p.width);
        __syncthreads();
        const bool seen = i < p.t_q && query_sees(p, i, j0 + mine);
        add_weighted_rows(dq,
                          attention_pair_grads(p, seen, q + slot * row, k + mine * row,
                                               dy + slot * row, v + mine * row, lse, delta)
                              .ds,
                          k, p.width);
    }
    if (i < p.t_q)
        put_result_row(g.dq, at.q + (size_t)i * p.q_stride, dq, p.scale, p.width);
}

__global__ void __launch_bounds__(THREADS)
    attention_dkv_kernel(attention_shape p, attention_rows r, attention_grads g)
{
    extern __shared__ float room[];
    const int row = p.width + 1, j0 = blockIdx.x * SIDE, kv_head = blockIdx.y, b = blockIdx.z;
    float *k = room, *v = k + SIDE * row, *q = v + SIDE * row, *dy = q + SIDE * row;
    const int slot = threadIdx.x / SIDE, j = j0 + slot, mine = threadIdx.x % SIDE;
    const int group = p.heads / p.kv_heads;
    const heads_at first = heads_of(p, b, kv_head * group);
    float dk[PIECES] = {}, dv[PIECES] = {};
    load_side_rows(k, r.k, first.k, p.k_stride, j0, p.t_k, p.width);
    load_side_rows(v, r.v, first.v, p.v_stride, j0, p.t_k, p.width);
    const index_range queries = queries_of(p, j0, SIDE);
    for (int h = 0; h < group; h++) {
        const heads_at at = heads_of(p, b, kv_head * group + h);
        for (int q0 = queries.begin / SIDE * SIDE; q0 < queries.end; q0 += SIDE) {
            const int i = q0 + mine;
            __syncthreads();
            load_side_rows(q, r.q, at.q, p.q_stride, q0, p.t_q, p.width);
            load_side_rows(dy, g.dy, at.o, p.o_stride, q0, p.t_q, p.width);
            __syncthreads();
            const bool seen = i < p.t_q && j < p.t_k && query_sees(p, i, j);
            const pair_grads d = attention_pair_grads(
                p, seen, q + mine * row, k + slot * row, dy + mine * row, v + slot * row,
                seen ? r.lse[at.lse + i] : 0, seen ? g.delta[at.lse + i] : 0);
            add_weighted_rows(dk, d.ds, q, p.width);
            add_weighted_rows(dv, d.weight, dy, p.width);
        }
    }
    if (j >= p.t_k)
        return;
    put_result_row(g.dk, first.k + (size_t)j * p.k_stride, dk, p.scale, p.width);
    put_result_row(g.dv, first.v + (size_t)j * p.v_stride, dv, 1, p.width);
}

size_t attention_room(int width, int tiles)
{
    return (size_t)tiles * SIDE * (width + 1) * sizeof(float);
}

} // namespace

int launch_attention_forward(stream_t s, const attention_shape *p, const attention_rows *r)
{
    const dim3 grid(blocks_of(p->t_q, SIDE), p->heads, p->batch);
    const size_t bytes = attention_room(p->width, 3);
    const int st = ask_room(attention_forward_kernel, attention_room(ATTENTION_WIDTH, 3));
    attention_forward_kernel<<<grid, THREADS, bytes, s>>>(*p, *r);
    return st ? st : cudaGetLastError();
}

int launch_attention_backward(stream_t s, const attention_shape *p, const attention_rows *r,
                              const attention_grads *g)
{
    const dim3 queries(blocks_of(p->t_q, SIDE), p->heads, p->batch);
    const dim3 keys(blocks_of(p->t_k, SIDE), p->kv_heads, p->batch);
    const size_t bytes = attention_room(p->width, 4), most = attention_room(ATTENTION_WIDTH, 4);
    const size_t rows = (size_t)p->batch * p->heads * p->t_q;
    int st = ask_room(attention_dq_kernel, most);
    st = st ? st : ask_room(attention_dkv_kernel, most);
    if (st)
        return st;
    attention_delta_kernel<<<blocks_of(rows, THREADS / 32), THREADS, 0, s>>>(*p, g->delta, g->dy,
                                                                             r->o);
    attention_dq_kernel<<<queries, THREADS, bytes, s>>>(*p, *r, *g);
    attention_dkv_kernel<<<keys, THREADS, bytes, s>>>(*p, *r, *g);
    return cudaGetLastError();
}
