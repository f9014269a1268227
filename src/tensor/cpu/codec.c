/* Tiles of the cosine transform over threads. A task is a tile, or several chunks, which stay in
 * the first caches from the transform until the kept coefficients are subtracted.
 *
 * Sides of DCT_SIDE are transformed by butterflies (simd/dct.h), other sides by products with
 * matrices. The basis vectors of a side are even or odd about its middle, in turn. So half of the
 * elements are enough: sums of mirrored elements for the even frequencies, differences for the odd.
 * The even frequencies are a transform of a side of half the length. */
#include <string.h>

#include "tensor/cpu/cpu.h"

enum { CHUNKS = 48 }; /* chunks of a task: whole strips of products and butterflies */
_Static_assert(CHUNKS % SMALL_ROWS == 0 && CHUNKS % ATTENTION_PAD == 0, "whole strips");

/* A list of tiles in progress. */
struct tile_work {
    const struct kernels *k;
    const struct tiles *t;
    size_t from;     /* element of the whole vector that the op's vector begins with */
    int each, tasks; /* tiles of a task (1, or CHUNKS for chunks); tasks */
    size_t ld;       /* floats of a row, padded for the products */
    size_t half;     /* floats of half a row, padded; 0: rows are not folded */
    const float *bh; /* (h, h)                                   */
    const float *bw; /* (w, ld): a row for each frequency        */
    /* (w, ld): a column for each frequency. Folded rows: (2, w / 2, half), the half columns of
     * the even frequencies, then of the odd frequencies */
    float *turn;
};

/* A thread's scratch. */
struct tile_pieces {
    float *a, *b;          /* (rows of a task, the longest row) */
    uint32_t *keys, *room; /* (h, w) */
    float *row;            /* (ld)   */
    float *value;          /* (h, w) */
    int32_t *index;        /* (h, w); index and value have one element more */
    struct tile_cell {     /* (h, w), decode: sums of a coefficient, zero between tiles */
        float sum;
        uint32_t senders;
    } * cell;
};

/* Prepares work on n tiles. */
static struct tile_work work_of(struct device *dev, const struct tiles *t, int n, struct view basis)
{
    struct tile_work w = {.k = kernels_of(dev), .t = t, .each = t->h > 1 ? 1 : CHUNKS};
    w.tasks = (n + w.each - 1) / w.each;
    w.ld = round_up((size_t)t->w, ATTENTION_PAD);
    if (t->w % 2 == 0 && t->w > ATTENTION_PAD && t->w != DCT_SIDE)
        w.half = round_up((size_t)t->w / 2, ATTENTION_PAD);
    w.bh = (const float *)basis.data + t->basis_h;
    return w;
}

static struct tile_pieces pieces_of(const struct tile_work *w, struct room *room)
{
    const size_t size = (size_t)w->t->h * (size_t)w->t->w;
    const size_t area = (size_t)(w->each * w->t->h) * (w->half ? 2 * w->half : w->ld);
    struct tile_pieces p;
    p.a = cpu_take(room, area);
    p.b = cpu_take(room, area);
    p.keys = (uint32_t *)(void *)cpu_take(room, size);
    p.room = (uint32_t *)(void *)cpu_take(room, size);
    p.row = cpu_take(room, w->ld);
    p.value = cpu_take(room, size + 1);
    p.index = (int32_t *)(void *)cpu_take(room, size + 1);
    p.cell = (struct tile_cell *)(void *)cpu_take(room, 2 * size);
    return p;
}

/* Makes the matrices of side w: with padded rows, and transposed for products. */
static void take_basis(struct tile_work *w, struct view basis, struct room *room)
{
    const size_t n = (size_t)w->t->w, half = w->half;
    const float *from = (const float *)basis.data + w->t->basis_w;
    float *padded = w->ld == n ? NULL : cpu_take(room, n * w->ld);
    w->bw = padded ? padded : from;
    w->turn = n == DCT_SIDE ? NULL : cpu_take(room, half ? n * half : n * w->ld);
    if (!room->data || n == DCT_SIDE)
        return;
    if (padded)
        memset(padded, 0, n * w->ld * sizeof *padded);
    memset(w->turn, 0, (half ? n * half : n * w->ld) * sizeof *w->turn);
    for (size_t f = 0; f < n; f++) {
        if (padded)
            memcpy(padded + f * w->ld, from + f * n, n * sizeof *from);
        for (size_t i = 0; i < n / 2 && half; i++)
            w->turn[(f % 2 * (n / 2) + i) * half + f / 2] = from[f * n + i];
        for (size_t i = 0; i < n && !half; i++)
            w->turn[i * w->ld + f] = from[f * n + i];
    }
}

/* Returns the scratch of all threads, after the matrices; *each is the bytes of one thread.
 * NULL: too little memory. */
static char *open_tile_rooms(struct device *dev, struct tile_work *w, struct view basis,
                             size_t *each)
{
    struct room shared = {0}, one = {0};
    take_basis(w, basis, &shared);
    pieces_of(w, &one);
    *each = one.used;
    char *rooms = device_scratch(dev, shared.used + one.used * (size_t)dev->threads);
    if (!rooms)
        return NULL;
    struct room front = {.data = rooms, .size = shared.used};
    take_basis(w, basis, &front);
    return rooms + shared.used;
}

static struct tile_pieces pieces_here(const struct tile_work *w, char *rooms, size_t each)
{
    struct room room = {.data = rooms + each * (size_t)thread_index(), .size = each};
    return pieces_of(w, &room);
}

/* Returns the place of tile i in the vector (tile_at), and of its coefficients (kept_at). */
static size_t tile_at(const struct tile_work *w, int i)
{
    const struct tiles *t = w->t;
    return t->at - w->from + (size_t)(i / t->nx) * (size_t)t->h * t->stride +
           (size_t)(i % t->nx) * (size_t)t->w;
}

static size_t kept_at(const struct tiles *t, int i)
{
    return t->kept + (size_t)i * (size_t)t->keep;
}

/* c (m, n) = a b; n is a padded width. */
static void multiply_padded(const struct tile_work *w, int m, int n, int k, const float *a,
                            size_t a_row, size_t a_col, const float *b, size_t ldb, float *c,
                            size_t ldc)
{
    const struct gemm_kernels *f = w->k->small;
    f->direct(m, n, k, a, a_row, a_col, b, ldb, (size_t)f->columns, c, ldc, false);
}

/* p->a (rows, ld) = the transform along w of rows of m. */
static void along_w(const struct tile_work *w, const struct tile_pieces *p, const float *m,
                    size_t stride, int rows)
{
    const int n = w->t->w, middle = n / 2, half = (int)w->half;
    if (n == DCT_SIDE) {
        w->k->codec->rows(p->a, w->ld, m, stride, rows);
        return;
    }
    if (!half) {
        multiply_padded(w, rows, (int)w->ld, n, m, stride, 1, w->turn, w->ld, p->a, w->ld);
        return;
    }
    for (int r = 0; r < rows; r++)
        w->k->codec->fold(p->a + (size_t)r * w->ld, m + (size_t)r * stride, n);
    multiply_padded(w, rows, half, middle, p->a, w->ld, 1, w->turn, w->half, p->b, 2 * w->half);
    multiply_padded(w, rows, half, middle, p->a + middle, w->ld, 1,
                    w->turn + (size_t)middle * w->half, w->half, p->b + half, 2 * w->half);
    for (int r = 0; r < rows; r++) {
        const float *even = p->b + (size_t)r * 2 * w->half;
        float *to = p->a + (size_t)r * w->ld;
        w->k->codec->weave(to, even, even + half, middle);
        memset(to + n, 0, (w->ld - (size_t)n) * sizeof *to);
    }
}

static bool side_folds(int n)
{
    return n % 2 == 0 && n > 8;
}

/* Returns the transform along h of the rows in p->a, which it overwrites. Differences are stored
 * in the place of the mirrored rows, so the odd frequencies use the second half of the basis. */
static const float *along_h(const struct tile_work *w, const struct tile_pieces *p)
{
    const int ld = (int)w->ld;
    const size_t by = (size_t)w->t->h;
    int n = w->t->h;
    size_t step = 1; /* from one frequency to the next */
    if (n == DCT_SIDE) {
        w->k->codec->columns(p->a, w->ld, p->a, w->ld, ld);
        return p->a;
    }
    for (; side_folds(n); n /= 2, step *= 2) {
        const int half = n / 2;
        float *upper = p->a + (size_t)half * w->ld;
        for (int j = 0; j < half; j++)
            w->k->codec->mirror(p->a + (size_t)j * w->ld, p->a + (size_t)(n - 1 - j) * w->ld, w->ld,
                                false);
        multiply_padded(w, half, ld, half, w->bh + step * by + half, 2 * step * by, 1, upper, w->ld,
                        p->b + step * w->ld, 2 * step * w->ld);
    }
    multiply_padded(w, n, ld, n, w->bh, step * by, 1, p->a, w->ld, p->b, step * w->ld);
    return p->b;
}

/* p->b = the inverse transform along h of the rows in p->a: the steps of along_h backwards. */
static void back_along_h(const struct tile_work *w, const struct tile_pieces *p)
{
    const int h = w->t->h, ld = (int)w->ld;
    const size_t by = (size_t)h;
    int n = h;
    while (side_folds(n))
        n /= 2;
    size_t step = by / (size_t)n;
    multiply_padded(w, n, ld, n, w->bh, 1, step * by, p->a, step * w->ld, p->b, w->ld);
    for (; n < h; n *= 2) {
        step /= 2;
        multiply_padded(w, n, ld, n, w->bh + step * by + n, 1, 2 * step * by, p->a + step * w->ld,
                        2 * step * w->ld, p->b + (size_t)n * w->ld, w->ld);
        for (int j = 0; j < n; j++)
            w->k->codec->mirror(p->b + (size_t)j * w->ld, p->b + (size_t)(2 * n - 1 - j) * w->ld,
                                w->ld, true);
    }
}

/* y = the inverse transform of n coefficients, or y -= with `subtract`: first along w, which
 * gives a row for each frequency of h, then along h. */
static void inverse_tile(const struct tile_work *w, const struct tile_pieces *p,
                         const int32_t *index, const float *value, int n, float *y, bool subtract)
{
    const struct tiles *t = w->t;
    const struct codec_kernels *k = w->k->codec;
    float *rows = t->h > 1 ? p->a : p->row; /* p->a still has the other chunks */
    k->sum_rows(rows, t->h, t->w, w->ld, index, value, n, w->bw);
    if (t->h == DCT_SIDE && (size_t)t->w == w->ld) {
        k->columns_back(y, t->stride, rows, w->ld, t->w, subtract);
        return;
    }
    if (t->h == DCT_SIDE)
        k->columns_back(p->b, w->ld, rows, w->ld, (int)w->ld, false);
    else if (t->h > 1)
        back_along_h(w, p);
    const float *back = t->h > 1 ? p->b : rows;
    for (int r = 0; r < t->h; r++, y += t->stride, back += w->ld) {
        if (subtract)
            k->subtract(y, back, (size_t)t->w);
        else
            memcpy(y, back, (size_t)t->w * sizeof *y);
    }
}

/* An op on tiles. `run` handles the n tiles of a task and returns an index that is outside of a
 * tile if a message has one, else 0. */
struct tiles_job {
    uint32_t (*run)(const struct tiles_job *job, const struct tile_work *w,
                    const struct tile_pieces *p, int first, int n);
    float *vector;
    struct view index, value;
    int senders; /* decode: number of messages, and elements from one to the next */
    size_t index_step, value_step;
};

static void run_tiles(struct device *dev, const struct tiling *p, struct view basis,
                      const struct tiles_job *job)
{
    for (int k = 0; k < p->n; k++) {
        const struct tiles *t = &p->tiles[k];
        const int begin = p->end ? p->begin : 0, n = (p->end ? p->end : t->ny * t->nx) - begin;
        struct tile_work w = work_of(dev, t, n, basis);
        w.from = p->from;
        size_t each;
        char *rooms = open_tile_rooms(dev, &w, basis, &each);
        uint32_t beyond = 0;
        if (!rooms)
            return;
        for (int thread = 0; thread < dev->threads && job->senders; thread++) {
            struct room room = {.data = rooms + each * (size_t)thread, .size = each};
            memset(pieces_of(&w, &room).cell, 0, (size_t)(t->h * t->w) * sizeof(struct tile_cell));
        }
#pragma omp parallel for schedule(static) reduction(max                                            \
                                                    : beyond)                                      \
    num_threads(team_size(dev, (size_t)n *(size_t)(t->h * t->w)))
        for (int task = 0; task < w.tasks; task++) {
            const struct tile_pieces mine = pieces_here(&w, rooms, each);
            const int first = task * w.each;
            const uint32_t found =
                job->run(job, &w, &mine, begin + first, min_int(w.each, n - first));
            beyond = found > beyond ? found : beyond;
        }
        if (beyond)
            tiles_damaged(dev, t, beyond);
    }
}

/* Subtracts the kept coefficients of tile i from the vector; `c` are all its coefficients. */
static void keep_tile(const struct tiles_job *job, const struct tile_work *w,
                      const struct tile_pieces *p, int i, const float *c)
{
    const struct tiles *t = w->t;
    int32_t *where = (int32_t *)job->index.data + kept_at(t, i);
    float *m = job->vector + tile_at(w, i);
    w->k->codec->select(c, t->h, t->w, w->ld, t->keep, p->keys, p->room, p->index, where, p->value);
    for (int k = 0; k < t->keep && job->value.type == DTYPE_BF16; k++)
        p->value[k] = bf16_widen(bf16_round(p->value[k]));
    store_floats(w->k, job->value, kept_at(t, i), (size_t)t->keep, p->value);
    inverse_tile(w, p, where, p->value, t->keep, m, true);
}

static uint32_t encode_task(const struct tiles_job *job, const struct tile_work *w,
                            const struct tile_pieces *p, int first, int n)
{
    const struct tiles *t = w->t;
    const bool chunks = t->h == 1;
    along_w(w, p, job->vector + tile_at(w, first), chunks ? (size_t)t->w : t->stride,
            chunks ? n : t->h);
    const float *c = chunks ? p->a : along_h(w, p);
    for (int i = 0; i < n; i++)
        keep_tile(job, w, p, first + i, c + (size_t)i * w->ld);
    return 0;
}

void cpu_tiles_encode(struct device *dev, const struct tiling *p, struct view basis, struct view m,
                      struct view index, struct view value)
{
    run_tiles(
        dev, p, basis,
        &(struct tiles_job){.run = encode_task, .vector = m.data, .index = index, .value = value});
}

static const int32_t *sent_by(const struct tiles_job *job, const struct tiles *t, int i, int sender)
{
    return (const int32_t *)job->index.data + (size_t)sender * job->index_step + kept_at(t, i);
}

/* Adds the sent coefficients of tile i to p->cell. Returns an index outside of the tile, or 0. */
static uint32_t add_up(const struct tiles_job *job, const struct tile_work *w,
                       const struct tile_pieces *p, int i)
{
    const struct tiles *t = w->t;
    const uint32_t size = (uint32_t)(t->h * t->w);
    uint32_t beyond = 0;
    for (int r = 0; r < job->senders; r++) {
        const int32_t *where = sent_by(job, t, i, r);
        const size_t at = (size_t)r * job->value_step + kept_at(t, i);
        const float *value = load_floats(w->k, job->value, at, (size_t)t->keep, p->value);
        for (int k = 0; k < t->keep; k++) {
            const uint32_t e = (uint32_t)where[k];
            if (e >= size) {
                beyond = e;
                continue;
            }
            p->cell[e].sum += value[k];
            p->cell[e].senders++;
        }
    }
    return beyond;
}

/* Writes the mean of each sent coefficient to p->index and p->value, in the order in which they
 * were first sent, and zeroes p->cell. Returns the number of coefficients. */
static int list_means(const struct tiles_job *job, const struct tile_work *w,
                      const struct tile_pieces *p, int i)
{
    const struct tiles *t = w->t;
    const uint32_t size = (uint32_t)(t->h * t->w);
    int n = 0;
    for (int r = 0; r < job->senders; r++) {
        const int32_t *where = sent_by(job, t, i, r);
        for (int k = 0; k < t->keep; k++) { /* no unpredictable branch */
            const uint32_t e = (uint32_t)where[k];
            if (e >= size)
                continue;
            const struct tile_cell c = p->cell[e];
            p->index[n] = (int32_t)e;
            p->value[n] = c.sum / (float)(c.senders + !c.senders);
            n += c.senders > 0;
            p->cell[e] = (struct tile_cell){0};
        }
    }
    return n;
}

static uint32_t decode_task(const struct tiles_job *job, const struct tile_work *w,
                            const struct tile_pieces *p, int first, int n)
{
    uint32_t beyond = 0;
    for (int i = first; i < first + n; i++) {
        float *y = job->vector + tile_at(w, i);
        const uint32_t found = add_up(job, w, p, i);
        const int means = list_means(job, w, p, i);
        inverse_tile(w, p, p->index, p->value, means, y, false);
        beyond = found ? found : beyond;
    }
    return beyond;
}

void cpu_tiles_decode(struct device *dev, const struct tiling *p, struct view basis, int senders,
                      struct view y, struct view index, size_t index_step, struct view value,
                      size_t value_step)
{
    run_tiles(
        dev, p, basis,
        &(struct tiles_job){decode_task, y.data, index, value, senders, index_step, value_step});
}
