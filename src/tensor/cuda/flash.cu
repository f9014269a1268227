/* Attention of bf16 rows on the matrix units, the FlashAttention-2 way (Dao, 2023): scores exist
 * only as tiles in registers. Weights are rounded to bf16 before they are multiplied with rows. The
 * backward pass is two kernels, for dk and dv and for dq, so that every sum has one order. */
#include <math_constants.h>

#include "tensor/cuda/attend.cuh"
#include "tensor/cuda/mma.cuh"

namespace {

enum { WARPS = 4, KEYS = 64 };

constexpr float LOG2E = 1.4426950408889634f;

__device__ __forceinline__ const bf16 *rows_at(vec v, size_t at)
{
    return (const bf16 *)v.data + at;
}

/* Whether queries [i, i + n) all see keys [j, j + m): no need to look at each. */
__device__ __forceinline__ bool all_see(const attention_shape &p, int i, int n, int j, int m)
{
    if (i + n > p.t_q || j + m > p.t_k)
        return false;
    return p.whole || (sees(p, i, j + m - 1) && sees(p, i + n - 1, j));
}

/* Rows of a strip of 16 that a lane has: this and 8 more; and its first column of 8. */
__device__ __forceinline__ int lane_row()
{
    return threadIdx.x % 32 / 4;
}

__device__ __forceinline__ int lane_column()
{
    return threadIdx.x % 4 * 2;
}

/* Rows of results of a strip, times `scale`, from the first of a warp's, `row`, on. */
template <int W>
__device__ void put_strip(vec to, size_t at, size_t stride, int row, int rows,
                          const float acc[W / 8][4], float scale_low, float scale_high)
{
    for (int half = 0; half < 2; half++) {
        const int i = row + lane_row() + 8 * half;
        const float scale = half ? scale_high : scale_low;
        if (i >= rows)
            continue;
        bf16 *out = (bf16 *)to.data + at + i * stride + lane_column();
#pragma unroll
        for (int n = 0; n < W / 8; n++)
            *(unsigned *)(out + 8 * n) =
                pair_of(acc[n][2 * half] * scale, acc[n][2 * half + 1] * scale);
    }
}

/* The running softmax of a strip's two rows of each lane. */
struct softmax {
    float max[2], sum[2];
};

/* Scores become weights, and what there was of sums shrinks by shrink[]. */
template <int N>
__device__ __forceinline__ void soften(softmax &s, float scores[N][4], float scale, float shrink[2])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float top = s.max[half];
#pragma unroll
        for (int n = 0; n < N; n++)
            top = fmaxf(top, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        const float base = top == -CUDART_INF_F ? 0 : top * scale; /* nobody seen yet */
        shrink[half] = power_of_two(s.max[half] * scale - base);
        float sum = 0;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 2 * half; e < 2 * half + 2; e++) {
                scores[n][e] = power_of_two(scores[n][e] * scale - base);
                sum += scores[n][e];
            }
        s.max[half] = top;
        s.sum[half] = s.sum[half] * shrink[half] + sum;
    }
}

/* M strips of 16 queries a warp; heavy blocks, of late queries, come first. */
template <int W, int M>
__global__ void __launch_bounds__(WARPS * 32)
    flash_forward_kernel(attention_shape p, attention_rows r)
{
    enum { QUERIES = WARPS * 16 * M, STRIDE = tile_of<W>::stride, TILE = KEYS * STRIDE };
    extern __shared__ __align__(16) bf16 room[];
    bf16 *q = room, *kv = q + QUERIES * STRIDE; /* (2 stages; k, v) */
    const int q0 = (gridDim.x - 1 - blockIdx.x) * QUERIES, own = threadIdx.x / 32 * 16 * M;
    const heads_at at = heads_of(p, blockIdx.z, blockIdx.y);
    const bf16 *k_rows = rows_at(r.k, at.k), *v_rows = rows_at(r.v, at.v);
    const range keys = keys_of(p, q0, QUERIES);
    const float scale = p.scale * LOG2E;
    float o[M][W / 8][4];
    softmax soft[M];
    clear<M, W / 8>(o);
    for (int m = 0; m < M; m++)
        soft[m] = softmax{{-CUDART_INF_F, -CUDART_INF_F}, {0, 0}};
    int j0 = keys.begin / KEYS * KEYS, stage = 0;
    start_tile<W, QUERIES>(q, rows_at(r.q, at.q), p.q_stride, q0, p.t_q);
    start_tile<W, KEYS>(kv, k_rows, p.k_stride, j0, p.t_k);
    start_tile<W, KEYS>(kv + TILE, v_rows, p.v_stride, j0, p.t_k);
    end_starts();
    for (; j0 < keys.end; j0 += KEYS, stage ^= 1) {
        bf16 *k = kv + stage * 2 * TILE, *next = kv + (stage ^ 1) * 2 * TILE;
        if (j0 + KEYS < keys.end) {
            start_tile<W, KEYS>(next, k_rows, p.k_stride, j0 + KEYS, p.t_k);
            start_tile<W, KEYS>(next + TILE, v_rows, p.v_stride, j0 + KEYS, p.t_k);
            end_starts();
            wait_tiles<1>();
        } else {
            wait_tiles<0>();
        }
        __syncthreads();
        float s[M][KEYS / 8][4];
        clear<M, KEYS / 8>(s);
        rows_by_rows<W, M, KEYS>(s, q + own * STRIDE, k);
#pragma unroll
        for (int m = 0; m < M; m++) {
            const int i0 = q0 + own + 16 * m;
            if (!all_see(p, i0, 16, j0, KEYS))
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        if (!sees(p, i0 + lane_row() + e / 2 * 8,
                                  j0 + 8 * n + lane_column() + e % 2))
                            s[m][n][e] = -CUDART_INF_F;
            float shrink[2];
            soften<KEYS / 8>(soft[m], s[m], scale, shrink);
#pragma unroll
            for (int n = 0; n < W / 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    o[m][n][e] *= shrink[e / 2];
        }
        weights_by_rows<W, M, KEYS>(o, s, k + TILE);
        __syncthreads();
    }
    for (int m = 0; m < M; m++) {
        const int i0 = q0 + own + 16 * m;
        float inverse[2];
        for (int half = 0; half < 2; half++) {
            float sum = soft[m].sum[half];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            const int i = i0 + lane_row() + 8 * half;
            if (lane_column() == 0 && i < p.t_q)
                r.lse[at.lse + i] = soft[m].max[half] * p.scale + logf(sum);
            inverse[half] = 1 / sum;
        }
        put_strip<W>(r.o, at.o, p.o_stride, i0, p.t_q, o[m], inverse[0], inverse[1]);
    }
}

/* Scores of pairs that do not see each other become -inf, and their dp 0: out of the way of those
 * that do, as most tiles have none. Rows of the tile are queries (`turned`: keys). */
template <bool TURNED, int N>
__device__ __forceinline__ void blind(const attention_shape &p, float s[N][4], float dp[N][4],
                                      int i0, int j0)
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int row = lane_row() + e / 2 * 8, column = 8 * n + lane_column() + e % 2;
            const int i = i0 + (TURNED ? column : row), j = j0 + (TURNED ? row : column);
            const bool seen = i < p.t_q && j < p.t_k && sees(p, i, j);
            s[n][e] = seen ? s[n][e] : -CUDART_INF_F;
            dp[n][e] = seen ? dp[n][e] : 0;
        }
}

/* What the backward pass needs of each query of a tile. */
template <int N> struct stats {
    float lse[N], delta[N];
};

/* Starts to copy those of queries [at, at + N); beyond `rows` they are 0. */
template <int N>
__device__ __forceinline__ void start_stats(stats<N> &to, const attention_rows &r,
                                            const attention_grads &g, size_t base, int at, int rows)
{
    for (int i = threadIdx.x; i < N; i += blockDim.x) {
        const bool in = at + i < rows;
        const size_t from = base + (in ? at + i : 0);
        start_float(&to.lse[i], r.lse + from, in);
        start_float(&to.delta[i], g.delta + from, in);
    }
}

/* Weights from scores, and ds = weight (dp - delta) in place of dp; lse and delta are of the tile's
 * queries, from its first on. */
template <bool TURNED, int N>
__device__ __forceinline__ void grads_of(float s[N][4], float dp[N][4], float scale,
                                         const float *lse, const float *delta)
{
    float base[2], off[2];
#pragma unroll
    for (int half = 0; half < 2 && !TURNED; half++) {
        base[half] = lse[lane_row() + 8 * half] * LOG2E;
        off[half] = delta[lane_row() + 8 * half];
    }
#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
        for (int half = 0; half < 2 && TURNED; half++) {
            base[half] = lse[8 * n + lane_column() + half] * LOG2E;
            off[half] = delta[8 * n + lane_column() + half];
        }
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int at = TURNED ? e % 2 : e / 2;
            s[n][e] = power_of_two(fmaf(s[n][e], scale, -base[at]));
            dp[n][e] = s[n][e] * (dp[n][e] - off[at]);
        }
    }
}

/* M strips of 16 keys a warp, which goes through queries QUERIES at a time. */
template <int W, int M, int QUERIES, int BLOCKS>
__global__ void __launch_bounds__(WARPS * 32, BLOCKS)
    flash_dkv_kernel(attention_shape p, attention_rows r, attention_grads g)
{
    enum { OWN = WARPS * 16 * M, STRIDE = tile_of<W>::stride, TILE = QUERIES * STRIDE };
    extern __shared__ __align__(16) bf16 room[];
    __shared__ stats<QUERIES> about[2];
    bf16 *k = room, *v = k + OWN * STRIDE, *tiles = v + OWN * STRIDE; /* (2 stages; q, dy) */
    const int j0 = blockIdx.x * OWN, own = threadIdx.x / 32 * 16 * M, group = p.heads / p.kv_heads;
    const heads_at first = heads_of(p, blockIdx.z, blockIdx.y * group);
    const range queries = queries_of(p, j0, OWN);
    const int begin = queries.begin / QUERIES * QUERIES;
    const int each = queries.end > begin ? (queries.end - begin + QUERIES - 1) / QUERIES : 0;
    const float scale = p.scale * LOG2E;
    float dk[M][W / 8][4], dv[M][W / 8][4];
    clear<M, W / 8>(dk);
    clear<M, W / 8>(dv);
    start_tile<W, OWN>(k, rows_at(r.k, first.k), p.k_stride, j0, p.t_k);
    start_tile<W, OWN>(v, rows_at(r.v, first.v), p.v_stride, j0, p.t_k);
    for (int step = -1; step < group * each; step++) { /* a step ahead */
        if (step + 1 < group * each) {
            const heads_at at = heads_of(p, blockIdx.z, blockIdx.y * group + (step + 1) / each);
            const int i0 = begin + (step + 1) % each * QUERIES, stage = (step + 1) & 1;
            bf16 *next = tiles + stage * 2 * TILE;
            start_tile<W, QUERIES>(next, rows_at(r.q, at.q), p.q_stride, i0, p.t_q);
            start_tile<W, QUERIES>(next + TILE, rows_at(g.dy, at.o), p.o_stride, i0, p.t_q);
            start_stats(about[stage], r, g, at.lse, i0, p.t_q);
        }
        end_starts();
        if (step < 0)
            continue;
        wait_tiles<1>();
        __syncthreads();
        const int i0 = begin + step % each * QUERIES, stage = step & 1;
        const bf16 *q = tiles + stage * 2 * TILE, *dy = q + TILE;
        float s[M][QUERIES / 8][4], dp[M][QUERIES / 8][4];
        clear<M, QUERIES / 8>(s);
        clear<M, QUERIES / 8>(dp);
        rows_by_rows<W, M, QUERIES>(s, k + own * STRIDE, q);
        rows_by_rows<W, M, QUERIES>(dp, v + own * STRIDE, dy);
#pragma unroll
        for (int m = 0; m < M; m++) {
            const int j = j0 + own + 16 * m;
            if (!all_see(p, i0, QUERIES, j, 16))
                blind<true, QUERIES / 8>(p, s[m], dp[m], i0, j);
            grads_of<true, QUERIES / 8>(s[m], dp[m], scale, about[stage].lse, about[stage].delta);
        }
        weights_by_rows<W, M, QUERIES>(dv, s, dy);
        weights_by_rows<W, M, QUERIES>(dk, dp, q);
        __syncthreads();
    }
    for (int m = 0; m < M; m++) {
        const int j = j0 + own + 16 * m;
        put_strip<W>(g.dk, first.k, p.k_stride, j, p.t_k, dk[m], p.scale, p.scale);
        put_strip<W>(g.dv, first.v, p.v_stride, j, p.t_k, dv[m], 1, 1);
    }
}

/* M strips of 16 queries a warp, which goes through keys KEYS at a time. */
template <int W, int M, int KEYS, int BLOCKS>
__global__ void __launch_bounds__(WARPS * 32, BLOCKS)
    flash_dq_kernel(attention_shape p, attention_rows r, attention_grads g)
{
    enum { QUERIES = WARPS * 16 * M, STRIDE = tile_of<W>::stride, TILE = KEYS * STRIDE };
    extern __shared__ __align__(16) bf16 room[];
    __shared__ stats<QUERIES> about;
    bf16 *q = room, *dy = q + QUERIES * STRIDE, *tiles = dy + QUERIES * STRIDE; /* (2; k, v) */
    const int q0 = (gridDim.x - 1 - blockIdx.x) * QUERIES, own = threadIdx.x / 32 * 16 * M;
    const heads_at at = heads_of(p, blockIdx.z, blockIdx.y);
    const bf16 *k_rows = rows_at(r.k, at.k), *v_rows = rows_at(r.v, at.v);
    const range keys = keys_of(p, q0, QUERIES);
    const float scale = p.scale * LOG2E;
    float dq[M][W / 8][4];
    clear<M, W / 8>(dq);
    start_stats(about, r, g, at.lse, q0, p.t_q);
    int j0 = keys.begin / KEYS * KEYS, stage = 0;
    start_tile<W, QUERIES>(q, rows_at(r.q, at.q), p.q_stride, q0, p.t_q);
    start_tile<W, QUERIES>(dy, rows_at(g.dy, at.o), p.o_stride, q0, p.t_q);
    start_tile<W, KEYS>(tiles, k_rows, p.k_stride, j0, p.t_k);
    start_tile<W, KEYS>(tiles + TILE, v_rows, p.v_stride, j0, p.t_k);
    end_starts();
    for (; j0 < keys.end; j0 += KEYS, stage ^= 1) {
        bf16 *k = tiles + stage * 2 * TILE, *next = tiles + (stage ^ 1) * 2 * TILE;
        if (j0 + KEYS < keys.end) {
            start_tile<W, KEYS>(next, k_rows, p.k_stride, j0 + KEYS, p.t_k);
            start_tile<W, KEYS>(next + TILE, v_rows, p.v_stride, j0 + KEYS, p.t_k);
        }
        end_starts();
        wait_tiles<1>();
        __syncthreads();
        float s[M][KEYS / 8][4], dp[M][KEYS / 8][4];
        clear<M, KEYS / 8>(s);
        clear<M, KEYS / 8>(dp);
        rows_by_rows<W, M, KEYS>(s, q + own * STRIDE, k);
        rows_by_rows<W, M, KEYS>(dp, dy + own * STRIDE, k + TILE);
#pragma unroll
        for (int m = 0; m < M; m++) {
            const int i = own + 16 * m;
            if (!all_see(p, q0 + i, 16, j0, KEYS))
                blind<false, KEYS / 8>(p, s[m], dp[m], q0 + i, j0);
            grads_of<false, KEYS / 8>(s[m], dp[m], scale, about.lse + i, about.delta + i);
        }
        weights_by_rows<W, M, KEYS>(dq, dp, k);
        __syncthreads();
    }
    for (int m = 0; m < M; m++)
        put_strip<W>(g.dq, at.q, p.q_stride, q0 + own + 16 * m, p.t_q, dq[m], p.scale, p.scale);
}

bool on_16_bytes(vec v)
{
    return !v.data || (v.half && (uintptr_t)v.data % 16 == 0);
}

template <int W> size_t room_of(int rows)
{
    return (size_t)rows * tile_of<W>::stride * sizeof(bf16);
}

template <int W, int M>
int forward(stream_t s, const attention_shape *p, const attention_rows *r)
{
    const int queries = WARPS * 16 * M;
    const dim3 grid(blocks_of(p->t_q, queries), p->heads, p->batch);
    const size_t bytes = room_of<W>(queries + 4 * KEYS);
    const int st = ask_room(flash_forward_kernel<W, M>, bytes);
    flash_forward_kernel<W, M><<<grid, WARPS * 32, bytes, s>>>(*p, *r);
    return st ? st : cudaGetLastError();
}

/* As of the kernels; BLOCKS of them fit on a multiprocessor. */
template <int W, int M, int QUERIES, int BLOCKS>
int backward_dkv(stream_t s, const attention_shape *p, const attention_rows *r,
                 const attention_grads *g)
{
    const int own = WARPS * 16 * M;
    const dim3 grid(blocks_of(p->t_k, own), p->kv_heads, p->batch);
    const size_t bytes = room_of<W>(2 * own + 4 * QUERIES);
    const int st = ask_room(flash_dkv_kernel<W, M, QUERIES, BLOCKS>, bytes);
    flash_dkv_kernel<W, M, QUERIES, BLOCKS><<<grid, WARPS * 32, bytes, s>>>(*p, *r, *g);
    return st ? st : cudaGetLastError();
}

template <int W, int M, int KEYS, int BLOCKS>
int backward_dq(stream_t s, const attention_shape *p, const attention_rows *r,
                const attention_grads *g)
{
    const int own = WARPS * 16 * M;
    const dim3 grid(blocks_of(p->t_q, own), p->heads, p->batch);
    const size_t bytes = room_of<W>(2 * own + 4 * KEYS);
    const int st = ask_room(flash_dq_kernel<W, M, KEYS, BLOCKS>, bytes);
    flash_dq_kernel<W, M, KEYS, BLOCKS><<<grid, WARPS * 32, bytes, s>>>(*p, *r, *g);
    return st ? st : cudaGetLastError();
}

} // namespace

int flash_can(const attention_shape *p, const attention_rows *r, const attention_grads *g)
{
    const size_t strides = (size_t)p->q_stride | (size_t)p->k_stride | (size_t)p->v_stride |
                           (size_t)p->o_stride | p->k_batch | p->v_batch;
    if ((p->width != 64 && p->width != 128) || strides % 8 || !(p->scale > 0))
        return 0;
    if (!on_16_bytes(r->q) || !on_16_bytes(r->k) || !on_16_bytes(r->v) || !on_16_bytes(r->o))
        return 0;
    return !g || (on_16_bytes(g->dq) && on_16_bytes(g->dk) && on_16_bytes(g->dv) &&
                  on_16_bytes(g->dy));
}

int launch_flash_forward(stream_t s, const attention_shape *p, const attention_rows *r)
{
    return p->width == 64 ? forward<64, 2>(s, p, r) : forward<128, 1>(s, p, r);
}

int launch_flash_backward(stream_t s, const attention_shape *p, const attention_rows *r,
                          const attention_grads *g)
{
    int st = launch_attention_delta(s, p, g->delta, g->dy, r->o);
    if (p->width == 64) {
        st = st ? st : backward_dkv<64, 2, 32, 2>(s, p, r, g);
        return st ? st : backward_dq<64, 2, 32, 2>(s, p, r, g);
    }
    st = st ? st : backward_dkv<128, 1, 32, 2>(s, p, r, g);
    return st ? st : backward_dq<128, 1, 64, 2>(s, p, r, g);
}
