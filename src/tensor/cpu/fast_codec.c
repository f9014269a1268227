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

static uint32_t largest(const uint32_t *keys, int n)
{
    uint32_t most = 0;
#pragma omp simd reduction(max : most)
    for (int i = 0; i < n; i++)
        most = keys[i] > most ? keys[i] : most;
    return most;
}

/* The magnitude of the keep-th largest, by halves: as numbers, fp32 magnitudes are in the order of
 * their bits. Any that exactly `keep` reach does. Mostly it is not far from the largest, so the
 * first try is three powers of two below that. */
static uint32_t threshold(const uint32_t *keys, int n, int keep)
{
    uint32_t low = 0, high = largest(keys, n) + 1; /* all reach low, none high */
    uint32_t try = high > 3u << 23 ? high - (3u << 23) : high / 2;
    while (high - low > 1) {
        const int count = count_from(keys, n, try);
        if (count >= keep)
            low = try;
        else
            high = try;
        if (count == keep)
            break;
        try = low + (high - low) / 2;
    }
    return low;
}

/* Without a branch that nobody could foresee. */
static int find(const uint32_t *keys, int n, uint32_t least, int32_t *index)
{
    int count = 0;
    for (int i = 0; i < n; i++) {
        index[count] = i;
        count += keys[i] >= least;
    }
    return count;
}

static void select(const float *c, int rows, int w, size_t ld, int keep, uint32_t *keys,
                   int32_t *room, int32_t *index, float *value)
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
    const int found = find(keys, n, least, room);
    int over = found - keep; /* of those at the border, the last */
    for (int k = found - 1; k >= 0; k--) {
        const int i = room[k];
        if (over > 0 && keys[i] == least) {
            over--;
            continue;
        }
        index[k - over] = i;
        value[k - over] = c[(size_t)(i / w) * ld + (size_t)(i % w)];
    }
}

static void add_scaled(float *y, float a, const float *x, int n)
{
#pragma omp simd
    for (int i = 0; i < n; i++)
        y[i] += a * x[i];
}

static void sum_rows(float *y, int w, size_t ld, float scale, const int32_t *index,
                     const float *value, int n, const float *bw)
{
    for (int k = 0; k < n; k++) {
        const int row = index[k] / w;
        add_scaled(y + (size_t)row * ld, scale * value[k], bw + (size_t)(index[k] - row * w) * ld,
                   (int)ld);
    }
}

static void mirror(float *y, float *z, const float *a, const float *b, size_t n, bool add)
{
    if (add) {
#pragma omp simd
        for (size_t i = 0; i < n; i++) {
            const float sum = a[i] + b[i], difference = a[i] - b[i];
            y[i] += sum;
            z[i] += difference;
        }
    } else {
#pragma omp simd
        for (size_t i = 0; i < n; i++) {
            const float sum = a[i] + b[i], difference = a[i] - b[i];
            y[i] = sum;
            z[i] = difference;
        }
    }
}

static void sign(float *y, const float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] == x[i] ? (float)((x[i] > 0) - (x[i] < 0)) : x[i];
}

const struct codec_kernels KERNELS(fast_codec) = {select, find, sum_rows, mirror, sign};
