/* Windows of images: gathered for products, summed back, and pooled. A thread writes an element, so
 * all sums have a fixed order. */
#include <math_constants.h>

#include "tensor/cuda/kernels/element.cuh"

namespace {

struct gather_each {
    window_shape p;
    vec y, x;
    template <int V> __device__ void run(size_t i) const
    {
        const int c = i % p.channels, tap = i / p.channels % (p.kernel * p.kernel);
        const size_t window = i / p.channels / (p.kernel * p.kernel);
        const int iy = (int)(window / p.out_w % p.out_h) * p.stride - p.pad + tap / p.kernel;
        const int ix = (int)(window % p.out_w) * p.stride - p.pad + tap % p.kernel;
        const size_t row = window / ((size_t)p.out_w * p.out_h);
        const bool in = iy >= 0 && iy < p.h && ix >= 0 && ix < p.w;
        put_element(y, i, in ? get_element(x, ((row * p.h + iy) * p.w + ix) * p.channels + c) : 0);
    }
};

/* Computes the windows [*first, *end) of `count` along one side that contain `at`. */
__device__ __forceinline__ void windows_covering(int at, int kernel, int stride, int pad, int count,
                                           int *first, int *end)
{
    const int beyond = at + pad - kernel; /* a window that begins here ends before `at` */
    *first = beyond < 0 ? 0 : beyond / stride + 1;
    *end = min((at + pad) / stride + 1, count);
}

/* Pixel and channel of an element of x, and the windows that contain the pixel. */
struct pixel_windows {
    int y, x, c, y0, y1, x0, x1;
    size_t row;
};

__device__ pixel_windows pixel_windows_of(const window_shape &p, size_t i)
{
    pixel_windows s;
    s.c = i % p.channels;
    s.x = i / p.channels % p.w;
    s.y = i / p.channels / p.w % p.h;
    s.row = i / p.channels / p.w / p.h;
    windows_covering(s.y, p.kernel, p.stride, p.pad, p.out_h, &s.y0, &s.y1);
    windows_covering(s.x, p.kernel, p.stride, p.pad, p.out_w, &s.x0, &s.x1);
    return s;
}

struct scatter_each {
    window_shape p;
    vec dx;
    const float *dy;
    int add;
    template <int V> __device__ void run(size_t i) const
    {
        const pixel_windows s = pixel_windows_of(p, i);
        float sum = 0;
        for (int wy = s.y0; wy < s.y1; wy++)
            for (int wx = s.x0; wx < s.x1; wx++) {
                const int tap = (s.y + p.pad - wy * p.stride) * p.kernel + s.x + p.pad -
                                wx * p.stride;
                const size_t window = (s.row * p.out_h + wy) * p.out_w + wx;
                sum += dy[(window * p.kernel * p.kernel + tap) * p.channels + s.c];
            }
        put_element(dx, i, add ? get_element(dx, i) + sum : sum);
    }
};

struct maxpool_forward_each {
    window_shape p;
    vec y, x;
    uint8_t *winner;
    template <int V> __device__ void run(size_t i) const
    {
        const int c = i % p.channels;
        const size_t window = i / p.channels, row = window / ((size_t)p.out_w * p.out_h);
        const int y0 = (int)(window / p.out_w % p.out_h) * p.stride - p.pad;
        const int x0 = (int)(window % p.out_w) * p.stride - p.pad;
        float best = -CUDART_INF_F;
        int where = -1;
        for (int t = 0; t < p.kernel * p.kernel; t++) {
            const int iy = y0 + t / p.kernel, ix = x0 + t % p.kernel;
            if (iy < 0 || iy >= p.h || ix < 0 || ix >= p.w)
                continue;
            const float value = get_element(x, ((row * p.h + iy) * p.w + ix) * p.channels + c);
            if (where < 0 || value > best || isnan(value)) {
                best = value;
                where = t;
            }
        }
        put_element(y, i, best);
        winner[i] = (uint8_t)where;
    }
};

struct maxpool_backward_each {
    window_shape p;
    vec dx, dy;
    const uint8_t *winner;
    template <int V> __device__ void run(size_t i) const
    {
        const pixel_windows s = pixel_windows_of(p, i);
        float sum = 0;
        for (int wy = s.y0; wy < s.y1; wy++)
            for (int wx = s.x0; wx < s.x1; wx++) {
                const int tap = (s.y + p.pad - wy * p.stride) * p.kernel + s.x + p.pad -
                                wx * p.stride;
                const size_t at = ((s.row * p.out_h + wy) * p.out_w + wx) * p.channels + s.c;
                if (winner[at] == tap)
                    sum += get_element(dy, at);
            }
        put_element(dx, i, sum);
    }
};

struct meanpool_forward_each {
    vec y, x;
    int pixels, channels;
    template <int V> __device__ void run(size_t i) const
    {
        const size_t first = i / channels * pixels * channels + i % channels;
        float sum = 0;
        for (int q = 0; q < pixels; q++)
            sum += get_element(x, first + (size_t)q * channels);
        put_element(y, i, sum / pixels);
    }
};

struct meanpool_backward_each {
    vec dx, dy;
    int pixels, channels;
    template <int V> __device__ void run(size_t i) const
    {
        const size_t row = i / ((size_t)pixels * channels);
        put_element(dx, i, get_element(dy, row * channels + i % channels) / pixels);
    }
};

size_t count_pixels(const window_shape &p)
{
    return (size_t)p.rows * p.h * p.w * p.channels;
}

size_t count_windows(const window_shape &p)
{
    return (size_t)p.rows * p.out_h * p.out_w * p.channels;
}

} // namespace

int launch_gather_windows(stream_t s, window_shape p, vec y, vec x)
{
    return launch_each_one(s, gather_each{p, y, x}, count_windows(p) * p.kernel * p.kernel);
}

int launch_scatter_windows(stream_t s, window_shape p, vec dx, const float *dy, int add)
{
    return launch_each_one(s, scatter_each{p, dx, dy, add}, count_pixels(p));
}

int launch_maxpool_forward(stream_t s, window_shape p, vec y, uint8_t *winner, vec x)
{
    return launch_each_one(s, maxpool_forward_each{p, y, x, winner}, count_windows(p));
}

int launch_maxpool_backward(stream_t s, window_shape p, vec dx, vec dy, const uint8_t *winner)
{
    return launch_each_one(s, maxpool_backward_each{p, dx, dy, winner}, count_pixels(p));
}

int launch_meanpool_forward(stream_t s, int rows, int pixels, int channels, vec y, vec x)
{
    return launch_each_one(s, meanpool_forward_each{y, x, pixels, channels},
                           (size_t)rows * channels);
}

int launch_meanpool_backward(stream_t s, int rows, int pixels, int channels, vec dx, vec dy)
{
    return launch_each_one(s, meanpool_backward_each{dx, dy, pixels, channels},
                           (size_t)rows * pixels * channels);
}
