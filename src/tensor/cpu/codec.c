/* Tiles of the cosine transform over threads: one tile at a time, or several chunks, which stay in
 * the first caches from the transform to what is taken out. */
#include <string.h>

#include "tensor/cpu/cpu.h"

enum { CHUNKS = 4 * ATTENTION_STRIP }; /* that are transformed at once */

/* A list of tiles as it is worked on. */
struct work {
    const struct kernels *k;
    const struct tiles *t;
    int rows; /* of a task: of a tile, or chunks */
    int tasks;
    size_t elements;
    size_t ld;        /* a row's floats, padded for the products */
    const float *bh;  /* (h, h)   */
    float *bw, *turn; /* (w, ld): frequencies in rows, in columns */
};

/* What a thread needs. */
struct pieces {
    float *along, *c; /* (rows, ld): transformed along w, along both */
    uint32_t *keys;   /* (h, w)  */
    float *row;       /* (ld)    */
    float *value;     /* (h, w)  */
    int32_t *index;   /* (h, w)  */
};

static struct work work_of(struct device *dev, const struct tiles *t, struct view basis)
{
    struct work w = {.k = kernels_of(dev), .t = t, .rows = t->h, .tasks = t->ny * t->nx};
    w.elements = (size_t)t->ny * (size_t)t->nx * (size_t)t->h * (size_t)t->w;
    w.ld = round_up((size_t)t->w, ATTENTION_PAD);
    w.bh = (const float *)basis.data + t->basis_h;
    if (t->h == 1) {
        w.rows = CHUNKS;
        w.tasks = (t->ny * t->nx + CHUNKS - 1) / CHUNKS;
    }
    return w;
}

static struct pieces pieces_of(const struct work *w, struct room *room)
{
    const size_t area = (size_t)w->rows * w->ld, size = (size_t)w->t->h * (size_t)w->t->w;
    struct pieces p;
    p.along = cpu_take(room, area);
    p.c = cpu_take(room, area);
    p.keys = (uint32_t *)(void *)cpu_take(room, size);
    p.row = cpu_take(room, w->ld);
    p.value = cpu_take(room, size);
    p.index = (int32_t *)(void *)cpu_take(room, size);
    return p;
}

/* The matrices of w with padded rows, in the room. */
static void take_basis(struct work *w, struct view basis, struct room *room)
{
    const size_t n = (size_t)w->t->w;
    const float *from = (const float *)basis.data + w->t->basis_w;
    w->bw = cpu_take(room, n * w->ld);
    w->turn = cpu_take(room, n * w->ld);
    if (!room->data)
        return;
    memset(w->bw, 0, n * w->ld * sizeof *w->bw);
    memset(w->turn, 0, n * w->ld * sizeof *w->turn);
    for (size_t f = 0; f < n; f++)
        for (size_t i = 0; i < n; i++)
            w->bw[f * w->ld + i] = w->turn[i * w->ld + f] = from[f * n + i];
}

/* Scratch for the matrices and every thread; `each`: a thread's bytes. NULL: no memory. */
static char *open_rooms(struct device *dev, struct work *w, struct view basis, size_t *each)
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

static struct pieces pieces_here(const struct work *w, char *rooms, size_t each)
{
    struct room room = {.data = rooms + each * (size_t)thread_index(), .size = each};
    return pieces_of(w, &room);
}

/* Tile i of the list: where it begins, and where its coefficients do. */
static size_t tile_at(const struct tiles *t, int i)
{
    return t->at + (size_t)(i / t->nx) * (size_t)t->h * t->stride +
           (size_t)(i % t->nx) * (size_t)t->w;
}

static size_t kept_at(const struct tiles *t, int i)
{
    return t->kept + (size_t)i * (size_t)t->keep;
}

/* Frequencies of a side h are even or odd about its middle, in turn: half of the rows is enough for
 * each kind, sums of what mirrors itself for the one and differences for the other. So both
 * transforms along an even h take half the products. */

/* c = along h of the rows in p->along, which they may take; p->c is the other room. */
static const float *along_h(const struct work *w, const struct pieces *p)
{
    const struct attention_kernels *a = w->k->attention;
    const int h = w->t->h, half = h / 2, ld = (int)w->ld;
    const size_t by = (size_t)h, side = (size_t)half * w->ld;
    if (h % 2) {
        a->product(h, ld, h, w->bh, by, 1, p->along, w->ld, p->c, w->ld, false);
        return p->c;
    }
    for (int j = 0; j < half; j++) {
        float *sum = p->c + (size_t)j * w->ld;
        w->k->codec->mirror(sum, sum + side, p->along + (size_t)j * w->ld,
                            p->along + (size_t)(h - 1 - j) * w->ld, w->ld, false);
    }
    a->product(half, ld, half, w->bh, 2 * by, 1, p->c, w->ld, p->along, 2 * w->ld, false);
    a->product(half, ld, half, w->bh + by, 2 * by, 1, p->c + side, w->ld, p->along + w->ld,
               2 * w->ld, false);
    return p->along;
}

/* y += the inverse along h of the rows in p->along. */
static void back_along_h(const struct work *w, const struct pieces *p, float *y)
{
    const struct attention_kernels *a = w->k->attention;
    const struct tiles *t = w->t;
    const int h = t->h, half = h / 2, ld = (int)w->ld;
    const size_t by = (size_t)h, side = (size_t)half * w->ld, n = (size_t)t->w;
    if (h % 2) {
        a->product(h, ld, h, w->bh, 1, by, p->along, w->ld, p->c, w->ld, false);
        for (int r = 0; r < h; r++)
            w->k->vector->add(y + (size_t)r * t->stride, p->c + (size_t)r * w->ld, n);
        return;
    }
    a->product(half, ld, half, w->bh, 1, 2 * by, p->along, 2 * w->ld, p->c, w->ld, false);
    a->product(half, ld, half, w->bh + by, 1, 2 * by, p->along + w->ld, 2 * w->ld, p->c + side,
               w->ld, false);
    for (int j = 0; j < half; j++) {
        const float *even = p->c + (size_t)j * w->ld;
        w->k->codec->mirror(y + (size_t)j * t->stride, y + (size_t)(h - 1 - j) * t->stride, even,
                            even + side, n, true);
    }
}

/* y, a tile, += scale * the inverse transform of n coefficients: along w as they are, a row for
 * each frequency of h, and then of these rows along h. */
static void spread(const struct work *w, const struct pieces *p, float *y, float scale,
                   const int32_t *index, const float *value, int n)
{
    const struct tiles *t = w->t;
    float *rows = t->h > 1 ? p->along : p->row; /* chunks still need theirs */
    memset(rows, 0, (size_t)t->h * w->ld * sizeof *rows);
    w->k->codec->sum_rows(rows, t->w, w->ld, scale, index, value, n, w->bw);
    if (t->h > 1)
        back_along_h(w, p, y);
    else
        w->k->vector->add(y, rows, (size_t)t->w);
}

/* Takes what is kept of one tile, whose coefficients are c, out of it. */
static void keep_tile(const struct work *w, const struct pieces *p, int i, const float *c, float *m,
                      struct view index, struct view value)
{
    const struct tiles *t = w->t;
    int32_t *where = (int32_t *)index.data + kept_at(t, i);
    w->k->codec->select(c, t->h, t->w, w->ld, t->keep, p->keys, p->index, where, p->value);
    for (int k = 0; k < t->keep && value.type == DTYPE_BF16; k++)
        p->value[k] = bf16_widen(bf16_round(p->value[k]));
    store(w->k, value, kept_at(t, i), (size_t)t->keep, p->value);
    spread(w, p, m + tile_at(t, i), -1, where, p->value, t->keep);
}

static void encode_task(const struct work *w, const struct pieces *p, int task, float *m,
                        struct view index, struct view value)
{
    const struct tiles *t = w->t;
    const struct attention_kernels *a = w->k->attention;
    const bool chunks = t->h == 1;
    const int first = chunks ? task * CHUNKS : task;
    const int n = chunks ? min_int(CHUNKS, t->ny * t->nx - first) : 1;
    const int rows = chunks ? n : t->h;
    const size_t stride = chunks ? (size_t)t->w : t->stride;
    a->product(rows, (int)w->ld, t->w, m + tile_at(t, first), stride, 1, w->turn, w->ld, p->along,
               w->ld, false);
    const float *c = chunks ? p->along : along_h(w, p);
    for (int i = 0; i < n; i++)
        keep_tile(w, p, first + i, c + (size_t)i * w->ld, m, index, value);
}

void cpu_tiles_encode(struct device *dev, const struct tiling *p, struct view basis, struct view m,
                      struct view index, struct view value)
{
    for (int k = 0; k < p->n; k++) {
        const struct tiles *t = &p->tiles[k];
        struct work w = work_of(dev, t, basis);
        size_t each;
        char *rooms = open_rooms(dev, &w, basis, &each);
        if (!rooms)
            return;
#pragma omp parallel for schedule(static) num_threads(team(dev, w.elements))
        for (int task = 0; task < w.tasks; task++) {
            const struct pieces mine = pieces_here(&w, rooms, each);
            encode_task(&w, &mine, task, m.data, index, value);
        }
    }
}

/* What was sent: by how many, and how far apart that of one and the next is. */
struct sent {
    int senders;
    struct view index, value;
    size_t index_step, value_step;
};

/* The mean of each coefficient over those who sent it: how many there are, in their order, with
 * their values in p->value. */
static int join(const struct work *w, const struct pieces *p, int i, const struct sent *s)
{
    const struct tiles *t = w->t;
    const int size = t->h * t->w;
    float *sum = p->value;
    uint32_t *count = p->keys;
    memset(count, 0, (size_t)size * sizeof *count);
    for (int r = 0; r < s->senders; r++) {
        const int32_t *where =
            (const int32_t *)s->index.data + (size_t)r * s->index_step + kept_at(t, i);
        const size_t at = (size_t)r * s->value_step + kept_at(t, i);
        for (int k = 0; k < t->keep; k++) {
            const float v = s->value.type == DTYPE_F32
                                ? ((const float *)s->value.data)[at + (size_t)k]
                                : bf16_widen(((const uint16_t *)s->value.data)[at + (size_t)k]);
            sum[where[k]] = count[where[k]]++ ? sum[where[k]] + v : v;
        }
    }
    const int n = w->k->codec->find(count, size, 1, p->index);
    for (int k = 0; k < n; k++) /* k <= index */
        sum[k] = sum[p->index[k]] / (float)count[p->index[k]];
    return n;
}

void cpu_tiles_decode(struct device *dev, const struct tiling *p, struct view basis, int senders,
                      struct view y, struct view index, size_t index_step, struct view value,
                      size_t value_step)
{
    const struct sent sent = {senders, index, value, index_step, value_step};
    for (int k = 0; k < p->n; k++) {
        const struct tiles *t = &p->tiles[k];
        struct work w = work_of(dev, t, basis);
        size_t each;
        char *rooms = open_rooms(dev, &w, basis, &each);
        if (!rooms)
            return;
#pragma omp parallel for schedule(static) num_threads(team(dev, w.elements))
        for (int i = 0; i < t->ny * t->nx; i++) {
            const struct pieces mine = pieces_here(&w, rooms, each);
            const int n = join(&w, &mine, i, &sent);
            float *to = (float *)y.data + tile_at(t, i);
            for (int r = 0; r < t->h; r++)
                memset(to + (size_t)r * t->stride, 0, (size_t)t->w * sizeof *to);
            spread(&w, &mine, to, 1, mine.index, mine.value, n);
        }
    }
}

_Static_assert(CHUNK % 8 == 0, "a chunk of packed elements is whole bytes");

static void pack(int bits, uint8_t *y, const int32_t *x, size_t n)
{
    const uint32_t mask = ((uint32_t)1 << bits) - 1;
    uint64_t ready = 0;
    int fill = 0;
    for (size_t i = 0; i < n; i++) {
        ready |= (uint64_t)((uint32_t)x[i] & mask) << fill;
        for (fill += bits; fill >= 8; fill -= 8, ready >>= 8)
            *y++ = (uint8_t)ready;
    }
    if (fill)
        *y = (uint8_t)ready;
}

/* An element lies in three bytes at most. */
static void unpack(int bits, int32_t *y, const uint8_t *x, size_t n)
{
    const uint32_t mask = ((uint32_t)1 << bits) - 1;
    const size_t bytes = (n * (size_t)bits + 7) / 8;
    for (size_t i = 0; i < n; i++) {
        const size_t at = i * (size_t)bits / 8, left = bytes - at;
        const uint32_t three = x[at] | (left > 1 ? (uint32_t)x[at + 1] << 8 : 0) |
                               (left > 2 ? (uint32_t)x[at + 2] << 16 : 0);
        y[i] = (int32_t)(three >> i * (size_t)bits % 8 & mask);
    }
}

void cpu_bits_pack(struct device *dev, int bits, struct view y, struct view x, size_t count)
{
    (void)dev; /* without OpenMP */
#pragma omp parallel for schedule(static) num_threads(team(dev, count))
    for (size_t at = 0; at < count; at += CHUNK)
        pack(bits, (uint8_t *)y.data + at / 8 * (size_t)bits, (const int32_t *)x.data + at,
             min_size(CHUNK, count - at));
}

void cpu_bits_unpack(struct device *dev, int bits, struct view y, struct view x, size_t count)
{
    (void)dev; /* without OpenMP */
#pragma omp parallel for schedule(static) num_threads(team(dev, count))
    for (size_t at = 0; at < count; at += CHUNK)
        unpack(bits, (int32_t *)y.data + at, (const uint8_t *)x.data + at / 8 * (size_t)bits,
               min_size(CHUNK, count - at));
}

void cpu_sign(struct device *dev, struct view y, struct view x, size_t count)
{
    const struct kernels *k = kernels_of(dev);
#pragma omp parallel for schedule(static) num_threads(team(dev, count))
    for (size_t at = 0; at < count; at += CHUNK) {
        float x_room[CHUNK], y_room[CHUNK];
        const size_t n = min_size(CHUNK, count - at);
        float *out = place(y, at, y_room);
        k->codec->sign(out, load(k, x, at, n, x_room), n);
        store(k, y, at, n, out);
    }
}
