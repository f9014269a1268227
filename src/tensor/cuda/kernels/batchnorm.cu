/* Batch normalization: sums over columns, the statistics of each column, and a pass over the
 * elements. */
#include "tensor/cuda/kernels/columns.cuh"

namespace {

struct sum_column {
    static const int sums = 1;
    vec x;
    int width;
    __device__ void add(size_t r, int c, double *sum) const
    {
        sum[0] += get_element(x, r * width + c);
    }
};

struct square_column { /* about the mean, so that columns far from zero keep their digits */
    static const int sums = 1;
    vec x;
    int width;
    const double *mean;
    __device__ void add(size_t r, int c, double *sum) const
    {
        const double d = get_element(x, r * width + c) - mean[c];
        sum[0] += d * d;
    }
};

__global__ void mean_kernel(double *mean, const double *parts, int n, int rows, int width)
{
    const int c = blockIdx.x * THREADS + threadIdx.x;
    if (c < width)
        mean[c] = column_total(parts, n, 1, 0, width, c) / rows;
}

struct batchnorm_state {
    float *running_mean, *running_variance, *stats;
};

/* Computes the statistics of these rows, or takes the running statistics. */
__global__ void stats_kernel(batchnorm_shape p, batchnorm_state to, const double *mean,
                             const double *parts, int n)
{
    const int c = blockIdx.x * THREADS + threadIdx.x;
    if (c >= p.width)
        return;
    double m, variance;
    if (p.training) {
        m = mean[c];
        variance = column_total(parts, n, 1, 0, p.width, c) / p.rows;
    } else {
        m = to.running_mean[c];
        variance = to.running_variance[c];
    }
    if (p.training && to.running_mean) {
        const double unbiased = p.rows > 1 ? variance * p.rows / (p.rows - 1.0) : variance;
        const double share = p.momentum;
        to.running_mean[c] = (float)((1 - share) * to.running_mean[c] + share * m);
        to.running_variance[c] = (float)((1 - share) * to.running_variance[c] + share * unbiased);
    }
    to.stats[c] = (float)m;
    to.stats[p.width + c] = (float)(1 / sqrt(variance + p.eps));
}

struct normalize_each {
    vec y, x, gain, bias, residual;
    const float *stats;
    int width, relu;
    template <int V> __device__ void run(size_t i) const
    {
        const int c = i % width;
        const float value =
            (get_element(x, i) - stats[c]) * stats[width + c] * get_element(gain, c) +
            get_element(bias, c) + element_or_zero(residual, i);
        put_element(y, i, relu && value < 0 ? 0 : value);
    }
};

/* Returns dy, or 0 where relu cut y. */
__device__ __forceinline__ float counted_gradient(vec dy, vec y, int relu, size_t i)
{
    return relu && get_element(y, i) <= 0 ? 0 : get_element(dy, i);
}

struct grad_column {
    static const int sums = 2;
    vec dy, x, y;
    const float *stats;
    int width, relu;
    __device__ void add(size_t r, int c, double *sum) const
    {
        const size_t i = r * width + c;
        const float d = counted_gradient(dy, y, relu, i);
        sum[0] += d * ((get_element(x, i) - stats[c]) * stats[width + c]);
        sum[1] += d;
    }
};

/* totals (2, width): of d hat, of d */
__global__ void grad_totals_kernel(double *totals, vec dgain, vec dbias, const double *parts, int n,
                                   int width)
{
    const int c = blockIdx.x * THREADS + threadIdx.x;
    if (c >= width)
        return;
    const double d_hat = column_total(parts, n, 2, 0, width, c);
    const double d = column_total(parts, n, 2, 1, width, c);
    totals[c] = d_hat;
    totals[width + c] = d;
    if (dgain.data)
        put_element(dgain, c, (float)(get_element(dgain, c) + d_hat));
    if (dbias.data)
        put_element(dbias, c, (float)(get_element(dbias, c) + d));
}

struct denormalize_each {
    batchnorm_shape p;
    vec dx, dresidual, dy, x, y, gain;
    const float *stats;
    const double *totals;
    template <int V> __device__ void run(size_t i) const
    {
        const int c = i % p.width;
        const float d = counted_gradient(dy, y, p.relu, i), rstd = stats[p.width + c];
        const float hat = (get_element(x, i) - stats[c]) * rstd;
        const float d_hat = (float)(totals[c] / p.rows),
                    mean = (float)(totals[p.width + c] / p.rows);
        const float shift = p.training ? mean + hat * d_hat : 0;
        const float to = rstd * get_element(gain, c) * (d - shift);
        if (dresidual.data) /* dresidual or dx may be dy: dy is read by now */
            put_element(dresidual, i, d);
        put_element(dx, i, to);
    }
};

} // namespace

int launch_batchnorm_forward(stream_t s, batchnorm_shape p, vec y, vec x, vec gain, vec bias,
                             vec residual, float *running_mean, float *running_variance,
                             float *stats, double *parts)
{
    const int n = (int)blocks_of(p.rows, COLUMN_ROWS);
    const unsigned columns = blocks_of(p.width, THREADS);
    double *mean = parts + column_parts(p.rows, p.width, 1);
    int st = 0;
    if (p.training && !p.given) {
        st = sum_columns(s, sum_column{x, p.width}, p.rows, p.width, parts);
        mean_kernel<<<columns, THREADS, 0, s>>>(mean, parts, n, p.rows, p.width);
        st = st ? st : sum_columns(s, square_column{x, p.width, mean}, p.rows, p.width, parts);
    }
    if (!p.given)
        stats_kernel<<<columns, THREADS, 0, s>>>(
            p, batchnorm_state{running_mean, running_variance, stats}, mean, parts, n);
    st = st ? st : cudaGetLastError();
    return st ? st
              : launch_each_one(s,
                                normalize_each{y, x, gain, bias, residual, stats, p.width, p.relu},
                                (size_t)p.rows * p.width);
}

int launch_batchnorm_backward(stream_t s, batchnorm_shape p, vec dx, vec dgain, vec dbias,
                              vec dresidual, vec dy, vec x, vec y, vec gain, const float *stats,
                              double *parts)
{
    double *totals = parts + column_parts(p.rows, p.width, 2);
    const grad_column f = {dy, x, y, stats, p.width, p.relu};
    int st = sum_columns(s, f, p.rows, p.width, parts);
    grad_totals_kernel<<<blocks_of(p.width, THREADS), THREADS, 0, s>>>(
        totals, dgain, dbias, parts, (int)blocks_of(p.rows, COLUMN_ROWS), p.width);
    st = st ? st : cudaGetLastError();
    return st ? st
              : launch_each_one(s,
                                denormalize_each{p, dx, dresidual, dy, x, y, gain, stats, totals},
                                (size_t)p.rows * p.width);
}
