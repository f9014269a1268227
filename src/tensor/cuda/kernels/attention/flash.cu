/* Attention of bf16 rows on the matrix units, the FlashAttention-2 way (Dao, 2023): scores exist
 * only as tiles in registers. Weights are rounded to bf16 before they are multiplied with rows. */
#include <math_constants.h>

#include "tensor/cuda/kernels/attention/flash.cuh"

namespace {

enum { KEYS = 64 };

/* M strips of 16 queries a warp; heavy blocks, of late queries, start first. */
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
    const index_range keys = keys_of(p, q0, QUERIES);
    const float scale = p.scale * LOG2E;
    float o[M][W / 8][4];
    running_softmax soft[M];
    clear_results<M, W / 8>(o);
    for (int m = 0; m < M; m++)
        soft[m] = running_softmax{{-CUDART_INF_F, -CUDART_INF_F}, {0, 0}};
    int j0 = keys.begin / KEYS * KEYS, stage = 0;
    start_tile<W, QUERIES>(q, rows_at(r.q, at.q), p.q_stride, q0, p.t_q, p.width);
    start_tile<W, KEYS>(kv, k_rows, p.k_stride, j0, p.t_k, p.width);
    start_tile<W, KEYS>(kv + TILE, v_rows, p.v_stride, j0, p.t_k, p.width);
    end_starts();
    for (; j0 < keys.end; j0 += KEYS, stage ^= 1) {
        bf16 *k = kv + stage * 2 * TILE, *next = kv + (stage ^ 1) * 2 * TILE;
        if (j0 + KEYS < keys.end) {
            start_tile<W, KEYS>(next, k_rows, p.k_stride, j0 + KEYS, p.t_k, p.width);
            start_tile<W, KEYS>(next + TILE, v_rows, p.v_stride, j0 + KEYS, p.t_k, p.width);
            end_starts();
            wait_tiles<1>();
        } else {
            wait_tiles<0>();
        }
        __syncthreads();
        float s[M][KEYS / 8][4];
        clear_results<M, KEYS / 8>(s);
        rows_by_rows<W, M, KEYS>(s, q + own * STRIDE, k);
#pragma unroll
        for (int m = 0; m < M; m++) {
            const int i0 = q0 + own + 16 * m;
            if (!all_see(p, i0, 16, j0, KEYS))
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        if (!query_sees(p, i0 + lane_row() + e / 2 * 8,
                                        j0 + 8 * n + lane_column() + e % 2))
                            s[m][n][e] = -CUDART_INF_F;
            float shrink[2];
            soften_scores<KEYS / 8, 0>(soft[m], s[m], scale, shrink);
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
        put_strip<W>(r.o, at.o, p.o_stride, i0, p.t_q, p.width, o[m], inverse[0], inverse[1]);
    }
}

bool on_16_bytes(vec v)
{
    return !v.data || (v.half && (uintptr_t)v.data % 16 == 0);
}

template <int W, int M>
int flash_forward(stream_t s, const attention_shape *p, const attention_rows *r)
{
    const int queries = WARPS * 16 * M;
    const dim3 grid(blocks_of(p->t_q, queries), p->heads, p->batch);
    const size_t bytes = flash_room<W>(queries + 4 * KEYS);
    const int st = ask_room(flash_forward_kernel<W, M>, bytes);
    flash_forward_kernel<W, M><<<grid, WARPS * 32, bytes, s>>>(*p, *r);
    return st ? st : cudaGetLastError();
}

} // namespace

int flash_can(const attention_shape *p, const attention_rows *r, const attention_grads *g)
{
    const size_t strides = (size_t)p->q_stride | (size_t)p->k_stride | (size_t)p->v_stride |
                           (size_t)p->o_stride | p->k_batch | p->v_batch;
    if (p->width % 8 || p->width > 128 || strides % 8 || !(p->scale > 0))
        return 0;
    if (!on_16_bytes(r->q) || !on_16_bytes(r->k) || !on_16_bytes(r->v) || !on_16_bytes(r->o))
        return 0;
    return !g || (on_16_bytes(g->dq) && on_16_bytes(g->dk) && on_16_bytes(g->dv) &&
                  on_16_bytes(g->dy));
}

int launch_flash_forward(stream_t s, const attention_shape *p, const attention_rows *r)
{
    const int st = hopper_forward(s, p, r);
    if (st != cudaErrorNotSupported)
        return st;
    return by_width(p->width, [=](auto w) {
        constexpr int W = decltype(w)::value;
        return flash_forward<W, W <= 64 ? 2 : 1>(s, p, r);
    });
}
