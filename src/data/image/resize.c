/* Resizing images, one direction after the other. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/image/set.h"

/* The inputs of one element of the result: `count` elements from `first` on, with weights. */
struct resize_window {
    int first, count;
    float *weight;
};

static double sinc_lobe(double x, double width) /* sin(pi x / width), as sinc */
{
    const double at = acos(-1) * x / width;
    return at == 0 ? 1 : sin(at) / at;
}

/* Returns the weight of an input at distance `far` (>= 0) from the middle, in pixels of the larger
 * side. */
static double filter_weight(enum picture_filter filter, double far)
{
    switch (filter) {
    case FILTER_BICUBIC:
        return far < 1 ? (1.5 * far - 2.5) * far * far + 1
                       : ((-0.5 * far + 2.5) * far - 4) * far + 2;
    case FILTER_LANCZOS:
        return sinc_lobe(far, 1) * sinc_lobe(far, 3);
    case FILTER_HAMMING:
        return sinc_lobe(far, 1) * (0.54 + 0.46 * cos(acos(-1) * far));
    case FILTER_BOX:
        return 1;
    default:
        return 1 - far;
    }
}

static double filter_radius(enum picture_filter filter)
{
    static const double reaches[] = {
        [FILTER_BILINEAR] = 1, [FILTER_BICUBIC] = 2, [FILTER_LANCZOS] = 3,
        [FILTER_BOX] = 0.5,    [FILTER_HAMMING] = 1, [FILTER_NEAREST] = 0.5};
    return reaches[filter];
}

/* Makes the windows for `to` elements of the stretch [begin, begin + length) of `from`. Returns
 * NULL without memory; the caller frees the one block. */
static struct resize_window *make_windows(int from, double begin, double length, int to,
                                          enum picture_filter filter)
{
    const double step = length / to, scale = step > 1 ? step : 1,
                 radius = filter_radius(filter) * scale;
    const int most = 2 * (int)ceil(radius) + 2;
    struct resize_window *w = malloc((size_t)to * (sizeof *w + (size_t)most * sizeof(float)));
    float *room = w ? (float *)(void *)(w + to) : NULL;
    for (int i = 0; w && i < to; i++, room += most) {
        const double centre = begin + (i + 0.5) * step;
        int first = (int)floor(centre - radius), last = (int)ceil(centre + radius);
        double sum = 0;
        first = first > 0 ? first : 0;
        last = last < from ? last : from;
        w[i] = (struct resize_window){first, last - first, room};
        for (int k = first; k < last; k++) {
            const double off = k + 0.5 - centre;
            const bool counts =
                filter == FILTER_NEAREST ? k == (int)centre : off > -radius && off <= radius;
            room[k - first] = counts ? (float)filter_weight(filter, fabs(off) / scale) : 0;
            sum += room[k - first];
        }
        for (int k = 0; k < last - first; k++)
            room[k] = (float)(room[k] / sum);
    }
    return w;
}

/* Makes one line of `to` elements, `channels` values each, from a line of u8 values. */
static void resize_row(const uint8_t *from, int channels, const struct resize_window *w, int to,
                       float *out)
{
    for (int i = 0; i < to; i++)
        for (int c = 0; c < channels; c++) {
            float sum = 0;
            for (int k = 0; k < w[i].count; k++)
                sum += w[i].weight[k] * from[(w[i].first + k) * channels + c];
            *out++ = sum;
        }
}

static void resize_columns(const float *rows, size_t line, const struct resize_window *w, int to,
                           uint8_t *out)
{
    for (int i = 0; i < to; i++)
        for (size_t x = 0; x < line; x++) {
            float sum = 0;
            for (int k = 0; k < w[i].count; k++)
                sum += w[i].weight[k] * rows[(size_t)(w[i].first + k) * line + x];
            *out++ = (uint8_t)(sum < 0 ? 0 : sum > 254.5f ? 255 : sum + 0.5f);
        }
}

/* Returns the size of the whole image with `edge` pixels on one side: in whole pixels, so that a
 * part begins at a pixel, as in torchvision and transformers. */
static void scale_by(const struct picture *p, bool by_height, double edge, double *height,
                     double *width)
{
    *height = by_height ? edge : floor(edge * p->height / p->width);
    *width = by_height ? floor(edge * p->width / p->height) : edge;
}

/* Returns the size of the whole image whose middle becomes `out`: the shorter side is that of `out`
 * divided by `keep`, or longer if `out` would not be filled. */
static void whole_size(const struct picture *p, const struct picture *out, double keep,
                       double *height, double *width)
{
    const int shorter = out->height < out->width ? out->height : out->width;
    const bool by_height = (double)out->height * p->width >= (double)out->width * p->height;
    scale_by(p, p->height <= p->width, floor(shorter / keep + 1e-6), height, width);
    if (*height >= out->height && *width >= out->width)
        return;
    scale_by(p, by_height, by_height ? out->height : out->width, height, width);
}

/* Makes the windows for the middle `to` elements of `from` elements brought to `whole`. */
static struct resize_window *middle_windows(int from, double whole, int to,
                                            enum picture_filter filter)
{
    const double step = from / whole;
    return make_windows(from, floor((whole - to) / 2) * step, to * step, to, filter);
}

enum sotto_status picture_resize(const struct picture *p, int resize, double keep,
                                 enum picture_filter filter, struct picture *out)
{
    double height = out->height, width = out->width;
    if (resize == DATA_CROP)
        whole_size(p, out, keep > 0 ? keep : 1, &height, &width);
    const size_t line = (size_t)out->width * (size_t)out->channels;
    struct resize_window *across = middle_windows(p->width, width, out->width, filter);
    struct resize_window *down = middle_windows(p->height, height, out->height, filter);
    float *rows = malloc((size_t)p->height * line * sizeof *rows);
    out->pixels = malloc((size_t)out->height * line);
    const bool made = across && down && rows && out->pixels;
    for (int y = 0; made && y < p->height; y++)
        resize_row(p->pixels + (size_t)y * (size_t)p->width * (size_t)p->channels, p->channels,
                   across, out->width, rows + (size_t)y * line);
    if (made)
        resize_columns(rows, line, down, out->height, out->pixels);
    else
        free(out->pixels);
    free(across);
    free(down);
    free(rows);
    return made ? SOTTO_OK
                : fail(SOTTO_ENOMEM, "no memory to bring an image of %d x %d to %d x %d", p->height,
                       p->width, out->height, out->width);
}
