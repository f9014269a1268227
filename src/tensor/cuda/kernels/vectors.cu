/* Flat vectors: each element is computed from elements at the same place. */
#include "tensor/cuda/kernels/element.cuh"

namespace {

struct fill_each {
    vec y;
    float value;
    template <int V> __device__ void run(size_t i) const
    {
        few<V> out;
        for (int e = 0; e < V; e++)
            out.at[e] = value;
        store_few<V>(y, i, out);
    }
};

struct copy_each {
    vec y, x;
    template <int V> __device__ void run(size_t i) const { store_few<V>(y, i, load_few<V>(x, i)); }
};

struct axpby_each {
    vec y, x;
    float b, a;
    template <int V> __device__ void run(size_t i) const
    {
        few<V> to = load_few<V>(y, i), from = load_few<V>(x, i);
        for (int e = 0; e < V; e++)
            to.at[e] = fmaf(a, from.at[e], b * to.at[e]);
        store_few<V>(y, i, to);
    }
};

struct scale_each {
    vec y;
    float a;
    template <int V> __device__ void run(size_t i) const
    {
        few<V> to = load_few<V>(y, i);
        for (int e = 0; e < V; e++)
            to.at[e] *= a;
        store_few<V>(y, i, to);
    }
};

struct relu_forward_each { /* a NaN stays NaN */
    vec y, x;
    template <int V> __device__ void run(size_t i) const
    {
        few<V> in = load_few<V>(x, i);
        for (int e = 0; e < V; e++)
            in.at[e] = in.at[e] < 0 ? 0 : in.at[e];
        store_few<V>(y, i, in);
    }
};

struct relu_backward_each {
    vec dx, dy, y;
    template <int V> __device__ void run(size_t i) const
    {
        const few<V> out = load_few<V>(y, i);
        few<V> d = load_few<V>(dy, i);
        for (int e = 0; e < V; e++)
            d.at[e] = out.at[e] <= 0 ? 0 : d.at[e];
        store_few<V>(dx, i, d);
    }
};

struct sign_each {
    vec y, x;
    template <int V> __device__ void run(size_t i) const
    {
        few<V> in = load_few<V>(x, i);
        for (int e = 0; e < V; e++)
            in.at[e] = isnan(in.at[e]) ? in.at[e] : (float)((in.at[e] > 0) - (in.at[e] < 0));
        store_few<V>(y, i, in);
    }
};

struct finish_each {
    vec y, product, bias, residual;
    int width;
    template <int V> __device__ void run(size_t i) const
    {
        few<V> sum = load_few<V>(product, i);
        const few<V> rest = load_or_zero<V>(residual, i);
        for (int e = 0; e < V; e++)
            sum.at[e] += element_or_zero(bias, (i + e) % width) + rest.at[e];
        store_few<V>(y, i, sum);
    }
};

struct rows_shape {
    int rows, width;
    size_t y_stride, x_stride, y_batch, x_batch;
};

/* A block for each row, sequence by sequence. */
__global__ void copy_rows_kernel(vec y, vec x, rows_shape p)
{
    const size_t b = blockIdx.x / p.rows, r = blockIdx.x % p.rows;
    const size_t to = b * p.y_batch + r * p.y_stride, from = b * p.x_batch + r * p.x_stride;
    for (int i = threadIdx.x; i < p.width; i += blockDim.x)
        put_element(y, to + i, get_element(x, from + i));
}

} // namespace

int launch_fill(stream_t s, vec y, size_t n, float value)
{
    return launch_each(s, fill_each{y, value}, n, lanes_of(y));
}

int launch_copy(stream_t s, vec y, vec x, size_t n)
{
    if (y.half == x.half)
        return cudaMemcpyAsync(y.data, x.data, n * (x.half ? 2 : 4), cudaMemcpyDeviceToDevice, s);
    return launch_each(s, copy_each{y, x}, n, lanes_of(y, x));
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
    return launch_each(s, axpby_each{y, x, b, a}, n, lanes_of(y, x));
}

int launch_scale(stream_t s, vec y, float a, size_t n)
{
    return launch_each(s, scale_each{y, a}, n, lanes_of(y));
}

int launch_relu_forward(stream_t s, vec y, vec x, size_t n)
{
    return launch_each(s, relu_forward_each{y, x}, n, lanes_of(y, x));
}

int launch_relu_backward(stream_t s, vec dx, vec dy, vec y, size_t n)
{
    return launch_each(s, relu_backward_each{dx, dy, y}, n, lanes_of(dx, dy, y));
}

int launch_sign(stream_t s, vec y, vec x, size_t n)
{
    return launch_each(s, sign_each{y, x}, n, lanes_of(y, x));
}

int launch_finish(stream_t s, vec y, const float *product, vec bias, vec residual, size_t rows,
                  int width)
{
    const vec sum = {(void *)product, 0};
    return launch_each(s, finish_each{y, sum, bias, residual, width}, rows * width,
                       lanes_of(y, sum, residual));
}
