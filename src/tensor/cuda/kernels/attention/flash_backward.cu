/* The backward pass of flash.cu: two kernels, for dk and dv and for dq, so that every sum has a
 * fixed order. */
#include <math_constants.h>

#include "tensor/cuda/kernels/attention/flash.cuh"

namespace {

/* Sets the scores of unseen pairs to -inf and their dp to 0. A separate loop, since most tiles have
 * no unseen pairs. Rows of the tile are queries (`TURNED`: keys). */
template <bool TURNED, int N>
__device__ __forceinline__ void blind_pairs(const attention_shape &p, float s[N][4], float dp[N][4],
                                            int i0, int j0)
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int row = lane_row() + e / 2 * 8, column = 8 * n + lane_column() + e % 2;
            const int i = i0 + (TURNED ? column : row), j = j0 + (TURNED ? row : column);
            const bool seen = i < p.t_q && j < p.t_k && query_sees(p, i, j);
            s[n][e] = seen ? s[n][e] : -CUDART_INF_F;
            dp[n][e] = seen ? dp[n][e] : 0;
        }
}

/* Statistics of each query of a tile for the backward pass. */
template <int N> struct tile_stats {
    float lse[N], delta[N];
};

/* Starts to copy the statistics of queries [at, at + N); 0 beyond `rows`. */
template <int N>
__device__ __forceinline__ void start_stats(tile_stats<N> &to, const attention_rows &r,
                                            const attention_grads &g, size_t base, int at, int rows)
{
    for (int i = threadIdx.x; i < N; i += blockDim.x) {
        const bool in = at + i < rows;
        const size_t from = base + (in ? at + i : 0);
        start_float(&to.lse[i], r.lse + from, in);
        start_float(&to.delta[i], g.delta + from, in);
    }
}

/* Turns scores into weights, and dp into ds = weight (dp - delta); lse and delta begin at the
 * tile's first query. */
template <bool TURNED, int N>
__device__ __forceinline__ void flash_pair_grads(float s[N][4], float dp[N][4], float scale,
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

/* M strips of 16 keys a warp; the block goes through queries QUERIES at a time. */
template <int W, int M, int QUERIES, int BLOCKS>
__global__ void __launch_bounds__(WARPS * 32, BLOCKS)
    flash_dkv_kernel(attention_shape p, attention_rows r, attention_grads g)
{
    enum { OWN = WARPS * 16 * M, STRIDE = tile_of<W>::stride, TILE = QUERIES * STRIDE };
    extern __shared__ __align__(16) bf16 room[];
    __shared__ tile_stats<QUERIES> about[2];
    bf16 *k = room, *v = k + OWN * STRIDE, *tiles = v + OWN * STRIDE; /* (2 stages; q, dy) */
    const int j0 = blockIdx.x * OWN, own = threadIdx.x / 32 * 16 * M, group = p.heads / p.kv_heads;
    const heads_at first = heads_of(p, blockIdx.z, blockIdx.y * group);
    const index_range queries = queries_of(p, j0, OWN);
    const int begin = queries.begin / QUERIES * QUERIES;
    const int each = queries.end > begin ? (queries.end - begin + QUERIES - 1) / QUERIES : 0;
    const float scale = p.scale * LOG2E;
    float dk[M][W / 8][4], dv[M][W / 8][4];
    clear_results<M, W / 8>(dk);
    clear_results<M, W / 8>(dv);
    start_tile<W, OWN>(k, rows_at(r.k, first.k), p.k_stride, j0, p.t_k, p.width);
    start_tile<W, OWN>(v, rows_at(r.v, first.v), p.v_stride, j0, p.t_k, p.width);
    for (int step = -1; step < group * each; step++) { /* a step ahead */
        if (step + 1 < group * each) {
            const heads_at at = heads_of(p, blockIdx.z, blockIdx.y * group + (step + 1) / each);
            const int i0 = begin + (step + 1) % each * QUERIES, stage = (step + 1) & 1;
            bf16 *next = tiles + stage * 2 * TILE;
            start_tile<W, QUERIES>(next, rows_at(r.q, at.q), p.q_stride, i0, p.t_q, p.width);
            start_tile<W, QUERIES>(next + TILE, rows_at(g.dy, at.o), p.o_stride, i0, p.t_q,
                                   p.width);
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
        clear_results<M, QUERIES / 8>(s);
        clear_results<M, QUERIES / 8>(dp);
        rows_by_rows<W, M, QUERIES>(s, k + own * STRIDE, q);
        rows_by_rows<W, M, QUERIES>(dp, v + own * STRIDE, dy);
#pragma unroll
        for (int m = 0; m < M; m++) {
            const int j = j0 + own + 16 * m;
            if (!all_see(p, i0, QUERIES, j, 16))
                blind_pairs<true, QUERIES / 8>(p, s[m], dp[m], i0, j);
            flash_pair_grads<true, QUERIES / 8>(s[m], dp[m], scale, about[stage].lse,
                                                about[stage].delta);
        }
        weights_by_rows<W, M, QUERIES>(dv, s, dy);
        weights_by_rows<W, M, QUERIES>(dk, dp, q);
        __syncthreads();
    }
    for (int m = 0; m < M; m++) {
        const int j = j0 + own + 16 * m;
        put_strip<W>(g.dk, first.k, p.k_stride, j, p.t_k, p.width, dk[m], p.scale, p.scale);
        put_strip<W>(g.dv, first.v, p.v_stride, j, p.t_k, p.width, dv[m], 1, 1);
    }
}

/* M strips of 16 queries a warp; the block goes through keys KEYS at a time. */
template <int W, int M, int KEYS, int BLOCKS>
__global__ void __launch_bounds__(WARPS * 32, BLOCKS)
    flash_dq_kernel(attention_shape p, attention_rows r, attention_grads g)
{
    enum { QUERIES = WARPS * 16 * M, STRIDE = tile_of<W>::stride, TILE = KEYS * STRIDE };
    extern __shared__ __align__(16) bf16 room[];
    __shared__ tile_stats<QUERIES> about;
    bf16 *q = room, *dy = q + QUERIES * STRIDE, *tiles = dy + QUERIES * STRIDE; /* (2; k, v) */
    const int q0 = (gridDim.x - 1 - blockIdx.x) * QUERIES, own = threadIdx.x / 32 * 16 * M;
    const heads_at at = heads_of(p, blockIdx.z, blockIdx.y);
    const bf16 *k_rows = rows_at(r.k, at.k), *v_rows = rows_at(r.v, at.v);
    const index_range keys = keys_of(p, q0, QUERIES);
    const float scale = p.scale * LOG2E;
    float dq[M][W / 8][4];
    clear_results<M, W / 8>(dq);
    start_stats(about, r, g, at.lse, q0, p.t_q);
    int j0 = keys.begin / KEYS * KEYS, stage = 0;
    start_tile<W, QUERIES>(q, rows_at(r.q, at.q), p.q_stride, q0, p.t_q, p.width);
    start_tile<W, QUERIES>(dy, rows_at(g.dy, at.o), p.o_stride, q0, p.t_q, p.width);
    start_tile<W, KEYS>(tiles, k_rows, p.k_stride, j0, p.t_k, p.width);
    start_tile<W, KEYS>(tiles + TILE, v_rows, p.v_stride, j0, p.t_k, p.width);
    end_starts();
    for (; j0 < keys.end; j0 += KEYS, stage ^= 1) {
        bf16 *k = tiles + stage * 2 * TILE, *next = tiles + (stage ^ 1) * 2 * TILE;
        if (j0 + KEYS < keys.end) {
            start_tile<W, KEYS>(next, k_rows, p.k_stride, j0 + KEYS, p.t_k, p.width);
            start_tile<W, KEYS>(next + TILE, v_rows, p.v_stride, j0 + KEYS, p.t_k, p.width);
        }
        end_starts();
        wait_tiles<1>();
        __syncthreads();
        float s[M][KEYS / 8][4], dp[M][KEYS / 8][4];
        clear_results<M, KEYS / 8>(s);
        clear_results<M, KEYS / 8>(dp);
        rows_by_rows<W, M, KEYS>(s, q + own * STRIDE, k);
        rows_by_rows<W, M, KEYS>(dp, dy + own * STRIDE, k + TILE);
#pragma unroll
        for (int m = 0; m < M; m++) {
            const int i = own + 16 * m;
            if (!all_see(p, q0 + i, 16, j0, KEYS))
                blind_pairs<false, KEYS / 8>(p, s[m], dp[m], q0 + i, j0);
            flash_pair_grads<false, KEYS / 8>(s[m], dp[m], scale, about.lse + i, about.delta + i);
        }
        weights_by_rows<W, M, KEYS>(dq, dp, k);
        __syncthreads();
    }
    for (int m = 0; m < M; m++)
        put_strip<W>(g.dq, at.q, p.q_stride, q0 + own + 16 * m, p.t_q, p.width, dq[m], p.scale,
                     p.scale);
}

/* Computes delta (batch, heads, t_q), the products of rows of dy and o, LANES lanes each, in the
 * rows' order in memory. */
template <int LANES>
__global__ void flash_delta_kernel(attention_shape p, float *delta, vec dy, vec o)
{
    const size_t e = blockIdx.x * (size_t)THREADS + threadIdx.x, row = e / LANES;
    const int part = e % LANES, head = row % p.heads;
    const size_t token = row / p.heads;
    const bool in = token < (size_t)p.batch * p.t_q;
    float sum = 0;
    if (in && part * 8 < p.width) {
        const size_t at = token * p.o_stride + (size_t)head * p.width + part * 8;
        const few<8> a = load_few<8>(dy, at), b = load_few<8>(o, at);
        for (int k = 0; k < 8; k++)
            sum = fmaf(a.at[k], b.at[k], sum);
    }
    for (int far = LANES / 2; far > 0; far /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, far);
    if (in && part == 0)
        delta[(token / p.t_q * p.heads + head) * p.t_q + token % p.t_q] = sum;
}

template <int LANES>
int delta_of(stream_t s, const attention_shape *p, const attention_rows *r,
             const attention_grads *g)
{
    const size_t rows = (size_t)p->batch * p->t_q * p->heads;
    flash_delta_kernel<LANES>
        <<<blocks_of(rows * LANES, THREADS), THREADS, 0, s>>>(*p, g->delta, g->dy, r->o);
    return cudaGetLastError();
}

/* Launch the kernels of the same parameters; BLOCKS blocks fit on a multiprocessor. */
template <int W, int M, int QUERIES, int BLOCKS>
int flash_backward_dkv(stream_t s, const attention_shape *p, const attention_rows *r,
                       const attention_grads *g)
{
    const int own = WARPS * 16 * M;
    const dim3 grid(blocks_of(p->t_k, own), p->kv_heads, p->batch);
    const size_t bytes = flash_room<W>(2 * own + 4 * QUERIES);
    const int st = ask_room(flash_dkv_kernel<W, M, QUERIES, BLOCKS>, bytes);
    flash_dkv_kernel<W, M, QUERIES, BLOCKS><<<grid, WARPS * 32, bytes, s>>>(*p, *r, *g);
    return st ? st : cudaGetLastError();
}

template <int W, int M, int KEYS, int BLOCKS>
int flash_backward_dq(stream_t s, const attention_shape *p, const attention_rows *r,
                      const attention_grads *g)
{
    const int own = WARPS * 16 * M;
    const dim3 grid(blocks_of(p->t_q, own), p->heads, p->batch);
    const size_t bytes = flash_room<W>(2 * own + 4 * KEYS);
    const int st = ask_room(flash_dq_kernel<W, M, KEYS, BLOCKS>, bytes);
    flash_dq_kernel<W, M, KEYS, BLOCKS><<<grid, WARPS * 32, bytes, s>>>(*p, *r, *g);
    return st ? st : cudaGetLastError();
}

} // namespace

size_t attention_deltas(const attention_shape *p)
{
    return (size_t)p->batch * p->heads * padded_queries(p->t_q) * 2;
}

int launch_flash_backward(stream_t s, const attention_shape *p, const attention_rows *r,
                          const attention_grads *g)
{
    const int done = hopper_backward(s, p, r, g);
    if (done != cudaErrorNotSupported)
        return done;
    return by_width(p->width, [=](auto w) {
        constexpr int W = decltype(w)::value;
        int st = delta_of<W <= 32 ? 4 : W <= 64 ? 8 : 16>(s, p, r, g);
        st = st ? st : flash_backward_dkv<W, W <= 64 ? 2 : 1, 32, 2>(s, p, r, g);
        return st ? st : flash_backward_dq<W, 1, W <= 64 ? 32 : 64, W <= 64 ? 4 : 2>(s, p, r, g);
    });
}
