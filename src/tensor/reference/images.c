/* Reference ops of models of images. */
#include <math.h>

#include "tensor/reference/reference.h"

static size_t conv_h(const struct conv *p)
{
    return (size_t)window_count(p->h, p->kernel, p->stride, p->pad);
}

static size_t conv_w(const struct conv *p)
{
    return (size_t)window_count(p->w, p->kernel, p->stride, p->pad);
}

/* Elements of x, w and y of one multiplication of a convolution. */
struct tap {
    size_t x, w, y;
};

/* Calls `visit` for every multiplication of a convolution. */
static void each_tap(const struct conv *p, void (*visit)(const struct tap *tap, void *arg),
                     void *arg)
{
    const size_t h = conv_h(p), w = conv_w(p), in = (size_t)p->in, out = (size_t)p->out;
    const size_t taps = (size_t)p->kernel * (size_t)p->kernel;
    for (size_t window = 0; window < (size_t)p->rows * h * w; window++)
        for (size_t t = 0; t < taps; t++) {
            const int y = (int)(window / w % h) * p->stride - p->pad + (int)t / p->kernel;
            const int x = (int)(window % w) * p->stride - p->pad + (int)t % p->kernel;
            if (y < 0 || y >= p->h || x < 0 || x >= p->w)
                continue;
            const size_t row = window / (w * h) * (size_t)p->h + (size_t)y;
            const size_t pixel = row * (size_t)p->w + (size_t)x;
            for (size_t o = 0; o < out; o++)
                for (size_t i = 0; i < in; i++)
                    visit(&(struct tap){pixel * in + i, (o * taps + t) * in + i, window * out + o},
                          arg);
        }
}

/* sum[i] += a b, where i is the element of x, w or y, and a and b are the other two. */
struct conv_sums {
    double *sum;
    struct view a, b;
};

static void add_y(const struct tap *tap, void *arg)
{
    const struct conv_sums *s = arg;
    s->sum[tap->y] += get_value(s->a, tap->x) * get_value(s->b, tap->w);
}

static void add_x(const struct tap *tap, void *arg)
{
    const struct conv_sums *s = arg;
    s->sum[tap->x] += get_value(s->a, tap->y) * get_value(s->b, tap->w);
}

static void add_w(const struct tap *tap, void *arg)
{
    const struct conv_sums *s = arg;
    s->sum[tap->w] += get_value(s->a, tap->y) * get_value(s->b, tap->x);
}

static double *zeroed_scratch(struct device *dev, size_t count)
{
    double *sum = device_scratch(dev, (count + 1) * sizeof *sum);
    for (size_t i = 0; sum && i < count; i++)
        sum[i] = 0;
    return sum;
}

void reference_conv_forward(struct device *dev, const struct conv *p, struct view y, struct view x,
                            struct view w, struct view bias)
{
    const size_t out = (size_t)p->out, count = (size_t)p->rows * conv_h(p) * conv_w(p) * out;
    struct conv_sums s = {zeroed_scratch(dev, count), x, w};
    if (!s.sum)
        return;
    each_tap(p, add_y, &s);
    for (size_t i = 0; i < count; i++)
        set_value(y, i, s.sum[i] + get_or_zero(bias, i % out));
}

void reference_conv_backward_x(struct device *dev, const struct conv *p, struct view dx,
                               struct view dy, struct view w, bool add)
{
    const size_t count = (size_t)p->rows * (size_t)p->h * (size_t)p->w * (size_t)p->in;
    struct conv_sums s = {zeroed_scratch(dev, count), dy, w};
    if (!s.sum)
        return;
    each_tap(p, add_x, &s);
    for (size_t i = 0; i < count; i++)
        put_add(dx, i, s.sum[i], add);
}

void reference_conv_backward_w(struct device *dev, const struct conv *p, struct view dw,
                               struct view dbias, struct view dy, struct view x)
{
    const size_t out = (size_t)p->out, pixels = (size_t)p->rows * conv_h(p) * conv_w(p);
    const size_t count = out * (size_t)p->kernel * (size_t)p->kernel * (size_t)p->in;
    struct conv_sums s = {zeroed_scratch(dev, count), dy, x};
    if (!s.sum)
        return;
    each_tap(p, add_w, &s);
    for (size_t i = 0; i < count; i++)
        put_add(dw, i, s.sum[i], true);
    for (size_t o = 0; o < out && dbias.data; o++) {
        double sum = 0;
        for (size_t i = 0; i < pixels; i++)
            sum += get_value(dy, i * out + o);
        put_add(dbias, o, sum, true);
    }
}

/* Returns the first channel of the pixel of x that `window` meets at its tap t; -1 outside of
 * the image. */
static ptrdiff_t pool_at(const struct pooling *p, size_t window, int t)
{
    const size_t h = (size_t)window_count(p->h, p->kernel, p->stride, p->pad);
    const size_t w = (size_t)window_count(p->w, p->kernel, p->stride, p->pad);
    const int y = (int)(window / w % h) * p->stride - p->pad + t / p->kernel;
    const int x = (int)(window % w) * p->stride - p->pad + t % p->kernel;
    if (y < 0 || y >= p->h || x < 0 || x >= p->w)
        return -1;
    return (((ptrdiff_t)(window / (w * h)) * p->h + y) * p->w + x) * p->channels;
}

static size_t pool_windows(const struct pooling *p)
{
    return (size_t)p->rows * (size_t)window_count(p->h, p->kernel, p->stride, p->pad) *
           (size_t)window_count(p->w, p->kernel, p->stride, p->pad);
}

void reference_maxpool_forward(struct device *dev, const struct pooling *p, struct view y,
                               struct view winner, struct view x)
{
    (void)dev;
    const size_t channels = (size_t)p->channels;
    for (size_t i = 0; i < pool_windows(p) * channels; i++) {
        double best = -INFINITY;
        int where = -1;
        for (int t = 0; t < p->kernel * p->kernel; t++) {
            const ptrdiff_t at = pool_at(p, i / channels, t);
            const double value = at < 0 ? 0 : get_value(x, (size_t)at + i % channels);
            if (at >= 0 && (where < 0 || value > best || isnan(value))) {
                best = value;
                where = t;
            }
        }
        set_value(y, i, best);
        ((uint8_t *)winner.data)[i] = (uint8_t)where;
    }
}

void reference_maxpool_backward(struct device *dev, const struct pooling *p, struct view dx,
                                struct view dy, struct view winner)
{
    const size_t channels = (size_t)p->channels;
    const size_t count = (size_t)p->rows * (size_t)p->h * (size_t)p->w * channels;
    double *sum = zeroed_scratch(dev, count);
    if (!sum)
        return;
    for (size_t i = 0; i < pool_windows(p) * channels; i++)
        sum[(size_t)pool_at(p, i / channels, ((const uint8_t *)winner.data)[i]) + i % channels] +=
            get_value(dy, i);
    for (size_t i = 0; i < count; i++)
        set_value(dx, i, sum[i]);
}

void reference_meanpool_forward(struct device *dev, int rows, int pixels, int channels,
                                struct view y, struct view x)
{
    (void)dev;
    const size_t n = (size_t)pixels, width = (size_t)channels;
    for (size_t i = 0; i < (size_t)rows * width; i++) {
        double sum = 0;
        for (size_t q = 0; q < n; q++)
            sum += get_value(x, (i / width * n + q) * width + i % width);
        set_value(y, i, sum / (double)n);
    }
}

void reference_meanpool_backward(struct device *dev, int rows, int pixels, int channels,
                                 struct view dx, struct view dy)
{
    (void)dev;
    const size_t n = (size_t)pixels, width = (size_t)channels;
    for (size_t i = 0; i < (size_t)rows * n * width; i++)
        set_value(dx, i, get_value(dy, i / (n * width) * width + i % width) / (double)n);
}

/* Computes mean and variance of column c of x, and moves the running statistics towards them. */
static void measure_column(const struct batchnorm *p, size_t c, struct view x,
                           struct view running_mean, struct view running_variance, double *mean,
                           double *variance)
{
    const size_t width = (size_t)p->width, n = (size_t)p->rows;
    *mean = *variance = 0;
    for (size_t r = 0; r < n; r++)
        *mean += get_value(x, r * width + c) / (double)n;
    for (size_t r = 0; r < n; r++)
        *variance += pow(get_value(x, r * width + c) - *mean, 2) / (double)n;
    if (!running_mean.data)
        return;
    const double unbiased = n > 1 ? *variance * (double)n / (double)(n - 1) : *variance;
    const double m = p->momentum;
    set_value(running_mean, c, (1 - m) * get_value(running_mean, c) + m * *mean);
    set_value(running_variance, c, (1 - m) * get_value(running_variance, c) + m * unbiased);
}

void reference_batchnorm_forward(struct device *dev, const struct batchnorm *p, struct view y,
                                 struct view x, struct view gain, struct view bias,
                                 struct view residual, struct view running_mean,
                                 struct view running_variance, struct view stats)
{
    (void)dev;
    const size_t width = (size_t)p->width;
    for (size_t c = 0; c < width; c++) {
        double mean, variance;
        if (p->given) {
            mean = get_value(stats, c);
            variance = 0;
        } else if (p->training) {
            measure_column(p, c, x, running_mean, running_variance, &mean, &variance);
        } else {
            mean = get_value(running_mean, c);
            variance = get_value(running_variance, c);
        }
        const double rstd = p->given ? get_value(stats, width + c) : 1 / sqrt(variance + p->eps);
        set_value(stats, c, mean);
        set_value(stats, width + c, rstd);
        for (size_t at = c; at < (size_t)p->rows * width; at += width) {
            const double value = (get_value(x, at) - mean) * rstd * get_value(gain, c) +
                                 get_value(bias, c) + get_or_zero(residual, at);
            set_value(y, at, p->relu && value < 0 ? 0 : value);
        }
    }
}

void reference_batchnorm_backward(struct device *dev, const struct batchnorm *p, struct view dx,
                                  struct view dgain, struct view dbias, struct view dresidual,
                                  struct view dy, struct view x, struct view y, struct view gain,
                                  struct view stats)
{
    const size_t width = (size_t)p->width, n = (size_t)p->rows;
    double *d = zeroed_scratch(dev, n);
    if (!d)
        return;
    for (size_t c = 0; c < width; c++) {
        const double mean = get_value(stats, c), rstd = get_value(stats, width + c);
        double sum = 0, sum_hat = 0;
        for (size_t r = 0; r < n; r++) {
            const size_t at = r * width + c;
            d[r] = p->relu && get_value(y, at) <= 0 ? 0 : get_value(dy, at);
            sum += d[r];
            sum_hat += d[r] * (get_value(x, at) - mean) * rstd;
        }
        for (size_t r = 0; r < n; r++) {
            const size_t at = r * width + c;
            const double hat = (get_value(x, at) - mean) * rstd;
            const double shift = p->training ? (sum + hat * sum_hat) / (double)n : 0;
            set_value(dx, at, rstd * get_value(gain, c) * (d[r] - shift));
            if (dresidual.data)
                set_value(dresidual, at, d[r]);
        }
        if (dgain.data)
            put_add(dgain, c, sum_hat, true);
        if (dbias.data)
            put_add(dbias, c, sum, true);
    }
}

void reference_relu_forward(struct device *dev, struct view y, struct view x, size_t count)
{
    (void)dev;
    for (size_t i = 0; i < count; i++)
        set_value(y, i, get_value(x, i) < 0 ? 0 : get_value(x, i));
}

void reference_relu_backward(struct device *dev, struct view dx, struct view dy, struct view y,
                             size_t count)
{
    (void)dev;
    for (size_t i = 0; i < count; i++)
        set_value(dx, i, get_value(y, i) <= 0 ? 0 : get_value(dy, i));
}
