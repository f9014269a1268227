/* Codecs: the largest coefficients of a tile, and tiles from a few coefficients. */
#include "tensor/cpu/kernels.h"

static int count_from(const uint32_t *keys, int n, uint32_t least)
{
    int count = 0;
#pragma omp simd reduction(+ : count)
    for (int i = 0; i < n; i++)
        count += keys[i] >= least;
    return count;
}

/* The magnitude of the keep-th largest, bit by bit from the highest: as numbers, fp32 magnitudes
 * are in the order of their bits. Any that exactly `keep` reach does. */
static uint32_t threshold(const uint32_t *keys, int n, int keep)
{
    uint32_t least = 0;
    for (int bit = 30; bit >= 0; bit--) {
        const uint32_t more = least | 1u << bit;
        const int count = count_from(keys, n, more);
        if (count >= keep)
            least = more;
        if (count == keep)
            break;
    }
    return least;
}

static void select(const float *c, int rows, int w, size_t ld, int keep, uint32_t *keys,
                   int32_t *index, float *value)
{
    const int n = rows * w;
    for (int r = 0; r < rows; r++) {
        const float *from = c + (size_t)r * ld;
        uint32_t *to = keys + r * w;
#pragma omp simd
        for (int i = 0; i < w; i++) {
            uint32_t bits;
            memcpy(&bits, &from[i], 4);
            to[i] = bits & 0x7fffffffu;
        }
    }
    const uint32_t least = threshold(keys, n, keep);
    int equal = keep - count_from(keys, n, least + 1); /* of those at the border, the first */
    for (int i = 0, k = 0; k < keep; i++) {
        if (keys[i] < least || (keys[i] == least && equal-- <= 0))
            continue;
        index[k] = i;
        value[k++] = c[(size_t)(i / w) * ld + (size_t)(i % w)];
    }
}

static void add_scaled(float *y, float a, const float *x, int n)
{
#pragma omp simd
    for (int i = 0; i < n; i++)
        y[i] += a * x[i];
}

/* Coefficients of one frequency of h share their sum over those of w. */
static void spread(float *y, size_t stride, int h, int w, float scale, const int32_t *index,
                   const float *value, int n, const float *bh, const float *bw, size_t ld,
                   float *row)
{
    for (int k = 0; k < n;) {
        const int i = index[k] / w, end = (i + 1) * w;
        memset(row, 0, ld * sizeof *row);
        for (; k < n && index[k] < end; k++)
            add_scaled(row, value[k], bw + (size_t)(index[k] - i * w) * ld, (int)ld);
        for (int r = 0; r < h; r++)
            add_scaled(y + (size_t)r * stride, scale * (h > 1 ? bh[i * h + r] : 1), row, w);
    }
}

static void sign(float *y, const float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = (float)((x[i] > 0) - (x[i] < 0));
}

const struct codec_kernels KERNELS(fast_codec) = {select, spread, sign};
