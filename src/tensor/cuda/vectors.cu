/* Flat vectors: what each element is computed from lies at the same place. */
#include "tensor/cuda/element.cuh"

namespace {

struct fill_each {
    vec y;
    float value;
    template <int V> __device__ void run(size_t i) const
    {
        few<V> out;
        for (int e = 0; e < V; e++)
            out.at[e] = value;
        store<V>(y, i, out);
    }
};

struct copy_each {
    vec y, x;
    template <int V> __device__ void run(size_t i) const { store<V>(y, i, load<V>(x, i)); }
};

struct axpby_each {
    vec y, x;
    float b, a;
    template <int V> __device__ void run(size_t i) const
    {
        few<V> to = load<V>(y, i), from = load<V>(x, i);
        for (int e = 0; e < V; e++)
            to.at[e] = fmaf(a, from.at[e], b * to.at[e]);
        store<V>(y, i, to);
    }
};

struct scale_each {
    vec y;
    float a;
    template <int V> __device__ void run(size_t i) const
    {
        few<V> to = load<V>(y, i);
        for (int e = 0; e < V; e++)
            to.at[e] *= a;
        store<V>(y, i, to);
    }
};

/* 1 / (1 + exp(-x)), and what it lacks of 1: both to the last places, however small. */
__device__ __forceinline__ float sigmoid(float x, float *rest)
{
    const float e = expf(-fabsf(x)), large = 1 / (1 + e), small = e * large;
    *rest = x < 0 ? large : small;
    return x < 0 ? small : large;
}

/* gelu(x) = x * weight(x); *slope is the derivative of the weight, which is 0 far out, where its
 * formula overflows. (1 + tanh u) / 2 is the sigmoid of 2 u, which cancels nothing below 0. */
__device__ __forceinline__ float gelu_weight(int exact, float x, float *slope)
{
    if (exact) {
        *slope = expf(-0.5f * x * x) * 0.3989422804f;
        return 0.5f * erfcf(x * -0.7071067812f);
    }
    const float root = 2 * 0.7978845608f, cubic = 0.044715f;
    float rest;
    const float weight = sigmoid(root * (x + cubic * x * x * x), &rest);
    *slope = fabsf(x) > 20 ? 0 : weight * rest * root * (1 + 3 * cubic * x * x);
    return weight;
}

struct gelu_forward_each {
    vec y, x;
    int exact;
    template <int V> __device__ void run(size_t i) const
    {
        few<V> in = load<V>(x, i);
        float slope;
        for (int e = 0; e < V; e++)
            in.at[e] *= gelu_weight(exact, in.at[e], &slope);
        store<V>(y, i, in);
    }
};

struct gelu_backward_each {
    vec dx, dy, x;
    int exact;
    template <int V> __device__ void run(size_t i) const
    {
        const few<V> in = load<V>(x, i);
        few<V> d = load<V>(dy, i);
        for (int e = 0; e < V; e++) {
            float slope;
            const float weight = gelu_weight(exact, in.at[e], &slope);
            d.at[e] *= weight + (slope == 0 ? 0 : in.at[e] * slope);
        }
        store<V>(dx, i, d);
    }
};

struct swiglu_forward_each {
    vec y, gate, up;
    template <int V> __device__ void run(size_t i) const
    {
        few<V> g = load<V>(gate, i);
        const few<V> u = load<V>(up, i);
        float rest;
        for (int e = 0; e < V; e++)
            g.at[e] *= sigmoid(g.at[e], &rest) * u.at[e];
        store<V>(y, i, g);
    }
};

struct swiglu_backward_each {
    vec dgate, dup, dy, gate, up;
    template <int V> __device__ void run(size_t i) const
    {
        const few<V> d = load<V>(dy, i), g = load<V>(gate, i), u = load<V>(up, i);
        few<V> to_gate, to_up;
        for (int e = 0; e < V; e++) {
            float rest;
            const float s = sigmoid(g.at[e], &rest);
            to_gate.at[e] = d.at[e] * u.at[e] * s * (1 + g.at[e] * rest);
            to_up.at[e] = d.at[e] * g.at[e] * s;
        }
        store<V>(dgate, i, to_gate);
        store<V>(dup, i, to_up);
    }
};

struct relu_forward_each { /* no number stays none */
    vec y, x;
    template <int V> __device__ void run(size_t i) const
    {
        few<V> in = load<V>(x, i);
        for (int e = 0; e < V; e++)
            in.at[e] = in.at[e] < 0 ? 0 : in.at[e];
        store<V>(y, i, in);
    }
};

struct relu_backward_each {
    vec dx, dy, y;
    template <int V> __device__ void run(size_t i) const
    {
        const few<V> out = load<V>(y, i);
        few<V> d = load<V>(dy, i);
        for (int e = 0; e < V; e++)
            d.at[e] = out.at[e] <= 0 ? 0 : d.at[e];
        store<V>(dx, i, d);
    }
};

struct sign_each {
    vec y, x;
    template <int V> __device__ void run(size_t i) const
    {
        few<V> in = load<V>(x, i);
        for (int e = 0; e < V; e++)
            in.at[e] = isnan(in.at[e]) ? in.at[e] : (float)((in.at[e] > 0) - (in.at[e] < 0));
        store<V>(y, i, in);
    }
};

struct finish_each {
    vec y, product, bias, residual;
    int width;
    template <int V> __device__ void run(size_t i) const
    {
        few<V> sum = load<V>(product, i);
        const few<V> rest = load_or_zero<V>(residual, i);
        for (int e = 0; e < V; e++)
            sum.at[e] += get_or_zero(bias, (i + e) % width) + rest.at[e];
        store<V>(y, i, sum);
    }
};

struct rows_shape {
    int rows, width;
    size_t y_stride, x_stride, y_batch, x_batch;
};

/* A block a row, sequence by sequence. */
__global__ void copy_rows_kernel(vec y, vec x, rows_shape p)
{
    const size_t b = blockIdx.x / p.rows, r = blockIdx.x % p.rows;
    const size_t to = b * p.y_batch + r * p.y_stride, from = b * p.x_batch + r * p.x_stride;
    for (int i = threadIdx.x; i < p.width; i += blockDim.x)
        put(y, to + i, get(x, from + i));
}

} // namespace

int launch_fill(stream_t s, vec y, size_t n, float value)
{
    return each(s, fill_each{y, value}, n, lanes_of(y));
}

int launch_copy(stream_t s, vec y, vec x, size_t n)
{
    if (y.half == x.half)
        return cudaMemcpyAsync(y.data, x.data, n * (x.half ? 2 : 4), cudaMemcpyDeviceToDevice, s);
    return each(s, copy_each{y, x}, n, lanes_of(y, x));
}

int launch_copy_rows(stream_t s, vec y, vec x, int batch, int rows, int width, size_t y_stride,
                     size_t x_stride, size_t y_batch, size_t x_batch)
{
    if ((size_t)batch * rows == 0)
        return 0;
    const rows_shape p = {rows, width, y_stride, x_stride, y_batch, x_batch};
    copy_rows_kernel<<<(unsigned)batch * rows, width > 128 ? THREADS : 64, 0, s>>>(y, x, p);
    return cudaGetLastError();
}

int launch_axpby(stream_t s, vec y, float b, float a, vec x, size_t n)
{
    return each(s, axpby_each{y, x, b, a}, n, lanes_of(y, x));
}

int launch_scale(stream_t s, vec y, float a, size_t n)
{
    return each(s, scale_each{y, a}, n, lanes_of(y));
}

int launch_gelu_forward(stream_t s, int exact, vec y, vec x, size_t n)
{
    return each(s, gelu_forward_each{y, x, exact}, n, lanes_of(y, x));
}

int launch_gelu_backward(stream_t s, int exact, vec dx, vec dy, vec x, size_t n)
{
    return each(s, gelu_backward_each{dx, dy, x, exact}, n,
                lanes_of(dx, dy, x));
}

int launch_swiglu_forward(stream_t s, vec y, vec gate, vec up, size_t n)
{
    return each(s, swiglu_forward_each{y, gate, up}, n,
                lanes_of(y, gate, up));
}

int launch_swiglu_backward(stream_t s, vec dgate, vec dup, vec dy, vec gate, vec up, size_t n)
{
    const int lanes =
        lanes_of(dgate, dup, dy, gate, up);
    return each(s, swiglu_backward_each{dgate, dup, dy, gate, up}, n, lanes);
}

int launch_relu_forward(stream_t s, vec y, vec x, size_t n)
{
    return each(s, relu_forward_each{y, x}, n, lanes_of(y, x));
}

int launch_relu_backward(stream_t s, vec dx, vec dy, vec y, size_t n)
{
    return each(s, relu_backward_each{dx, dy, y}, n, lanes_of(dx, dy, y));
}

int launch_sign(stream_t s, vec y, vec x, size_t n)
{
    return each(s, sign_each{y, x}, n, lanes_of(y, x));
}

int launch_finish(stream_t s, vec y, const float *product, vec bias, vec residual, size_t rows,
                  int width)
{
    const vec sum = {(void *)product, 0};
    return each(s, finish_each{y, sum, bias, residual, width}, rows * width,
                lanes_of(y, sum, residual));
}
