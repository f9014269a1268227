/* Layernorm and rmsnorm: a warp a row, whose elements it keeps in registers or, of long rows, reads
 * again from its cache. */
#include "tensor/cuda/columns.cuh"

namespace {

enum { ROWS = THREADS / 32 }; /* that a block works on */

/* Sums of f(element) over a row, in every lane. */
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
                              const few<V> v = load<V>(x, at + i);
                              float sum = 0;
                              for (int e = 0; e < V; e++)
                                  sum += v.at[e];
                              return sum;
                          }) /
               p.width;
    const float square = row_sum<V>(p.width, [=](int i) {
        const few<V> v = load<V>(x, at + i);
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
        few<V> v = load<V>(x, at + i);
        const few<V> g = load<V>(gain, i), b = load_or_zero<V>(bias, i);
        for (int e = 0; e < V; e++)
            v.at[e] = (v.at[e] - mean) * rstd * g.at[e] + b.at[e];
        store<V>(y, at + i, v);
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
        const few<V> c = load<V>(dy, at + i), v = load<V>(x, at + i), g = load<V>(gain, i);
        for (int e = 0; e < V; e++) {
            d += c.at[e] * g.at[e];
            d_hat += c.at[e] * g.at[e] * (v.at[e] - mean) * rstd;
        }
    }
    d = p.center ? warp_sum(d) / p.width : 0;
    d_hat = warp_sum(d_hat) / p.width;
    for (int i = lane * V; i < p.width; i += 32 * V) {
        few<V> c = load<V>(dy, at + i);
        const few<V> v = load<V>(x, at + i), g = load<V>(gain, i);
        const few<V> before = add ? load<V>(dx, at + i) : few<V>{};
        for (int e = 0; e < V; e++)
            c.at[e] = rstd * (c.at[e] * g.at[e] - d - (v.at[e] - mean) * rstd * d_hat) +
                      (add ? before.at[e] : 0);
        store<V>(dx, at + i, c);
    }
}

/* Of rows that begin on 16 bytes, up to K eights a lane. */
enum { PIECE = 32 * 8, PIECES = 4 };

template <int K>
__global__ void __launch_bounds__(THREADS)
    short_forward_kernel(norm_shape p, vec y, vec x, vec gain, vec bias, float *stats)
{
    const int row = blockIdx.x * ROWS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= p.rows)
        return;
    const size_t at = (size_t)row * p.width;
    few<8> v[K];
    float sum = 0, square = 0;
#pragma unroll
    for (int k = 0; k < K; k++) {
        const int i = k * PIECE + lane * 8;
        v[k] = i < p.width ? load<8>(x, at + i) : few<8>{};
        for (int e = 0; e < 8; e++)
            sum += v[k].at[e];
    }
    const float mean = p.center ? warp_sum(sum) / p.width : 0;
#pragma unroll
    for (int k = 0; k < K; k++)
        for (int e = 0; e < 8; e++) {
            const float d = v[k].at[e] - mean;
            square += k * PIECE + lane * 8 < p.width ? d * d : 0;
        }
    const float rstd = 1 / sqrtf(warp_sum(square) / p.width + p.eps);
    if (lane == 0) {
        stats[2 * (size_t)row] = mean;
        stats[2 * (size_t)row + 1] = rstd;
    }
#pragma unroll
    for (int k = 0; k < K; k++) {
        const int i = k * PIECE + lane * 8;
        if (i >= p.width)
            continue;
        const few<8> g = load<8>(gain, i), b = load_or_zero<8>(bias, i);
        for (int e = 0; e < 8; e++)
            v[k].at[e] = (v[k].at[e] - mean) * rstd * g.at[e] + b.at[e];
        store<8>(y, at + i, v[k]);
    }
}

template <int K>
__global__ void __launch_bounds__(THREADS)
    short_backward_kernel(norm_shape p, vec dx, vec dy, vec x, vec gain, const float *stats,
                          int add)
{
    const int row = blockIdx.x * ROWS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= p.rows)
        return;
    const size_t at = (size_t)row * p.width;
    const float mean = stats[2 * (size_t)row], rstd = stats[2 * (size_t)row + 1];
    few<8> c[K], hat[K]; /* dy times gain, x normalized */
    float d = 0, d_hat = 0;
#pragma unroll
    for (int k = 0; k < K; k++) {
        const int i = k * PIECE + lane * 8;
        if (i >= p.width)
            continue;
        c[k] = load<8>(dy, at + i);
        hat[k] = load<8>(x, at + i);
        const few<8> g = load<8>(gain, i);
        for (int e = 0; e < 8; e++) {
            c[k].at[e] *= g.at[e];
            hat[k].at[e] = (hat[k].at[e] - mean) * rstd;
            d += c[k].at[e];
            d_hat += c[k].at[e] * hat[k].at[e];
        }
    }
    d = p.center ? warp_sum(d) / p.width : 0;
    d_hat = warp_sum(d_hat) / p.width;
#pragma unroll
    for (int k = 0; k < K; k++) {
        const int i = k * PIECE + lane * 8;
        if (i >= p.width)
            continue;
        const few<8> before = add ? load<8>(dx, at + i) : few<8>{};
        for (int e = 0; e < 8; e++)
            c[k].at[e] = rstd * (c[k].at[e] - d - hat[k].at[e] * d_hat) + before.at[e];
        store<8>(dx, at + i, c[k]);
    }
}

struct norm_column {
    static const int sums = 2;
    vec dy, x;
    const float *stats;
    int width;
    __device__ void add(size_t r, int c, double *sum) const
    {
        const float d = get(dy, r * width + c);
        sum[0] += d * ((get(x, r * width + c) - stats[2 * r]) * stats[2 * r + 1]);
        sum[1] += d;
    }
    __device__ void add_eight(size_t r, int c, few<8> *sum) const
    {
        const few<8> d = load<8>(dy, r * width + c), v = load<8>(x, r * width + c);
        const float mean = stats[2 * r], rstd = stats[2 * r + 1];
        for (int e = 0; e < 8; e++) {
            sum[0].at[e] += d.at[e] * ((v.at[e] - mean) * rstd);
            sum[1].at[e] += d.at[e];
        }
    }
};

/* Pieces of a row for the kernels above; 0: not for them. */
int pieces_of(int width, int lanes)
{
    return width % 8 || lanes < 8 || width > PIECES * PIECE ? 0 : (width + PIECE - 1) / PIECE;
}

} // namespace

int launch_norm_forward(stream_t s, norm_shape p, vec y, vec x, vec gain, vec bias, float *stats)
{
    const unsigned blocks = blocks_of(p.rows, ROWS);
    const bool four = p.width % 4 == 0 && by_four(y) && by_four(x) && by_four(gain) && by_four(bias);
    const int pieces = pieces_of(p.width, lanes_of(y, x, gain, bias));
    if (pieces == 1)
        short_forward_kernel<1><<<blocks, THREADS, 0, s>>>(p, y, x, gain, bias, stats);
    else if (pieces == 2)
        short_forward_kernel<2><<<blocks, THREADS, 0, s>>>(p, y, x, gain, bias, stats);
    else if (pieces == 3)
        short_forward_kernel<3><<<blocks, THREADS, 0, s>>>(p, y, x, gain, bias, stats);
    else if (pieces == 4)
        short_forward_kernel<4><<<blocks, THREADS, 0, s>>>(p, y, x, gain, bias, stats);
    else if (four)
        norm_forward_kernel<4><<<blocks, THREADS, 0, s>>>(p, y, x, gain, bias, stats);
    else
        norm_forward_kernel<1><<<blocks, THREADS, 0, s>>>(p, y, x, gain, bias, stats);
    return cudaGetLastError();
}

int launch_norm_backward(stream_t s, norm_shape p, vec dx, vec dgain, vec dbias, vec dy, vec x,
                         vec gain, const float *stats, int add, double *parts)
{
    int st = 0;
    if (dgain.data || dbias.data) { /* before dx, which may be dy */
        const vec to[2] = {dgain, dbias};
        st = add_columns(s, norm_column{dy, x, stats, p.width}, to, p.rows, p.width,
                         p.width % 8 == 0 && lanes_of(dy, x) == 8, parts);
    }
    const unsigned blocks = blocks_of(p.rows, ROWS);
    const bool four =
        p.width % 4 == 0 && by_four(dx) && by_four(dy) && by_four(x) && by_four(gain);
    const int pieces = pieces_of(p.width, lanes_of(dx, dy, x, gain));
    if (pieces == 1)
        short_backward_kernel<1><<<blocks, THREADS, 0, s>>>(p, dx, dy, x, gain, stats, add);
    else if (pieces == 2)
        short_backward_kernel<2><<<blocks, THREADS, 0, s>>>(p, dx, dy, x, gain, stats, add);
    else if (pieces == 3)
        short_backward_kernel<3><<<blocks, THREADS, 0, s>>>(p, dx, dy, x, gain, stats, add);
    else if (pieces == 4)
        short_backward_kernel<4><<<blocks, THREADS, 0, s>>>(p, dx, dy, x, gain, stats, add);
    else if (four)
        norm_backward_kernel<4><<<blocks, THREADS, 0, s>>>(p, dx, dy, x, gain, stats, add);
    else
        norm_backward_kernel<1><<<blocks, THREADS, 0, s>>>(p, dx, dy, x, gain, stats, add);
    return st ? st : cudaGetLastError();
}
