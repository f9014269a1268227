/* The backward pass of attention. Probabilities come again from the saved lse, and with
 * delta = sum(dy * o) of a row
 *     dv += p^T dy,   ds = p * (dy v^T - delta) * scale,   dq = ds k,   dk += ds^T q.
 * Queries come in blocks of strips: a strip is the unit of dq, a block that of dk and dv, whose
 * sums it reads and writes once. */
#include "tensor/cpu/attention.h"

enum { BLOCK = 4 * STRIP };

struct backward_room {
    float *kt, *vt;     /* (panels, width, PANEL) */
    float *k, *dk, *dv; /* (t_k, w)              */
    float *q, *dy, *dq; /* (BLOCK, w)            */
    float *s, *ds;      /* (BLOCK, row)          */
};

static struct backward_room backward_room(const struct attention *p, size_t w, size_t row,
                                          struct room *rest)
{
    struct backward_room room;
    size_t panels = row * (size_t)p->width, keys = (size_t)p->t_k * w;
    room.kt = cpu_take(rest, panels);
    room.vt = cpu_take(rest, panels);
    room.s = cpu_take(rest, BLOCK * row);
    room.ds = cpu_take(rest, BLOCK * row);
    room.k = cpu_take(rest, keys);
    room.dk = cpu_take(rest, keys);
    room.dv = cpu_take(rest, keys);
    room.q = cpu_take(rest, BLOCK * w);
    room.dy = cpu_take(rest, BLOCK * w);
    room.dq = cpu_take(rest, BLOCK * w);
    return room;
}

/* delta of query i; dy is its row in the block. */
static float row_delta(const struct head *h, const float *dy, struct view o, int i)
{
    float sum = 0, room[256];
    size_t at = query_at(h, i, h->p->o_stride);
    for (int d = 0; d < h->p->width; d += 256) {
        int n = min_int(256, h->p->width - d);
        sum += h->k->attention->dot(dy + d, load(h->k, o, at + (size_t)d, (size_t)n, room), n);
    }
    return sum;
}

/* A block of queries: rows of q, dy and dq, and the keys [first, end) that its rows meet; `first`
 * begins a panel. */
struct block {
    struct rows q, dy, dq;
    int i, rows, first, end;
};

static struct rows skip_rows(struct rows rows, int n)
{
    return (struct rows){rows.at + (size_t)n * rows.ld, rows.ld};
}

/* p, ds and dq of rows [at, at + rows) of a block; p and ds are zero where a query does not see a
 * key. */
static void backward_strip(const struct head *h, const struct backward_room *room,
                           const struct block *block, struct view o, const float *lse, int at,
                           int rows)
{
    const struct attention *p = h->p;
    const struct attention_kernels *f = h->k->attention;
    int i = block->i + at, first = block->first;
    int lo = key_start(p, i), hi = key_end(p, i + rows - 1);
    float *s = room->s + (size_t)at * h->row, *ds = room->ds + (size_t)at * h->row;
    struct rows dy = skip_rows(block->dy, at), dq = skip_rows(block->dq, at);

    strip_product(h, s, skip_rows(block->q, at), room->kt, rows, lo, hi);
    strip_product(h, ds, dy, room->vt, rows, lo, hi);
    for (int r = 0; r < rows; r++) {
        size_t row = (size_t)r * h->row + (size_t)first;
        f->softmax_backward(s + row, ds + row, key_start(p, i + r) - first,
                            key_end(p, i + r) - first, block->end - first, p->scale, lse[i + r],
                            row_delta(h, dy.at + (size_t)r * dy.ld, o, i + r));
    }
    f->product(rows, (int)h->w, hi - first, ds + first, h->row, 1, room->k + (size_t)first * h->w,
               h->w, dq.at, dq.ld, false);
}

static void backward_block(const struct head *h, const struct backward_room *room, struct view dq,
                           struct view dy, struct view o, struct view q, const float *lse, int i,
                           int rows)
{
    const struct attention *p = h->p;
    const struct attention_kernels *f = h->k->attention;
    size_t q_at = query_at(h, i, p->q_stride), dy_at = query_at(h, i, p->o_stride);
    struct block block = {.q = open_rows(h, room->q, q, q_at, p->q_stride, rows),
                          .dy = open_rows(h, room->dy, dy, dy_at, p->o_stride, rows),
                          .dq = {room->dq, h->w},
                          .i = i,
                          .rows = rows,
                          .first = key_start(p, i) / PANEL * PANEL,
                          .end = key_end(p, i + rows - 1)};
    if (in_place(h, dq))
        block.dq = (struct rows){(float *)dq.data + q_at, (size_t)p->q_stride};
    int keys = block.end - block.first;
    size_t skip = (size_t)block.first * h->w;

    for (int r = 0; r < rows; r += STRIP)
        backward_strip(h, room, &block, o, lse, r, min_int(STRIP, rows - r));
    if (!in_place(h, dq))
        store_rows(h, dq, q_at, p->q_stride, room->dq, rows);
    f->product(keys, (int)h->w, rows, room->s + block.first, 1, h->row, block.dy.at, block.dy.ld,
               room->dv + skip, h->w, true);
    f->product(keys, (int)h->w, rows, room->ds + block.first, 1, h->row, block.q.at, block.q.ld,
               room->dk + skip, h->w, true);
}

void cpu_attention_backward(struct device *dev, const struct attention *p, struct view dq,
                            struct view dk, struct view dv, struct view dy, struct view o,
                            struct view q, struct view k, struct view v, struct view lse)
{
    assert(p->heads % p->kv_heads == 0 && p->t_q == p->t_k && lse.type == DTYPE_F32);
    size_t w = round_up((size_t)p->width, PAD), row = row_size(p), keys = (size_t)p->t_k * w;
    struct room one = {0};
    backward_room(p, w, row, &one);
    char *rooms = device_scratch(dev, one.used * (size_t)dev->threads);
    if (!rooms)
        return;
    int group = p->heads / p->kv_heads;
#pragma omp parallel for schedule(dynamic) num_threads(team(dev, attention_work(p)))
    for (int task = 0; task < p->batch * p->kv_heads; task++) {
        struct room rest = {.data = rooms + one.used * (size_t)thread_index(), .size = one.used};
        struct backward_room room = backward_room(p, w, row, &rest);
        struct head h = {kernels_of(dev), p, task / p->kv_heads, 0, task % p->kv_heads, w, row};
        open_panels(&h, room.vt, room.k, v, p->v_stride);
        open_panels(&h, room.kt, room.k, k, p->k_stride);
        load_rows(&h, room.k, k, key_at(&h, 0, p->k_stride), p->k_stride, p->t_k);
        memset(room.dk, 0, keys * sizeof(float));
        memset(room.dv, 0, keys * sizeof(float));
        for (int g = 0; g < group; g++) {
            h.head = h.kv_head * group + g;
            const float *row_lse =
                (float *)lse.data + (size_t)(h.b * p->heads + h.head) * (size_t)p->t_q;
            for (int i = 0; i < p->t_q; i += BLOCK)
                backward_block(&h, &room, dq, dy, o, q, row_lse, i, min_int(BLOCK, p->t_q - i));
        }
        store_rows(&h, dk, key_at(&h, 0, p->k_stride), p->k_stride, room.dk, p->t_k);
        store_rows(&h, dv, key_at(&h, 0, p->v_stride), p->v_stride, room.dv, p->t_k);
    }
}
