/* Layernorm and rmsnorm. Rows on 16 bytes are kept in registers, a row by one warp or, if long, by
 * several; other rows are read again from the cache, a warp for each row. */
#include <cuda_pipeline.h>

#include "tensor/cuda/kernels/columns.cuh"

namespace {

enum { ROWS = THREADS / 32 }; /* rows of a block */

/* Returns the sum of f(element) over a row, in every lane. */
template <int V, class F> __device__ __forceinline__ float row_sum(int width, F f)
{
    float sum = 0;
    for (int i = threadIdx.x % 32 * V; i < width; i += 32 * V)
        sum += f(i);
    return warp_sum(sum);
}

template <int V>
__global__ void norm_forward_kernel(norm_shape p, vec y, vec x, vec gain, vec bias, float *stats)
{
    const int row = blockIdx.x * ROWS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= p.rows)
        return;
    const size_t at = (size_t)row * p.width;
    float mean = 0;
    if (p.center)
        mean = row_sum<V>(p.width,
                          [=](int i) {
                              const few<V> v = load_few<V>(x, at + i);
                              float sum = 0;
                              for (int e = 0; e < V; e++)
                                  sum += v.at[e];
                              return sum;
                          }) /
               p.width;
    const float square = row_sum<V>(p.width, [=](int i) {
        const few<V> v = load_few<V>(x, at + i);
        float sum = 0;
        for (int e = 0; e < V; e++)
            sum += (v.at[e] - mean) * (v.at[e] - mean);
        return sum;
    });
    const float rstd = 1 / sqrtf(square / p.width + p.eps);
    if (lane == 0) {
        stats[2 * (size_t)row] = mean;
        stats[2 * (size_t)row + 1] = rstd;
    }
    for (int i = lane * V; i < p.width; i += 32 * V) {
        few<V> v = load_few<V>(x, at + i);
        const few<V> g = load_few<V>(gain, i), b = load_or_zero<V>(bias, i);
        for (int e = 0; e < V; e++)
            v.at[e] = (v.at[e] - mean) * rstd * g.at[e] + b.at[e];
        store_few<V>(y, at + i, v);
    }
}

template <int V>
__global__ void norm_backward_kernel(norm_shape p, vec dx, vec dy, vec x, vec gain,
                                     const float *stats, int add)
{
    const int row = blockIdx.x * ROWS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= p.rows)
        return;
    const size_t at = (size_t)row * p.width;
    const float mean = stats[2 * (size_t)row], rstd = stats[2 * (size_t)row + 1];
    float d = 0, d_hat = 0;
    for (int i = lane * V; i < p.width; i += 32 * V) {
        const few<V> c = load_few<V>(dy, at + i), v = load_few<V>(x, at + i),
                     g = load_few<V>(gain, i);
        for (int e = 0; e < V; e++) {
            d += c.at[e] * g.at[e];
            d_hat += c.at[e] * g.at[e] * (v.at[e] - mean) * rstd;
        }
    }
    d = p.center ? warp_sum(d) / p.width : 0;
    d_hat = warp_sum(d_hat) / p.width;
    for (int i = lane * V; i < p.width; i += 32 * V) {
        few<V> c = load_few<V>(dy, at + i);
        const few<V> v = load_few<V>(x, at + i), g = load_few<V>(gain, i);
        const few<V> before = add ? load_few<V>(dx, at + i) : few<V>{};
        for (int e = 0; e < V; e++)
            c.at[e] = rstd * (c.at[e] * g.at[e] - d - (v.at[e] - mean) * rstd * d_hat) +
                      (add ? before.at[e] : 0);
        store_few<V>(dx, at + i, c);
    }
}

/* The kernels below share a row between `warps` warps, with K eights a lane. */
enum { EIGHTS = 32 * 8 };

struct row_span {
    int warps, row, at; /* warps of a row; row in the block; first element of this lane */
};

__device__ __forceinline__ row_span span_of(int warps)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    return row_span{warps, warp / warps, (warp % warps * 32 + lane) * 8};
}

/* Returns the sum over a row, in every thread of the row; all threads of the block call it. */
__device__ __forceinline__ float row_total(row_span s, float x, float *room)
{
    x = warp_sum(x);
    if (s.warps == 1)
        return x;
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        room[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
    for (int i = 0; i < s.warps; i++)
        x += room[s.row * s.warps + i];
    return x;
}

template <int K>
__global__ void __launch_bounds__(THREADS)
    rows_forward_kernel(norm_shape p, int warps, vec y, vec x, vec gain, vec bias, float *stats)
{
    __shared__ float room[ROWS];
    const row_span s = span_of(warps);
    const int row = blockIdx.x * (ROWS / warps) + s.row, step = warps * EIGHTS;
    const int width = row < p.rows ? p.width : 0; /* 0 for rows after the last */
    const size_t at = (size_t)row * p.width;
    few<8> v[K];
    float sum = 0, square = 0;
#pragma unroll
    for (int k = 0; k < K; k++) {
        const int i = k * step + s.at;
        v[k] = i < width ? load_few<8>(x, at + i) : few<8>{};
        for (int e = 0; e < 8; e++)
            sum += v[k].at[e];
    }
    const float mean = p.center ? row_total(s, sum, room) / p.width : 0;
#pragma unroll
    for (int k = 0; k < K; k++)
        for (int e = 0; e < 8; e++) {
            const float d = v[k].at[e] - mean;
            square += k * step + s.at < width ? d * d : 0;
        }
    const float rstd = 1 / sqrtf(row_total(s, square, room) / p.width + p.eps);
    if (s.at == 0 && width) {
        stats[2 * (size_t)row] = mean;
        stats[2 * (size_t)row + 1] = rstd;
    }
#pragma unroll
    for (int k = 0; k < K; k++) {
        const int i = k * step + s.at;
        if (i >= width)
            continue;
        const few<8> g = load_few<8>(gain, i), b = load_or_zero<8>(bias, i);
        for (int e = 0; e < 8; e++)
            v[k].at[e] = (v[k].at[e] - mean) * rstd * g.at[e] + b.at[e];
        store_few<8>(y, at + i, v[k]);
    }
}

/* Writes the sums of a block over its rows to `parts`, from the sums of threads with some of a
 * row's columns; `room` is shared, K eights a thread. */
template <int K>
__device__ void leave_sums(int width, row_span s, const few<8> (&sums)[2][K], float *room,
                           double *parts)
{
    const int step = s.warps * EIGHTS;
    if (!parts)
        return;
#pragma unroll
    for (int which = 0; which < 2; which++) {
        __syncthreads();
#pragma unroll
        for (int k = 0; k < K; k++)
            for (int e = 0; e < 8; e++)
                room[s.row * K * step + k * step + s.at + e] = sums[which][k].at[e];
        __syncthreads();
        for (int i = threadIdx.x; i < width; i += THREADS) {
            float total = 0;
            for (int r = 0; r < ROWS / s.warps; r++)
                total += room[r * K * step + i];
            parts[((size_t)blockIdx.x * 2 + which) * width + i] = total;
        }
    }
}

/* A block has NORM_ROWS rows and writes its sums for dgain and dbias to `parts` (optional), (block,
 * sum, column). x is read again from the cache. */
template <int K>
__global__ void __launch_bounds__(THREADS, 2)
    rows_backward_kernel(norm_shape p, int warps, vec dx, vec dy, vec x, vec gain,
                         const float *stats, int add, double *parts)
{
    __shared__ float room[2][ROWS], joined[ROWS * K * EIGHTS];
    const row_span s = span_of(warps);
    const int step = warps * EIGHTS, begin = blockIdx.x * NORM_ROWS;
    const int end = begin + NORM_ROWS < p.rows ? begin + NORM_ROWS : p.rows;
    few<8> sums[2][K] = {};
    for (int first = begin; first < end; first += ROWS / warps) {
        const int row = first + s.row, width = row < end ? p.width : 0;
        const size_t at = (size_t)row * p.width;
        const float mean = width ? stats[2 * (size_t)row] : 0;
        const float rstd = width ? stats[2 * (size_t)row + 1] : 0;
        few<8> c[K]; /* dy times gain */
        float d = 0, d_hat = 0;
#pragma unroll
        for (int k = 0; k < K; k++) {
            const int i = k * step + s.at;
            if (i >= width)
                continue;
            c[k] = load_few<8>(dy, at + i);
            const few<8> v = load_few<8>(x, at + i), g = load_few<8>(gain, i);
            for (int e = 0; e < 8; e++) {
                const float hat = (v.at[e] - mean) * rstd;
                sums[0][k].at[e] += c[k].at[e] * hat;
                sums[1][k].at[e] += c[k].at[e];
                c[k].at[e] *= g.at[e];
                d += c[k].at[e];
                d_hat += c[k].at[e] * hat;
            }
        }
        d = p.center ? row_total(s, d, room[0]) / p.width : 0;
        d_hat = row_total(s, d_hat, room[1]) / p.width;
#pragma unroll
        for (int k = 0; k < K; k++) {
            const int i = k * step + s.at;
            if (i >= width)
                continue;
            const few<8> before = add ? load_few<8>(dx, at + i) : few<8>{},
                         v = load_few<8>(x, at + i);
            for (int e = 0; e < 8; e++)
                c[k].at[e] = rstd * (c[k].at[e] - d - (v.at[e] - mean) * rstd * d_hat) +
                             before.at[e];
            store_few<8>(dx, at + i, c[k]);
        }
    }
    leave_sums<K>(p.width, s, sums, joined, parts);
}

/* The backward pass for bf16 alone, a warp a row: while a row is computed the next row is copied to
 * shared memory, where each lane reads only data that the lane copied. */
enum { ASHORE = 3 * 2 }; /* rows of dy, x and dx: of this row and the next */

template <int K>
__global__ void __launch_bounds__(THREADS, 2)
    bf16_backward_kernel(norm_shape p, bf16 *dx, const bf16 *dy, const bf16 *x, const bf16 *gain,
                         const float *stats, int add, double *parts)
{
    extern __shared__ uint4 staged[]; /* (warps, ASHORE, K, 32) */
    const row_span s = span_of(1);
    const int begin = blockIdx.x * NORM_ROWS, lane = threadIdx.x % 32;
    const int end = begin + NORM_ROWS < p.rows ? begin + NORM_ROWS : p.rows;
    uint4 *own = staged + s.row * ASHORE * K * 32 + lane;
    const auto send_for = [&](int row, int turn) {
        for (int k = 0; k < K && row < end; k++) {
            const size_t at = (size_t)row * p.width + k * EIGHTS + s.at;
            uint4 *to = own + (turn * 3 * K + k) * 32;
            if (k * EIGHTS + s.at >= p.width)
                continue;
            __pipeline_memcpy_async(to, dy + at, 16);
            __pipeline_memcpy_async(to + K * 32, x + at, 16);
            if (add)
                __pipeline_memcpy_async(to + 2 * K * 32, dx + at, 16);
        }
        __pipeline_commit();
    };
    few<8> sums[2][K] = {};
    int turn = 0;
    send_for(begin + s.row, 0);
    for (int row = begin + s.row; row < end; row += ROWS, turn ^= 1) {
        send_for(row + ROWS, turn ^ 1);
        const float mean = stats[2 * (size_t)row], rstd = stats[2 * (size_t)row + 1];
        __pipeline_wait_prior(1);
        const vec here = {own + turn * 3 * K * 32, 1};
        float d = 0, d_hat = 0;
#pragma unroll
        for (int k = 0; k < K; k++) {
            if (k * EIGHTS + s.at >= p.width)
                continue;
            const few<8> c = load_few<8>(here, k * EIGHTS), v = load_few<8>(here, (K + k) * EIGHTS);
            const few<8> g = load_few<8>(vec{(void *)gain, 1}, k * EIGHTS + s.at);
            for (int e = 0; e < 8; e++) {
                const float hat = (v.at[e] - mean) * rstd;
                sums[0][k].at[e] += c.at[e] * hat;
                sums[1][k].at[e] += c.at[e];
                d += c.at[e] * g.at[e];
                d_hat += c.at[e] * g.at[e] * hat;
            }
        }
        d = p.center ? warp_sum(d) / p.width : 0;
        d_hat = warp_sum(d_hat) / p.width;
#pragma unroll
        for (int k = 0; k < K; k++) {
            if (k * EIGHTS + s.at >= p.width)
                continue;
            few<8> c = load_few<8>(here, k * EIGHTS);
            const few<8> v = load_few<8>(here, (K + k) * EIGHTS);
            const few<8> g = load_few<8>(vec{(void *)gain, 1}, k * EIGHTS + s.at);
            const few<8> before = add ? load_few<8>(here, (2 * K + k) * EIGHTS) : few<8>{};
            for (int e = 0; e < 8; e++)
                c.at[e] = rstd * (c.at[e] * g.at[e] - d - (v.at[e] - mean) * rstd * d_hat) +
                          before.at[e];
            store_few<8>(vec{dx, 1}, (size_t)row * p.width + k * EIGHTS + s.at, c);
        }
    }
    __pipeline_wait_prior(0);
    leave_sums<K>(p.width, s, sums, (float *)staged, parts);
}

template <int K>
int bf16_backward(stream_t s, norm_shape p, vec dx, vec dy, vec x, vec gain, const float *stats,
                  int add, double *parts)
{
    const size_t room = ROWS * ASHORE * K * 32 * sizeof(uint4);
    const int st = ask_room(bf16_backward_kernel<K>, room);
    if (st)
        return st;
    bf16_backward_kernel<K><<<blocks_of(p.rows, NORM_ROWS), THREADS, room, s>>>(
        p, (bf16 *)dx.data, (const bf16 *)dy.data, (const bf16 *)x.data, (const bf16 *)gain.data,
        stats, add, parts);
    return cudaGetLastError();
}

struct norm_eight {
    few<8> d, v;
};

struct norm_column {
    static const int sums = 2, held = 1, unroll = 4;
    typedef norm_eight eight;
    vec dy, x;
    const float *stats;
    int width;
    __device__ void add(size_t r, int c, double *sum) const
    {
        const float d = get_element(dy, r * width + c);
        sum[0] += d * ((get_element(x, r * width + c) - stats[2 * r]) * stats[2 * r + 1]);
        sum[1] += d;
    }
    __device__ eight load_eight(size_t r, int c) const
    {
        return {load_few<8>(dy, r * width + c), load_few<8>(x, r * width + c)};
    }
    __device__ void add_eight(size_t r, int, const eight &in, few<8> *sum) const
    {
        const float mean = stats[2 * r], rstd = stats[2 * r + 1];
        for (int e = 0; e < 8; e++) {
            sum[0].at[e] += in.d.at[e] * ((in.v.at[e] - mean) * rstd);
            sum[1].at[e] += in.d.at[e];
        }
    }
};

/* Returns the number of warps that share a row in the kernels above, so that each lane has at most
 * `most` eights; 0: the kernels do not support such rows. */
int warps_of(int width, int lanes, int most)
{
    int warps = 1;
    while (warps < ROWS && width > warps * EIGHTS * most)
        warps *= 2;
    return width % 8 || lanes < 8 || width > warps * EIGHTS * most ? 0 : warps;
}

/* Returns the eights of a row in each lane. */
int eights_of(int width, int warps)
{
    return (width + warps * EIGHTS - 1) / (warps * EIGHTS);
}

int any_backward(stream_t s, norm_shape p, vec dx, const vec *to, vec dy, vec x, vec gain,
                 const float *stats, int add, double *parts)
{
    int st = 0;
    if (parts) /* before dx, which may be dy */
        st = add_columns(s, norm_column{dy, x, stats, p.width}, to, p.rows, p.width,
                         p.width % 8 == 0 && lanes_of(dy, x) == 8, parts);
    const unsigned blocks = blocks_of(p.rows, ROWS);
    if (p.width % 4 == 0 && by_four(dx) && by_four(dy) && by_four(x) && by_four(gain))
        norm_backward_kernel<4><<<blocks, THREADS, 0, s>>>(p, dx, dy, x, gain, stats, add);
    else
        norm_backward_kernel<1><<<blocks, THREADS, 0, s>>>(p, dx, dy, x, gain, stats, add);
    return st ? st : cudaGetLastError();
}

} // namespace

int launch_norm_forward(stream_t s, norm_shape p, vec y, vec x, vec gain, vec bias, float *stats)
{
    const bool four =
        p.width % 4 == 0 && by_four(y) && by_four(x) && by_four(gain) && by_four(bias);
    const int warps = warps_of(p.width, lanes_of(y, x, gain, bias), 4);
    const unsigned blocks = blocks_of(p.rows, warps ? ROWS / warps : ROWS);
    switch (warps ? eights_of(p.width, warps) : 0) {
    case 1:
        rows_forward_kernel<1><<<blocks, THREADS, 0, s>>>(p, warps, y, x, gain, bias, stats);
        break;
    case 2:
        rows_forward_kernel<2><<<blocks, THREADS, 0, s>>>(p, warps, y, x, gain, bias, stats);
        break;
    case 3:
        rows_forward_kernel<3><<<blocks, THREADS, 0, s>>>(p, warps, y, x, gain, bias, stats);
        break;
    case 4:
        rows_forward_kernel<4><<<blocks, THREADS, 0, s>>>(p, warps, y, x, gain, bias, stats);
        break;
    default:
        if (four)
            norm_forward_kernel<4><<<blocks, THREADS, 0, s>>>(p, y, x, gain, bias, stats);
        else
            norm_forward_kernel<1><<<blocks, THREADS, 0, s>>>(p, y, x, gain, bias, stats);
    }
    return cudaGetLastError();
}

size_t norm_parts(int rows, int width)
{
    return (size_t)blocks_of(rows, NORM_ROWS) * width * 2;
}

int launch_norm_backward(stream_t s, norm_shape p, vec dx, vec dgain, vec dbias, vec dy, vec x,
                         vec gain, const float *stats, int add, double *parts)
{
    const vec to[2] = {dgain, dbias};
    const bool sums = dgain.data || dbias.data;
    const bool half = dx.half && dy.half && x.half && gain.half;
    const int lanes = lanes_of(dx, dy, x, gain), warps = warps_of(p.width, lanes, 2);
    const int alone = half && warps_of(p.width, lanes, 4) == 1 ? eights_of(p.width, 1) : 0;
    const unsigned blocks = blocks_of(p.rows, NORM_ROWS);
    double *room = sums ? parts : NULL;
    int st = 0;
    if (!warps)
        return any_backward(s, p, dx, to, dy, x, gain, stats, add, room);
    if (alone == 4)
        st = bf16_backward<4>(s, p, dx, dy, x, gain, stats, add, room);
    else if (alone == 3)
        st = bf16_backward<3>(s, p, dx, dy, x, gain, stats, add, room);
    else if (eights_of(p.width, warps) == 2)
        rows_backward_kernel<2>
            <<<blocks, THREADS, 0, s>>>(p, warps, dx, dy, x, gain, stats, add, room);
    else
        rows_backward_kernel<1>
            <<<blocks, THREADS, 0, s>>>(p, warps, dx, dy, x, gain, stats, add, room);
    st = st ? st : (int)cudaGetLastError();
    const int added = sums ? add_totals(s, to, 2, (int)blocks, p.width, parts) : 0;
    return st ? st : added;
}
