/* Reference ops of codecs: the cosine transform as its formula. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/reference/reference.h"

/* Returns element t of the basis vector of frequency f, of n. */
static double basis_element(int f, int t, int n)
{
    const double pi = 3.14159265358979323846;
    return sqrt((f ? 2.0 : 1.0) / n) * cos(pi * (2 * t + 1) * f / (2.0 * n));
}

/* Returns all basis vectors of n elements, (n, n), to be freed. */
static double *basis_vectors(int n)
{
    double *out = malloc((size_t)n * (size_t)n * sizeof *out);
    if (!out)
        abort(); /* for tests */
    for (int f = 0; f < n; f++)
        for (int t = 0; t < n; t++)
            out[f * n + t] = basis_element(f, t, n);
    return out;
}

/* One tile in double precision. */
struct tile {
    const struct tiles *of;
    const double *down, *across; /* (h, h) and (w, w) basis vectors */
    size_t begin;                /* first element in the vector */
    size_t kept;                 /* place of its coefficients among all kept coefficients */
    double *c;                   /* (h, w) coefficients              */
    unsigned char *is;           /* (h, w): coefficients in use; decode: senders of each */
};

static size_t tile_element(const struct tile *t, int y, int x)
{
    return t->begin + (size_t)y * t->of->stride + (size_t)x;
}

static void transform_tile(const struct tile *t, struct view m)
{
    const int h = t->of->h, w = t->of->w;
    for (int i = 0; i < h; i++)
        for (int j = 0; j < w; j++) {
            double sum = 0;
            for (int y = 0; y < h; y++)
                for (int x = 0; x < w; x++)
                    sum += t->down[i * h + y] * t->across[j * w + x] *
                           get_value(m, tile_element(t, y, x));
            t->c[i * w + j] = sum;
        }
}

/* Returns element (y, x) of the inverse transform of the coefficients in use. */
static double inverse_element(const struct tile *t, int y, int x)
{
    const int h = t->of->h, w = t->of->w;
    double sum = 0;
    for (int i = 0; i < h; i++)
        for (int j = 0; j < w; j++)
            if (t->is[i * w + j])
                sum += t->down[i * h + y] * t->across[j * w + x] * t->c[i * w + j];
    return sum;
}

static void encode_tile(struct tile *t, struct view m, struct view index, struct view value)
{
    const int size = t->of->h * t->of->w;
    transform_tile(t, m);
    for (int k = 0; k < t->of->keep; k++) {
        int best = -1;
        for (int i = 0; i < size; i++)
            if (!t->is[i] && (best < 0 || fabs(t->c[i]) > fabs(t->c[best])))
                best = i;
        t->is[best] = 1;
    }
    for (int i = 0, k = 0; i < size; i++)
        if (t->is[i]) {
            ((int32_t *)index.data)[t->kept + (size_t)k] = i;
            set_value(value, t->kept + (size_t)k, t->c[i]);
            t->c[i] = get_value(value, t->kept + (size_t)k);
            k++;
        }
    for (int y = 0; y < t->of->h; y++)
        for (int x = 0; x < t->of->w; x++)
            set_value(m, tile_element(t, y, x),
                      get_value(m, tile_element(t, y, x)) - inverse_element(t, y, x));
}

/* Messages of `senders` workers, with the distances from one message to the next. */
struct sent {
    int senders; /* 0: encode */
    struct view index, value;
    size_t index_step, value_step;
};

/* Returns an index outside of the tile if there is one, else 0. */
static uint32_t decode_tile(struct tile *t, const struct sent *s, struct view y_view)
{
    uint32_t beyond = 0;
    for (int r = 0; r < s->senders; r++)
        for (int k = 0; k < t->of->keep; k++) {
            const size_t at = t->kept + (size_t)k;
            const int i = ((const int32_t *)s->index.data)[(size_t)r * s->index_step + at];
            if (i < 0 || i >= t->of->h * t->of->w) {
                beyond = (uint32_t)i;
                continue;
            }
            t->c[i] =
                (t->is[i] ? t->c[i] : 0) + get_value(s->value, (size_t)r * s->value_step + at);
            t->is[i]++;
        }
    for (int i = 0; i < t->of->h * t->of->w; i++)
        if (t->is[i])
            t->c[i] /= t->is[i];
    for (int y = 0; y < t->of->h; y++)
        for (int x = 0; x < t->of->w; x++)
            set_value(y_view, tile_element(t, y, x), inverse_element(t, y, x));
    return beyond;
}

static void each_tile(struct device *dev, const struct tiling *p, const struct sent *sent,
                      struct view v)
{
    for (int k = 0; k < p->n; k++) {
        const struct tiles *s = &p->tiles[k];
        const size_t size = (size_t)s->h * (size_t)s->w;
        double *const down = basis_vectors(s->h), *const across = basis_vectors(s->w);
        const int end = p->end ? p->end : s->ny * s->nx;
        for (int i = p->end ? p->begin : 0; i < end; i++) {
            struct tile t = {.of = s, .down = down, .across = across};
            t.kept = s->kept + (size_t)i * (size_t)s->keep;
            t.begin = s->at - p->from + (size_t)(i / s->nx) * (size_t)s->h * s->stride +
                      (size_t)(i % s->nx) * (size_t)s->w;
            t.c = calloc(size, sizeof *t.c);
            t.is = calloc(size, 1);
            if (!t.c || !t.is)
                abort(); /* for tests */
            const uint32_t beyond = sent->senders ? decode_tile(&t, sent, v) : 0;
            if (beyond)
                tiles_damaged(dev, s, beyond);
            if (!sent->senders)
                encode_tile(&t, v, sent->index, sent->value);
            free(t.c);
            free(t.is);
        }
        free(down);
        free(across);
    }
}

void reference_tiles_encode(struct device *dev, const struct tiling *p, struct view basis_view,
                            struct view m, struct view index, struct view value)
{
    (void)basis_view;
    each_tile(dev, p, &(struct sent){.index = index, .value = value}, m);
}

void reference_tiles_decode(struct device *dev, const struct tiling *p, struct view basis_view,
                            int senders, struct view y, struct view index, size_t index_step,
                            struct view value, size_t value_step)
{
    (void)basis_view;
    each_tile(dev, p, &(struct sent){senders, index, value, index_step, value_step}, y);
}

void reference_bits_pack(struct device *dev, int bits, struct view y, struct view x, size_t count)
{
    const size_t all = count * (size_t)bits;
    uint8_t *to = y.data;
    (void)dev;
    memset(to, 0, (all + 7) / 8);
    for (size_t i = 0; i < all; i++) {
        const int32_t from = ((const int32_t *)x.data)[i / (size_t)bits];
        to[i / 8] |= (uint8_t)((from >> i % (size_t)bits & 1) << i % 8);
    }
}

void reference_bits_unpack(struct device *dev, int bits, struct view y, struct view x, size_t count)
{
    const uint8_t *from = x.data;
    int32_t *to = y.data;
    (void)dev;
    memset(to, 0, count * sizeof *to);
    for (size_t i = 0; i < count * (size_t)bits; i++)
        to[i / (size_t)bits] |= (from[i / 8] >> i % 8 & 1) << i % (size_t)bits;
}

void reference_sign(struct device *dev, struct view y, struct view x, size_t count)
{
    (void)dev;
    for (size_t i = 0; i < count; i++)
        set_value(y, i,
                  isnan(get_value(x, i)) ? NAN : (get_value(x, i) > 0) - (get_value(x, i) < 0));
}
