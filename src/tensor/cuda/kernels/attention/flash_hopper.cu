/* Attention of flash.cu on Hopper: products by wgmma, copies of tiles by TMA. A block is WGS
 * warpgroups, each with 64 queries of a head; all read the same tiles of keys and values, of which
 * STAGES are in shared memory or in flight. While a tile's weights are computed, two products run:
 * the scores of the next tile, and the weights of the last tile times its values. */
#include <math_constants.h>

#include "tensor/cuda/kernels/attention/flash.cuh"

#ifdef SOTTO_CUDA_HOPPER
#include "tensor/cuda/kernels/hopper.cuh"

namespace {

template <int W, int WGS, int KEYS, int STAGES> struct hopper_forward_room {
    bf16 q[WGS][64 * W];
    struct {
        bf16 k[KEYS * W], v[KEYS * W];
    } tile[STAGES];
    barrier q_full, full[STAGES], empty[STAGES];
};

template <int W, int WGS, int KEYS, int STAGES, int BLOCKS, int STEP>
__global__ void __launch_bounds__(WGS *WARPGROUP, BLOCKS)
    hopper_forward_kernel(attention_shape p, attention_rows r,
                          const __grid_constant__ CUtensorMap q_map,
                          const __grid_constant__ CUtensorMap k_map,
                          const __grid_constant__ CUtensorMap v_map,
                          const __grid_constant__ CUtensorMap o_map)
{
#ifdef HOPPER_CODE
    extern __shared__ __align__(1024) unsigned char raw[];
    typedef hopper_forward_room<W, WGS, KEYS, STAGES> room_type;
    room_type &room = *(room_type *)raw;
    const int group = warpgroup_index(), head = blockIdx.y, kv = head / (p.heads / p.kv_heads);
    const int q0 = (gridDim.x - 1 - blockIdx.x) * 64 * WGS, own = q0 + 64 * group;
    const int i0 = own + warp_index() * 16; /* the first query of a warp */
    const bool feeds = threadIdx.x == (WGS - 1) * WARPGROUP;
    const index_range all = keys_of(p, q0, 64 * WGS), mine = keys_of(p, own, 64);
    const int first = all.begin / KEYS, tiles = (all.end + KEYS - 1) / KEYS - first;
    const int begin = own < p.t_q ? mine.begin / KEYS - first : 0;
    const int end = own < p.t_q ? (mine.end + KEYS - 1) / KEYS - first : 0;
    const float scale = p.scale * LOG2E;

    auto start = [&](int t) {
        const int at = t % STAGES;
        arrive_for(&room.full[at], sizeof room.tile[at]);
        start_tile_rows<W>(room.tile[at].k, KEYS, &k_map, &room.full[at], kv, (first + t) * KEYS,
                           blockIdx.z);
        start_tile_rows<W>(room.tile[at].v, KEYS, &v_map, &room.full[at], kv, (first + t) * KEYS,
                           blockIdx.z);
    };
    auto await_tile = [&](int t) { await_barrier(&room.full[t % STAGES], t / STAGES & 1); };
    auto leave_tile = [&](int t) { /* its place then receives another tile */
        if (t + STAGES >= tiles)
            return;
        if (threadIdx.x % 32 == 0)
            arrive_once(&room.empty[t % STAGES]);
        if (feeds) {
            await_barrier(&room.empty[t % STAGES], t / STAGES & 1);
            start(t + STAGES);
        }
        __syncwarp();
    };

    if (feeds) {
        init_barrier(&room.q_full, 1);
        for (int at = 0; at < STAGES; at++) {
            init_barrier(&room.full[at], 1);
            init_barrier(&room.empty[at], 4 * WGS);
        }
        publish_barriers();
        arrive_for(&room.q_full, sizeof room.q);
        for (int g = 0; g < WGS; g++)
            start_tile_rows<W>(room.q[g], 64, &q_map, &room.q_full, head, q0 + 64 * g, blockIdx.z);
        for (int t = 0; t < STAGES && t < tiles; t++)
            start(t);
    }
    __syncthreads();

    float o[W / 8][4];
    running_softmax soft = {{-CUDART_INF_F, -CUDART_INF_F}, {0, 0}};
    unsigned weights[KEYS / 16][4];
#pragma unroll
    for (int n = 0; n < W / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            o[n][e] = 0;
    auto soften_tile = [&](float(&s)[KEYS / 8][4], int t, float(&shrink)[2]) {
        const int j0 = (first + t) * KEYS;
        if (!all_see(p, i0, 16, j0, KEYS))
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (!query_sees(p, i0 + lane_row() + e / 2 * 8,
                                    j0 + 8 * n + lane_column() + e % 2))
                        s[n][e] = -CUDART_INF_F;
        soften_scores<KEYS / 8, STEP>(soft, s, scale, shrink);
    };
    await_barrier(&room.q_full, 0);
    for (int t = 0; t < begin; t++) {
        await_tile(t);
        leave_tile(t);
    }
    if (begin < end) {
        float s[KEYS / 8][4], shrink[2];
        await_tile(begin);
        open_products();
        rows_product<W, KEYS>(s, room.q[group], room.tile[begin % STAGES].k);
        end_products();
        wait_products<0>();
        settle_results(s);
        soften_tile(s, begin, shrink);
        round_weights(weights, s);
    }
    for (int t = begin; t < end - 1; t++) {
        float s[KEYS / 8][4], shrink[2];
        await_tile(t + 1);
        open_products();
        rows_product<W, KEYS>(s, room.q[group], room.tile[(t + 1) % STAGES].k);
        end_products();
        columns_product<W, KEYS>(o, weights, room.tile[t % STAGES].v);
        end_products();
        wait_products<1>();
        settle_results(s);
        soften_tile(s, t + 1, shrink);
        wait_products<0>();
        settle_results(o);
        leave_tile(t);
        round_weights(weights, s);
        if (!STEP || __any_sync(0xffffffffu, shrink[0] != 1 || shrink[1] != 1))
#pragma unroll
            for (int n = 0; n < W / 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    o[n][e] *= shrink[e / 2];
    }
    if (begin < end) {
        open_products();
        columns_product<W, KEYS>(o, weights, room.tile[(end - 1) % STAGES].v);
        end_products();
        wait_products<0>();
        settle_results(o);
        leave_tile(end - 1);
    }
    for (int t = end; t < tiles; t++) {
        await_tile(t);
        leave_tile(t);
    }
    const heads_at at = heads_of(p, blockIdx.z, head);
    float inverse[2];
    for (int half = 0; half < 2; half++) {
        float sum = soft.sum[half];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        const int i = i0 + lane_row() + 8 * half;
        if (lane_column() == 0 && i < p.t_q)
            r.lse[at.lse + i] = soft.max[half] * p.scale + logf(sum);
        inverse[half] = 1 / sum;
    }
    __syncthreads(); /* no thread reads q any more */
    round_strip<W>(room.q[group], o, inverse[0], inverse[1]);
    publish_stores();
    __syncthreads();
    if (threadIdx.x % WARPGROUP == 0) {
        store_tile_rows<W>(room.q[group], &o_map, head, own, blockIdx.z);
        end_stores();
    }
#endif
}

template <int W, int WGS, int KEYS, int STAGES, int BLOCKS, int STEP>
int hopper_forward_width(stream_t s, const attention_shape *p, const attention_rows *r)
{
    CUtensorMap q, k, v, o;
    if (!map_rows(&q, r->q, p->width, p->heads, p->t_q, p->batch, p->q_stride,
                  (size_t)p->t_q * p->q_stride, 64) ||
        !map_rows(&k, r->k, p->width, p->kv_heads, p->t_k, p->batch, p->k_stride, p->k_batch,
                  KEYS) ||
        !map_rows(&v, r->v, p->width, p->kv_heads, p->t_k, p->batch, p->v_stride, p->v_batch,
                  KEYS) ||
        !map_rows(&o, r->o, p->width, p->heads, p->t_q, p->batch, p->o_stride,
                  (size_t)p->t_q * p->o_stride, 64))
        return cudaErrorNotSupported;
    const dim3 grid(blocks_of(p->t_q, 64 * WGS), p->heads, p->batch);
    const size_t bytes = sizeof(hopper_forward_room<W, WGS, KEYS, STAGES>);
    const int st = ask_room(hopper_forward_kernel<W, WGS, KEYS, STAGES, BLOCKS, STEP>, bytes);
    hopper_forward_kernel<W, WGS, KEYS, STAGES, BLOCKS, STEP>
        <<<grid, WGS * WARPGROUP, bytes, s>>>(*p, *r, q, k, v, o);
    return st ? st : cudaGetLastError();
}

} // namespace

int hopper_forward(stream_t s, const attention_shape *p, const attention_rows *r)
{
    if (!on_hopper())
        return cudaErrorNotSupported;
    return p->width <= 64 ? hopper_forward_width<64, 2, 64, 4, 2, 8>(s, p, r)
                          : hopper_forward_width<128, 3, 64, 3, 1, 8>(s, p, r);
}
#else
int hopper_forward(stream_t, const attention_shape *, const attention_rows *)
{
    return cudaErrorNotSupported;
}
#endif
