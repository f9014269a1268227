/* The backward pass of causal attention. Probabilities come again from the saved lse, and with
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

static size_t backward_room_size(const struct attention *p, size_t w, size_t row)
{
    return round_up(2 * row * (size_t)p->width + 3 * (size_t)p->t_k * w + BLOCK * (2 * row + 3 * w),
                    16);
}

static struct backward_room backward_room_at(const struct attention *p, size_t w, size_t row,
                                             float *at)
{
    struct backward_room room;
    size_t panels = row * (size_t)p->width, keys = (size_t)p->t_k * w;
    room.kt = at, at += panels;
    room.vt = at, at += panels;
    room.s = at, at += BLOCK * row;
    room.ds = at, at += BLOCK * row;
    room.k = at, at += keys;
    room.dk = at, at += keys;
    room.dv = at, at += keys;
    room.q = at, at += BLOCK * w;
    room.dy = at, at += BLOCK * w;
    room.dq = at;
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

/* p and ds of the strip of queries [i, i + rows), then its dq. `first`: the block's first key
 * panel, `end`: the block's last key + 1; p and ds are zero where a query does not see a key. */
static void backward_strip(const struct head *h, const struct backward_room *room, struct view o,
                           const float *lse, int i, int rows, int at, int first, int end)
{
    const struct attention *p = h->p;
    const struct attention_kernels *f = h->k->attention;
    int lo = key_start(p, i), hi = key_end(p, i + rows - 1);
    size_t r0 = (size_t)at;
    float *s = room->s + r0 * h->row, *ds = room->ds + r0 * h->row;
    const float *dy = room->dy + r0 * h->w;

    strip_product(h, s, room->q + r0 * h->w, room->kt, rows, lo, hi);
    strip_product(h, ds, dy, room->vt, rows, lo, hi);
    for (int r = 0; r < rows; r++) {
        size_t row = (size_t)r * h->row + (size_t)first;
        f->softmax_backward(s + row, ds + row, key_start(p, i + r) - first,
                            key_end(p, i + r) - first, end - first, p->scale, lse[i + r],
                            row_delta(h, dy + (size_t)r * h->w, o, i + r));
    }
    f->product(rows, (int)h->w, hi - first, ds + first, h->row, 1, room->k + (size_t)first * h->w,
               h->w, room->dq + r0 * h->w, h->w, false);
}

static void backward_block(const struct head *h, const struct backward_room *room, struct view dq,
                           struct view dy, struct view o, struct view q, const float *lse, int i,
                           int rows)
{
    const struct attention *p = h->p;
    const struct attention_kernels *f = h->k->attention;
    int first = key_start(p, i) / PANEL * PANEL, end = key_end(p, i + rows - 1);
    size_t skip = (size_t)first * h->w;

    load_rows(h, room->q, q, query_at(h, i, p->q_stride), p->q_stride, rows);
    load_rows(h, room->dy, dy, query_at(h, i, p->o_stride), p->o_stride, rows);
    for (int r = 0; r < rows; r += STRIP)
        backward_strip(h, room, o, lse, i + r, min_int(STRIP, rows - r), r, first, end);
    store_rows(h, dq, query_at(h, i, p->q_stride), p->q_stride, room->dq, rows);
    f->product(end - first, (int)h->w, rows, room->s + first, 1, h->row, room->dy, h->w,
               room->dv + skip, h->w, true);
    f->product(end - first, (int)h->w, rows, room->ds + first, 1, h->row, room->q, h->w,
               room->dk + skip, h->w, true);
}

void cpu_attention_backward(struct device *dev, const struct attention *p, struct view dq,
                            struct view dk, struct view dv, struct view dy, struct view o,
                            struct view q, struct view k, struct view v, struct view lse)
{
    assert(p->heads % p->kv_heads == 0 && p->t_q == p->t_k && lse.type == DTYPE_F32);
    size_t w = round_up((size_t)p->width, PAD), row = row_size(p), keys = (size_t)p->t_k * w;
    size_t size = backward_room_size(p, w, row);
    float *rooms = device_scratch(dev, size * (size_t)dev->threads * sizeof *rooms);
    if (!rooms)
        return;
    int group = p->heads / p->kv_heads;
#pragma omp parallel for schedule(dynamic) num_threads(team(dev, attention_work(p)))
    for (int task = 0; task < p->batch * p->kv_heads; task++) {
        struct backward_room room =
            backward_room_at(p, w, row, rooms + size * (size_t)thread_index());
        struct head h = {kernels_of(dev), p, task / p->kv_heads, 0, task % p->kv_heads, w, row};
        load_rows(&h, room.k, v, key_at(&h, 0, p->v_stride), p->v_stride, p->t_k);
        h.k->attention->transpose(room.vt, room.k, w, p->t_k, p->width);
        load_rows(&h, room.k, k, key_at(&h, 0, p->k_stride), p->k_stride, p->t_k);
        h.k->attention->transpose(room.kt, room.k, w, p->t_k, p->width);
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
