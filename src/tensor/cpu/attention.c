/* Attention, never holding more than a few rows of scores (after FlashAttention, Dao et al.
 * 2022, without its online softmax: a row of scores fits the cache, so a row is normalised at
 * once).
 *
 * A task is a head of one sequence (forward) or a key/value head with the query heads that read it
 * (backward, so that dk and dv are summed by one thread in a fixed order). A task copies its keys
 * and values into scratch as fp32, transposed where they are contracted over the width. Queries
 * come in strips of ATTENTION_STRIP rows: a strip meets only the keys that its last row may see. */
#include "tensor/cpu/attention.h"

struct forward_room {
    float *kt; /* (panels, width, PANEL) */
    float *v;  /* (t_k, w)               */
    float *q;  /* (STRIP, w)             */
    float *s;  /* (STRIP, row)           */
    float *o;  /* (STRIP, w)             */
};

static struct forward_room forward_room(const struct attention *p, size_t w, size_t row,
                                        struct room *rest)
{
    struct forward_room room;
    room.kt = cpu_take(rest, row * (size_t)p->width);
    room.s = cpu_take(rest, STRIP * row);
    room.v = cpu_take(rest, (size_t)p->t_k * w);
    room.q = cpu_take(rest, STRIP * w);
    room.o = cpu_take(rest, STRIP * w);
    return room;
}

static void forward_strip(const struct head *h, const struct forward_room *room, struct view o,
                          struct view q, float *lse, int i, int rows)
{
    const struct attention *p = h->p;
    const struct attention_kernels *f = h->k->attention;
    int lo = key_start(p, i), hi = key_end(p, i + rows - 1), base = lo / PANEL * PANEL;
    size_t o_at = query_at(h, i, p->o_stride);
    struct rows out = {room->o, h->w};
    if (in_place(h, o))
        out = (struct rows){(float *)o.data + o_at, (size_t)p->o_stride};
    float inverse[STRIP];

    strip_product(h, room->s,
                  open_rows(h, room->q, q, query_at(h, i, p->q_stride), p->q_stride, rows),
                  room->kt, rows, lo, hi);
    for (int r = 0; r < rows; r++)
        inverse[r] = f->softmax(room->s + (size_t)r * h->row + base, key_start(p, i + r) - base,
                                key_end(p, i + r) - base, hi - base, p->scale, &lse[i + r]);
    f->product(rows, (int)h->w, hi - base, room->s + base, h->row, 1, room->v + (size_t)base * h->w,
               h->w, out.at, out.ld, false);
    for (int r = 0; r < rows; r++)
        h->k->vector->scale(out.at + (size_t)r * out.ld, inverse[r], h->w);
    if (!in_place(h, o))
        store_rows(h, o, o_at, p->o_stride, room->o, rows);
}

static void forward_head(const struct head *h, const struct forward_room *room, struct view o,
                         struct view q, struct view k, struct view v, float *lse)
{
    const struct attention *p = h->p;
    open_panels(h, room->kt, room->v, k, p->k_stride);
    load_rows(h, room->v, v, key_at(h, 0, p->v_stride), p->v_stride, p->t_k);
    for (int i = 0; i < p->t_q; i += STRIP)
        forward_strip(h, room, o, q, lse, i, min_int(STRIP, p->t_q - i));
}

/* A few queries against a long cache: every key and value is read once, where it lies. */
static void decode_head(const struct head *h, const struct forward_room *room, struct view o,
                        struct view q, struct view k, struct view v, float *lse)
{
    const struct attention *p = h->p;
    size_t width = (size_t)p->width;
    for (int i = 0; i < p->t_q; i++) {
        int lo = key_start(p, i), hi = key_end(p, i);
        load_rows(h, room->q, q, query_at(h, i, p->q_stride), p->q_stride, 1);
        for (int j = lo; j < hi; j++) {
            const float *key = load(h->k, k, key_at(h, j, p->k_stride), width, room->v);
            room->s[j] = h->k->attention->dot(room->q, key, p->width);
        }
        float inverse = h->k->attention->softmax(room->s, lo, hi, hi, p->scale, &lse[i]);
        memset(room->o, 0, h->w * sizeof *room->o);
        for (int j = lo; j < hi; j++) {
            const float *value = load(h->k, v, key_at(h, j, p->v_stride), width, room->v);
            h->k->vector->axpy(room->o, room->s[j], value, width);
        }
        h->k->vector->scale(room->o, inverse, width);
        store_rows(h, o, query_at(h, i, p->o_stride), p->o_stride, room->o, 1);
    }
}

void cpu_attention_forward(struct device *dev, const struct attention *p, struct view o,
                           struct view q, struct view k, struct view v, struct view lse)
{
    assert(p->heads % p->kv_heads == 0 && p->t_q <= p->t_k && lse.type == DTYPE_F32);
    size_t w = round_up((size_t)p->width, PAD), row = row_size(p);
    struct room one = {0};
    forward_room(p, w, row, &one);
    char *rooms = device_scratch(dev, one.used * (size_t)dev->threads);
    if (!rooms)
        return;
#pragma omp parallel for schedule(dynamic) num_threads(team(dev, attention_work(p)))
    for (int task = 0; task < p->batch * p->heads; task++) {
        struct room rest = {.data = rooms + one.used * (size_t)thread_index(), .size = one.used};
        struct forward_room room = forward_room(p, w, row, &rest);
        int head = task % p->heads;
        struct head h = {
            kernels_of(dev), p, task / p->heads, head, head / (p->heads / p->kv_heads), w, row};
        float *out = (float *)lse.data + (size_t)task * (size_t)p->t_q;
        if (p->t_q < STRIP / 2)
            decode_head(&h, &room, o, q, k, v, out);
        else
            forward_head(&h, &room, o, q, k, v, out);
    }
}
