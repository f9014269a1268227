/* Pooling: rows of pixels over threads. */
#include "tensor/cpu/cpu.h"

/* Channels of a kernel's call. */
enum { LANE = 512 };

/* Finds the windows [first, end) of `count` that contain pixel `at` of a side. */
static void windows_at(const struct pooling *p, int at, int count, int *first, int *end)
{
    const int last = (at + p->pad) / p->stride, before = at + p->pad - p->kernel;
    *first = before < 0 ? 0 : before / p->stride + 1;
    *end = min_int(last + 1, count);
}

/* Computes channels [c, c + n) of window (y, x); `image` is the image's first pixel. */
static void take_window(const struct kernels *k, const struct pooling *p, struct view image, int y,
                        int x, size_t c, size_t n, float *best, uint8_t *winner)
{
    float room[LANE];
    bool begun = false;
    for (int t = 0; t < p->kernel * p->kernel; t++) {
        const int iy = y * p->stride - p->pad + t / p->kernel;
        const int ix = x * p->stride - p->pad + t % p->kernel;
        if (iy < 0 || iy >= p->h || ix < 0 || ix >= p->w)
            continue;
        const size_t at = ((size_t)iy * (size_t)p->w + (size_t)ix) * (size_t)p->channels + c;
        const float *from = load_floats(k, image, at, n, room);
        if (!begun) {
            memcpy(best, from, n * sizeof *best);
            memset(winner, t, n);
        } else {
            k->image->max_take(best, winner, from, (uint8_t)t, n);
        }
        begun = true;
    }
}

void cpu_maxpool_forward(struct device *dev, const struct pooling *p, struct view y,
                         struct view winner, struct view x)
{
    const struct kernels *k = kernels_of(dev);
    const int h = window_count(p->h, p->kernel, p->stride, p->pad);
    const int w = window_count(p->w, p->kernel, p->stride, p->pad);
    const size_t channels = (size_t)p->channels, lines = (size_t)p->rows * (size_t)h;
    const size_t work = lines * (size_t)w * channels * (size_t)(p->kernel * p->kernel);
    assert(p->kernel <= 16 && 2 * p->pad <= p->kernel);
    (void)work; /* without OpenMP */
#pragma omp parallel for schedule(static) num_threads(team_size(dev, work))
    for (size_t line = 0; line < lines; line++) {
        const size_t row = line / (size_t)h * (size_t)p->h * (size_t)p->w * channels;
        for (size_t i = 0; i < (size_t)w; i++) {
            const size_t at = (line * (size_t)w + i) * channels;
            for (size_t c = 0; c < channels; c += LANE) {
                float room[LANE], *out = place_floats(y, at + c, room);
                const size_t n = min_size(LANE, channels - c);
                take_window(k, p, view_at(x, row), (int)(line % (size_t)h), (int)i, c, n, out,
                            (uint8_t *)winner.data + at + c);
                store_floats(k, y, at + c, n, out);
            }
        }
    }
}

/* Computes channels [c, c + n) of pixel (y, x): the sum over the windows of the image that
 * contain the pixel, in order. */
static void give_pixel(const struct kernels *k, const struct pooling *p, struct view dy,
                       const uint8_t *winner, int y, int x, size_t c, size_t n, float *sum)
{
    const int h = window_count(p->h, p->kernel, p->stride, p->pad);
    const int w = window_count(p->w, p->kernel, p->stride, p->pad);
    int first_y, end_y, first_x, end_x;
    float room[LANE];
    windows_at(p, y, h, &first_y, &end_y);
    windows_at(p, x, w, &first_x, &end_x);
    memset(sum, 0, n * sizeof *sum);
    for (int oy = first_y; oy < end_y; oy++)
        for (int ox = first_x; ox < end_x; ox++) {
            const int ky = y + p->pad - oy * p->stride, kx = x + p->pad - ox * p->stride;
            const size_t at = ((size_t)oy * (size_t)w + (size_t)ox) * (size_t)p->channels + c;
            k->image->max_give(sum, load_floats(k, dy, at, n, room), winner + at,
                               (uint8_t)(ky * p->kernel + kx), n);
        }
}

void cpu_maxpool_backward(struct device *dev, const struct pooling *p, struct view dx,
                          struct view dy, struct view winner)
{
    const struct kernels *k = kernels_of(dev);
    const size_t windows = (size_t)window_count(p->h, p->kernel, p->stride, p->pad) *
                           (size_t)window_count(p->w, p->kernel, p->stride, p->pad);
    const size_t channels = (size_t)p->channels, h = (size_t)p->h, w = (size_t)p->w;
    const size_t lines = (size_t)p->rows * h;
#pragma omp parallel for schedule(static) num_threads(team_size(dev, 4 * lines * w * channels))
    for (size_t line = 0; line < lines; line++) {
        const size_t image = line / h * windows * channels;
        for (size_t x = 0; x < w; x++) {
            const size_t at = (line * w + x) * channels;
            for (size_t c = 0; c < channels; c += LANE) {
                float room[LANE], *out = place_floats(dx, at + c, room);
                const size_t n = min_size(LANE, channels - c);
                give_pixel(k, p, view_at(dy, image), (const uint8_t *)winner.data + image,
                           (int)(line % h), (int)x, c, n, out);
                store_floats(k, dx, at + c, n, out);
            }
        }
    }
}

void cpu_meanpool_forward(struct device *dev, int rows, int pixels, int channels, struct view y,
                          struct view x)
{
    const struct kernels *k = kernels_of(dev);
    const size_t n = (size_t)pixels, width = (size_t)channels;
#pragma omp parallel for schedule(static) num_threads(team_size(dev, (size_t)rows *n *width))
    for (size_t r = 0; r < (size_t)rows; r++) {
        for (size_t c = 0; c < width; c += LANE) {
            const size_t size = min_size(LANE, width - c);
            float sum[LANE] = {0}, room[LANE];
            for (size_t q = 0; q < n; q++)
                k->vector->add(sum, load_floats(k, x, (r * n + q) * width + c, size, room), size);
            k->vector->scale(sum, 1 / (float)pixels, size);
            store_floats(k, y, r * width + c, size, sum);
        }
    }
}

void cpu_meanpool_backward(struct device *dev, int rows, int pixels, int channels, struct view dx,
                           struct view dy)
{
    const struct kernels *k = kernels_of(dev);
    const size_t n = (size_t)pixels, width = (size_t)channels;
#pragma omp parallel for schedule(static) num_threads(team_size(dev, (size_t)rows *n *width))
    for (size_t r = 0; r < (size_t)rows; r++) {
        for (size_t c = 0; c < width; c += LANE) {
            const size_t size = min_size(LANE, width - c);
            float share[LANE] = {0}, room[LANE];
            k->vector->axpy(share, 1 / (float)pixels, load_floats(k, dy, r * width + c, size, room),
                            size);
            for (size_t q = 0; q < n; q++)
                store_floats(k, dx, (r * n + q) * width + c, size, share);
        }
    }
}
