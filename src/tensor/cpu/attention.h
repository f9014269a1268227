/* Shared by the two passes of attention: where a head's rows are, and the score product. */
#ifndef SOTTO_TENSOR_CPU_ATTENTION_H
#define SOTTO_TENSOR_CPU_ATTENTION_H

#include <assert.h>

#include "tensor/cpu/cpu.h"

enum { PAD = ATTENTION_PAD, PANEL = ATTENTION_PANEL, STRIP = ATTENTION_STRIP };

/* One task's place in the problem. */
struct head {
    const struct kernels *k;
    const struct attention *p;
    int b, head, kv_head;
    size_t w;   /* width, padded                    */
    size_t row; /* floats of a row of scores        */
};

/* Keys [lo, hi) that query i sees. */
static inline int key_end(const struct attention *p, int i)
{
    return p->whole ? p->t_k : p->t_k - p->t_q + i + 1;
}

static inline int key_start(const struct attention *p, int i)
{
    int end = key_end(p, i);
    return p->window > 0 && !p->whole && end > p->window ? end - p->window : 0;
}

static inline size_t query_at(const struct head *h, int i, int stride)
{
    size_t row = (size_t)h->b * (size_t)h->p->t_q + (size_t)i;
    return row * (size_t)stride + (size_t)h->head * (size_t)h->p->width;
}

static inline size_t key_at(const struct head *h, int j, int stride)
{
    size_t sequence = h->p->kv_batch_stride;
    if (sequence == 0)
        sequence = (size_t)h->p->t_k * (size_t)stride;
    return (size_t)h->b * sequence + (size_t)j * (size_t)stride +
           (size_t)h->kv_head * (size_t)h->p->width;
}

/* Rows of one head as fp32. */
struct rows {
    float *at;
    size_t ld;
};

/* `rows` rows into y (rows, w), the padding zero. */
static inline struct rows load_rows(const struct head *h, float *y, struct view x, size_t at,
                                    int stride, int rows)
{
    size_t width = (size_t)h->p->width;
    for (int r = 0; r < rows; r++, at += (size_t)stride) {
        float *to = y + (size_t)r * h->w;
        const float *from = load(h->k, x, at, width, to);
        if (from != to)
            memcpy(to, from, width * sizeof *to);
        if (h->w > width)
            memset(to + width, 0, (h->w - width) * sizeof *to);
    }
    return (struct rows){y, h->w};
}

/* Rows that need no padding and no widening are used where they lie. */
static inline bool in_place(const struct head *h, struct view x)
{
    return x.type == DTYPE_F32 && h->w == (size_t)h->p->width;
}

static inline struct rows open_rows(const struct head *h, float *room, struct view x, size_t at,
                                    int stride, int rows)
{
    if (in_place(h, x))
        return (struct rows){(float *)x.data + at, (size_t)stride};
    return load_rows(h, room, x, at, stride, rows);
}

static inline void store_rows(const struct head *h, struct view y, size_t at, int stride,
                              const float *x, int rows)
{
    for (int r = 0; r < rows; r++, x += h->w, at += (size_t)stride)
        store(h->k, y, at, (size_t)h->p->width, x);
}

/* The transposed panels of all keys or values; `room` for a copy of them. */
static inline void open_panels(const struct head *h, float *panels, float *room, struct view x,
                               int stride)
{
    struct rows rows = open_rows(h, room, x, key_at(h, 0, stride), stride, h->p->t_k);
    h->k->attention->transpose(panels, rows.at, rows.ld, h->p->t_k, h->p->width);
}

/* s (rows, keys of the panels that hold [lo, hi)) = a b^T for a strip of rows of a; b is
 * transposed. Element j of a row of s is key j: panels before lo are left alone. */
static inline void strip_product(const struct head *h, float *s, struct rows a,
                                 const float *b_panels, int rows, int lo, int hi)
{
    for (int j = lo / PANEL * PANEL; j < hi; j += PANEL) {
        int n = (int)round_up((size_t)min_int(PANEL, hi - j), PAD);
        h->k->attention->product(rows, n, h->p->width, a.at, a.ld, 1,
                                 b_panels + (size_t)j * (size_t)h->p->width, PANEL, s + j, h->row,
                                 false);
    }
}

static inline size_t row_size(const struct attention *p)
{
    return round_up((size_t)p->t_k, PANEL);
}

static inline size_t attention_work(const struct attention *p)
{
    return (size_t)p->batch * (size_t)p->heads * (size_t)p->t_q * (size_t)p->t_k *
           (size_t)p->width / 16;
}

#endif
