/* GELU and SwiGLU. Results that are rounded to bf16 use the GPU's approximations (ROUGH), with
 * errors of a few last places of fp32. */
#include "tensor/cuda/kernels/columns.cuh"

namespace {

/* Returns 1 / (1 + exp(-x)), and 1 minus the result in `*rest`: both exact to the last places,
 * however small. */
template <bool ROUGH> __device__ __forceinline__ float sigmoid_with_rest(float x, float *rest)
{
    if (ROUGH) {
        const float weight = __fdividef(1, 1 + __expf(-x));
        *rest = 1 - weight;
        return weight;
    }
    const float e = expf(-fabsf(x)), large = 1 / (1 + e), small = e * large;
    *rest = x < 0 ? large : small;
    return x < 0 ? small : large;
}

/* gelu(x) = x * weight(x); *slope is the derivative of the weight, 0 for large |x|, where the
 * formula overflows. (1 + tanh u) / 2 is the sigmoid of 2 u, without cancellation below 0. */
enum { TANH, TANH_ROUGH, EXACT };

template <int KIND> __device__ __forceinline__ float gelu_weight_slope(float x, float *slope)
{
    if (KIND == EXACT) {
        *slope = expf(-0.5f * x * x) * 0.3989422804f;
        return 0.5f * erfcf(x * -0.7071067812f);
    }
    const float root = 2 * 0.7978845608f, cubic = 0.044715f;
    float rest;
    const float weight =
        sigmoid_with_rest<KIND == TANH_ROUGH>(root * (x + cubic * x * x * x), &rest);
    *slope = fabsf(x) > 20 ? 0 : weight * rest * root * (1 + 3 * cubic * x * x);
    return weight;
}

/* Returns gelu'(x). */
template <int KIND> __device__ __forceinline__ float gelu_slope(float x)
{
    float slope;
    const float weight = gelu_weight_slope<KIND>(x, &slope);
    return weight + (slope == 0 ? 0 : x * slope);
}

template <int KIND> struct gelu_forward_each {
    vec y, x;
    template <int V> __device__ void run(size_t i) const
    {
        few<V> in = load_few<V>(x, i);
        float slope;
        for (int e = 0; e < V; e++)
            in.at[e] *= gelu_weight_slope<KIND>(in.at[e], &slope);
        store_few<V>(y, i, in);
    }
};

template <int KIND> struct gelu_backward_each {
    vec dx, dy, x;
    template <int V> __device__ void run(size_t i) const { (void)gradient<V>(i); }
    template <int V> __device__ void turn(const few<V> &in, few<V> &d) const
    {
        for (int e = 0; e < V; e++)
            d.at[e] *= gelu_slope<KIND>(in.at[e]);
    }
    template <int V> __device__ few<V> gradient(size_t i) const
    {
        few<V> d = load_few<V>(dy, i);
        turn<V>(load_few<V>(x, i), d);
        store_few<V>(dx, i, d);
        return d;
    }
};

struct gelu_eight {
    uint4 in, d;
};

/* Computes gradients and their sums over rows; by eight for bf16 alone, which stays bf16 until it
 * is added. */
template <int KIND> struct gelu_bias_column {
    static const int sums = 1, held = 2, unroll = 1;
    typedef gelu_eight eight;
    gelu_backward_each<KIND> of;
    int width;
    __device__ void add(size_t r, int c, double *sum) const
    {
        sum[0] += of.template gradient<1>(r * width + c).at[0];
    }
    __device__ eight load_eight(size_t r, int c) const
    {
        return {raw_eight(of.x, r * width + c), raw_eight(of.dy, r * width + c)};
    }
    __device__ void add_eight(size_t r, int c, const eight &v, few<8> *sum) const
    {
        few<8> d = eight_of(v.d);
        of.template turn<8>(eight_of(v.in), d);
        store_few<8>(of.dx, r * width + c, d);
        for (int e = 0; e < 8; e++)
            sum[0].at[e] += d.at[e];
    }
};

template <bool ROUGH> struct swiglu_forward_each {
    vec y, gate, up;
    template <int V> __device__ void run(size_t i) const
    {
        few<V> g = load_few<V>(gate, i);
        const few<V> u = load_few<V>(up, i);
        float rest;
        for (int e = 0; e < V; e++)
            g.at[e] *= sigmoid_with_rest<ROUGH>(g.at[e], &rest) * u.at[e];
        store_few<V>(y, i, g);
    }
};

template <bool ROUGH> struct swiglu_backward_each {
    vec dgate, dup, dy, gate, up;
    template <int V> __device__ void run(size_t i) const
    {
        const few<V> d = load_few<V>(dy, i), g = load_few<V>(gate, i), u = load_few<V>(up, i);
        few<V> to_gate, to_up;
        for (int e = 0; e < V; e++) {
            float rest;
            const float s = sigmoid_with_rest<ROUGH>(g.at[e], &rest);
            to_gate.at[e] = d.at[e] * u.at[e] * s * (1 + g.at[e] * rest);
            to_up.at[e] = d.at[e] * g.at[e] * s;
        }
        store_few<V>(dgate, i, to_gate);
        store_few<V>(dup, i, to_up);
    }
};

} // namespace

int launch_gelu_forward(stream_t s, int exact, vec y, vec x, size_t n)
{
    const int lanes = lanes_of(y, x);
    return exact    ? launch_each(s, gelu_forward_each<EXACT>{y, x}, n, lanes)
           : y.half ? launch_each(s, gelu_forward_each<TANH_ROUGH>{y, x}, n, lanes)
                    : launch_each(s, gelu_forward_each<TANH>{y, x}, n, lanes);
}

int launch_gelu_backward(stream_t s, int exact, vec dx, vec dy, vec x, size_t n)
{
    const int lanes = lanes_of(dx, dy, x);
    return exact     ? launch_each(s, gelu_backward_each<EXACT>{dx, dy, x}, n, lanes)
           : dx.half ? launch_each(s, gelu_backward_each<TANH_ROUGH>{dx, dy, x}, n, lanes)
                     : launch_each(s, gelu_backward_each<TANH>{dx, dy, x}, n, lanes);
}

template <int KIND>
static int gelu_bias_backward(stream_t s, int rows, int width, vec dx, vec dbias, vec dy, vec x,
                              double *parts)
{
    const gelu_bias_column<KIND> f = {{dx, dy, x}, width};
    const bool eight =
        dx.half && dy.half && x.half && width % 8 == 0 && lanes_of(dx, dy, x) == 8;
    return add_columns(s, f, &dbias, rows, width, eight, parts);
}

int launch_gelu_bias_backward(stream_t s, int exact, int rows, int width, vec dx, vec dbias, vec dy,
                              vec x, double *parts)
{
    return exact     ? gelu_bias_backward<EXACT>(s, rows, width, dx, dbias, dy, x, parts)
           : dx.half ? gelu_bias_backward<TANH_ROUGH>(s, rows, width, dx, dbias, dy, x, parts)
                     : gelu_bias_backward<TANH>(s, rows, width, dx, dbias, dy, x, parts);
}

int launch_swiglu_forward(stream_t s, vec y, vec gate, vec up, size_t n)
{
    const int lanes = lanes_of(y, gate, up);
    return y.half ? launch_each(s, swiglu_forward_each<true>{y, gate, up}, n, lanes)
                  : launch_each(s, swiglu_forward_each<false>{y, gate, up}, n, lanes);
}

int launch_swiglu_backward(stream_t s, vec dgate, vec dup, vec dy, vec gate, vec up, size_t n)
{
    const int lanes = lanes_of(dgate, dup, dy, gate, up);
    return dgate.half && dup.half
               ? launch_each(s, swiglu_backward_each<true>{dgate, dup, dy, gate, up}, n, lanes)
               : launch_each(s, swiglu_backward_each<false>{dgate, dup, dy, gate, up}, n, lanes);
}
