/* The backward pass of flash_hopper.cu: two kernels, for dq and for dk and dv, as in
 * flash_backward.cu, so that every sum has a fixed order. A block is a warpgroup, which has 64
 * queries (or keys) of a head and goes through its keys (or queries) 64 at a time; STAGES tiles are
 * in shared memory or in flight. */
#include <math_constants.h>

#include "tensor/cuda/kernels/attention/flash.cuh"

#ifdef SOTTO_CUDA_HOPPER
#include "tensor/cuda/kernels/hopper.cuh"

namespace {

enum { SIDE = 64 };

/* Statistics of queries, (batch, heads, padded_queries(t_q)), from the first kernel for the second:
 * lse in powers of two, and the product of rows of dy and o. Queries beyond t_q see no keys. */
struct query_stats {
    float *lse, *delta;
};

/* A pair of tiles: k and v, or q and dy. */
template <int W> struct tile_pair {
    bf16 a[SIDE * W], b[SIDE * W];
};

template <int W, int STAGES> struct hopper_backward_room {
    tile_pair<W> own, tile[STAGES];
    float lse[STAGES][SIDE], delta[STAGES][SIDE];
    barrier own_full, full[STAGES];
};

#ifdef HOPPER_CODE

template <int W, int STAGES>
__device__ __forceinline__ void init_room(hopper_backward_room<W, STAGES> &room)
{
    init_barrier(&room.own_full, 1);
    for (int at = 0; at < STAGES; at++)
        init_barrier(&room.full[at], 1);
    publish_barriers();
}

/* Returns the dot product of two pairs of bf16. */
__device__ __forceinline__ float dot_pairs(unsigned a, unsigned b)
{
    return fmaf(__uint_as_float(a << 16), __uint_as_float(b << 16),
                __uint_as_float(a & 0xffff0000u) * __uint_as_float(b & 0xffff0000u));
}

template <int W>
__device__ __forceinline__ void start_pair(tile_pair<W> &to, const CUtensorMap *a,
                                           const CUtensorMap *b, barrier *full, int head, int row)
{
    start_tile_rows<W>(to.a, SIDE, a, full, head, row, blockIdx.z);
    start_tile_rows<W>(to.b, SIDE, b, full, head, row, blockIdx.z);
}

#endif

/* Computes dq, and the statistics of queries for the other kernel. */
template <int W, int STAGES, int BLOCKS>
__global__ void __launch_bounds__(WARPGROUP, BLOCKS)
    hopper_dq_kernel(attention_shape p, attention_rows r, attention_grads g, query_stats stats,
                     const __grid_constant__ CUtensorMap q_map,
                     const __grid_constant__ CUtensorMap k_map,
                     const __grid_constant__ CUtensorMap v_map,
                     const __grid_constant__ CUtensorMap dy_map,
                     const __grid_constant__ CUtensorMap dq_map)
{
#ifdef HOPPER_CODE
    extern __shared__ __align__(1024) unsigned char raw[];
    hopper_backward_room<W, STAGES> &room = *(hopper_backward_room<W, STAGES> *)raw;
    const int head = blockIdx.y, kv = head / (p.heads / p.kv_heads);
    const int q0 = (gridDim.x - 1 - blockIdx.x) * SIDE, i0 = q0 + warp_index() * 16;
    const heads_at base = heads_of(p, blockIdx.z, head);
    const index_range keys = keys_of(p, q0, SIDE);
    const int first = keys.begin / SIDE, tiles = (keys.end + SIDE - 1) / SIDE - first;
    const float scale = p.scale * LOG2E;

    auto start = [&](int t) {
        barrier *full = &room.full[t % STAGES];
        arrive_for(full, sizeof room.tile[0]);
        start_pair(room.tile[t % STAGES], &k_map, &v_map, full, kv, (first + t) * SIDE);
    };
    auto follow = [&](int t) { /* starts to copy the tile that replaces tile t */
        if (t + STAGES >= tiles)
            return;
        __syncthreads();
        if (threadIdx.x == 0)
            start(t + STAGES);
    };

    if (threadIdx.x == 0) {
        init_room(room);
        arrive_for(&room.own_full, sizeof room.own);
        start_pair(room.own, &q_map, &dy_map, &room.own_full, head, q0);
        for (int t = 0; t < STAGES && t < tiles; t++)
            start(t);
    }
    const int row = threadIdx.x / 2, i = q0 + row; /* two threads a query */
    uint4 x[W / 16], y[W / 16];
#pragma unroll
    for (int n = 0; n < W / 16; n++) {
        const int c = 16 * n + threadIdx.x % 2 * 8;
        const bool in = i < p.t_q && c < p.width;
        const size_t at = in ? base.o + (size_t)i * p.o_stride + c : 0;
        x[n] = in ? *(const uint4 *)rows_at(g.dy, at) : make_uint4(0, 0, 0, 0);
        y[n] = in ? *(const uint4 *)rows_at(r.o, at) : make_uint4(0, 0, 0, 0);
    }
    float sum = 0;
#pragma unroll
    for (int n = 0; n < W / 16; n++)
        sum += dot_pairs(x[n].x, y[n].x) + dot_pairs(x[n].y, y[n].y) +
               (dot_pairs(x[n].z, y[n].z) + dot_pairs(x[n].w, y[n].w));
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    if (threadIdx.x % 2 == 0) {
        const size_t at = ((size_t)blockIdx.z * p.heads + head) * padded_queries(p.t_q) + i;
        const float lse = i < p.t_q ? r.lse[base.lse + i] * LOG2E : CUDART_INF_F;
        stats.lse[at] = room.lse[0][row] = lse;
        stats.delta[at] = room.delta[0][row] = sum;
    }
    __syncthreads();

    float dq[W / 8][4], lse[2], delta[2];
    for (int half = 0; half < 2; half++) {
        lse[half] = room.lse[0][warp_index() * 16 + lane_row() + 8 * half];
        delta[half] = room.delta[0][warp_index() * 16 + lane_row() + 8 * half];
    }
#pragma unroll
    for (int n = 0; n < W / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            dq[n][e] = 0;
    settle_results(dq);
    await_barrier(&room.own_full, 0);
    for (int t = 0; t < tiles; t++) {
        const tile_pair<W> &tile = room.tile[t % STAGES];
        const int j0 = (first + t) * SIDE;
        float s[SIDE / 8][4], dp[SIDE / 8][4];
        unsigned ds[SIDE / 16][4];
        await_barrier(&room.full[t % STAGES], t / STAGES & 1);
        open_products();
        rows_product<W, SIDE>(s, room.own.a, tile.a);
        end_products();
        rows_product<W, SIDE>(dp, room.own.b, tile.b);
        end_products();
        wait_products<1>(); /* also waits for the last product of the tile before */
        settle_results(s);
        if (t > 0)
            follow(t - 1);
        if (!all_see(p, i0, 16, j0, SIDE))
#pragma unroll
            for (int n = 0; n < SIDE / 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (!query_sees(p, i0 + lane_row() + e / 2 * 8,
                                    j0 + 8 * n + lane_column() + e % 2))
                        s[n][e] = -CUDART_INF_F;
#pragma unroll
        for (int n = 0; n < SIDE / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[n][e] = power_of_two(fmaf(s[n][e], scale, -lse[e / 2]));
        wait_products<0>();
        settle_results(dp);
#pragma unroll
        for (int n = 0; n < SIDE / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                dp[n][e] = s[n][e] * (dp[n][e] - delta[e / 2]);
        round_weights(ds, dp);
        open_products();
        columns_product<W, SIDE>(dq, ds, tile.a);
        end_products();
    }
    wait_products<0>();
    settle_results(dq);
    __syncthreads(); /* no thread reads q any more */
    round_strip<W>(room.own.a, dq, p.scale, p.scale);
    publish_stores();
    __syncthreads();
    if (threadIdx.x == 0) {
        store_tile_rows<W>(room.own.a, &dq_map, head, q0, blockIdx.z);
        end_stores();
    }
#endif
}

template <int W, int STAGES, int BLOCKS>
__global__ void __launch_bounds__(WARPGROUP, BLOCKS)
    hopper_dkv_kernel(attention_shape p, query_stats stats,
                      const __grid_constant__ CUtensorMap q_map,
                      const __grid_constant__ CUtensorMap k_map,
                      const __grid_constant__ CUtensorMap v_map,
                      const __grid_constant__ CUtensorMap dy_map,
                      const __grid_constant__ CUtensorMap dk_map,
                      const __grid_constant__ CUtensorMap dv_map)
{
#ifdef HOPPER_CODE
    extern __shared__ __align__(1024) unsigned char raw[];
    hopper_backward_room<W, STAGES> &room = *(hopper_backward_room<W, STAGES> *)raw;
    const int group = p.heads / p.kv_heads, kv = blockIdx.y;
    const int k0 = blockIdx.x * SIDE, j0 = k0 + warp_index() * 16;
    const index_range queries = queries_of(p, k0, SIDE);
    const int first = queries.begin / SIDE;
    const int each = max((queries.end + SIDE - 1) / SIDE - first, 0), tiles = group * each;
    const float scale = p.scale * LOG2E;

    auto start = [&](int t) {
        const int at = t % STAGES, head = kv * group + t / each, i0 = (first + t % each) * SIDE;
        const size_t from = ((size_t)blockIdx.z * p.heads + head) * padded_queries(p.t_q) + i0;
        barrier *full = &room.full[at];
        arrive_for(full, sizeof room.tile[at] + sizeof room.lse[at] + sizeof room.delta[at]);
        start_pair(room.tile[at], &q_map, &dy_map, full, head, i0);
        start_bytes(room.lse[at], stats.lse + from, sizeof room.lse[at], full);
        start_bytes(room.delta[at], stats.delta + from, sizeof room.delta[at], full);
    };

    if (threadIdx.x == 0) {
        init_room(room);
        arrive_for(&room.own_full, sizeof room.own);
        start_pair(room.own, &k_map, &v_map, &room.own_full, kv, k0);
        for (int t = 0; t < STAGES && t < tiles; t++)
            start(t);
    }
    __syncthreads();

    float dk[W / 8][4], dv[W / 8][4];
#pragma unroll
    for (int n = 0; n < W / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            dk[n][e] = dv[n][e] = 0;
    settle_results(dk);
    settle_results(dv);
    await_barrier(&room.own_full, 0);
    for (int t = 0; t < tiles; t++) {
        const int at = t % STAGES, i0 = (first + t % each) * SIDE;
        const tile_pair<W> &tile = room.tile[at];
        float s[SIDE / 8][4], dp[SIDE / 8][4];
        unsigned weights[SIDE / 16][4], ds[SIDE / 16][4];
        await_barrier(&room.full[at], t / STAGES & 1);
        open_products();
        rows_product<W, SIDE>(s, room.own.a, tile.a);
        end_products();
        rows_product<W, SIDE>(dp, room.own.b, tile.b);
        end_products();
        wait_products<1>();
        settle_results(s);
        if (!p.whole && !(query_sees(p, i0, j0 + 15) && query_sees(p, i0 + SIDE - 1, j0)))
#pragma unroll
            for (int n = 0; n < SIDE / 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (!query_sees(p, i0 + 8 * n + lane_column() + e % 2,
                                    j0 + lane_row() + e / 2 * 8))
                        s[n][e] = -CUDART_INF_F;
#pragma unroll
        for (int n = 0; n < SIDE / 8; n++) {
            const float2 lse = *(const float2 *)&room.lse[at][8 * n + lane_column()];
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[n][e] = power_of_two(fmaf(s[n][e], scale, e % 2 ? -lse.y : -lse.x));
        }
        round_weights(weights, s);
        wait_products<0>();
        settle_results(dp);
#pragma unroll
        for (int n = 0; n < SIDE / 8; n++) {
            const float2 delta = *(const float2 *)&room.delta[at][8 * n + lane_column()];
#pragma unroll
            for (int e = 0; e < 4; e++)
                dp[n][e] = s[n][e] * (dp[n][e] - (e % 2 ? delta.y : delta.x));
        }
        round_weights(ds, dp);
        open_products();
        columns_product<W, SIDE>(dv, weights, tile.b);
        columns_product<W, SIDE>(dk, ds, tile.a);
        end_products();
        wait_products<0>();
        settle_results(dv);
        settle_results(dk);
        if (t + STAGES < tiles) {
            __syncthreads();
            if (threadIdx.x == 0)
                start(t + STAGES);
        }
    }
    __syncthreads(); /* no thread reads k and v any more */
    round_strip<W>(room.own.a, dk, p.scale, p.scale);
    round_strip<W>(room.own.b, dv, 1, 1);
    publish_stores();
    __syncthreads();
    if (threadIdx.x == 0) {
        store_tile_rows<W>(room.own.a, &dk_map, kv, k0, blockIdx.z);
        store_tile_rows<W>(room.own.b, &dv_map, kv, k0, blockIdx.z);
        end_stores();
    }
#endif
}

struct backward_maps {
    CUtensorMap q, k, v, dy, dq, dk, dv;
    bool made;
    query_stats stats;
    backward_maps(const attention_shape *p, const attention_rows *r, const attention_grads *g)
    {
        auto queries = [&](CUtensorMap *m, vec rows, int stride) {
            return map_rows(m, rows, p->width, p->heads, p->t_q, p->batch, stride,
                            (size_t)p->t_q * stride, SIDE);
        };
        auto keys = [&](CUtensorMap *m, vec rows, int stride, size_t batch) {
            return map_rows(m, rows, p->width, p->kv_heads, p->t_k, p->batch, stride, batch, SIDE);
        };
        made = queries(&q, r->q, p->q_stride) && queries(&dy, g->dy, p->o_stride) &&
               queries(&dq, g->dq, p->q_stride) && keys(&k, r->k, p->k_stride, p->k_batch) &&
               keys(&v, r->v, p->v_stride, p->v_batch) &&
               keys(&dk, g->dk, p->k_stride, p->k_batch) &&
               keys(&dv, g->dv, p->v_stride, p->v_batch);
        stats =
            query_stats{g->delta, g->delta + (size_t)p->batch * p->heads * padded_queries(p->t_q)};
    }
};

template <int W, int STAGES, int BLOCKS>
int hopper_backward_dq(stream_t s, const attention_shape *p, const attention_rows *r,
                       const attention_grads *g, const backward_maps &m)
{
    const dim3 grid(blocks_of(p->t_q, SIDE), p->heads, p->batch);
    const size_t bytes = sizeof(hopper_backward_room<W, STAGES>);
    const auto kernel = hopper_dq_kernel<W, STAGES, BLOCKS>;
    const int st = ask_room(kernel, bytes);
    kernel<<<grid, WARPGROUP, bytes, s>>>(*p, *r, *g, m.stats, m.q, m.k, m.v, m.dy, m.dq);
    return st ? st : cudaGetLastError();
}

template <int W, int STAGES, int BLOCKS>
int hopper_backward_dkv(stream_t s, const attention_shape *p, const backward_maps &m)
{
    const dim3 grid(blocks_of(p->t_k, SIDE), p->kv_heads, p->batch);
    const size_t bytes = sizeof(hopper_backward_room<W, STAGES>);
    const auto kernel = hopper_dkv_kernel<W, STAGES, BLOCKS>;
    const int st = ask_room(kernel, bytes);
    kernel<<<grid, WARPGROUP, bytes, s>>>(*p, m.stats, m.q, m.k, m.v, m.dy, m.dk,
                                          m.dv);
    return st ? st : cudaGetLastError();
}

} // namespace

int hopper_backward(stream_t s, const attention_shape *p, const attention_rows *r,
                    const attention_grads *g)
{
    if (!on_hopper())
        return cudaErrorNotSupported;
    const backward_maps m(p, r, g);
    if (!m.made)
        return cudaErrorNotSupported;
    const bool narrow = p->width <= 64;
    const int st = narrow ? hopper_backward_dq<64, 3, 3>(s, p, r, g, m)
                          : hopper_backward_dq<128, 2, 2>(s, p, r, g, m);
    return st       ? st
           : narrow ? hopper_backward_dkv<64, 3, 3>(s, p, m)
                    : hopper_backward_dkv<128, 2, 2>(s, p, m);
}
#else
int hopper_backward(stream_t, const attention_shape *, const attention_rows *,
                    const attention_grads *)
{
    return cudaErrorNotSupported;
}
#endif
