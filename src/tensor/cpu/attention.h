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
    return p->t_k - p->t_q + i + 1;
}

static inline int key_start(const struct attention *p, int i)
{
    int end = key_end(p, i);
    return p->window > 0 && end > p->window ? end - p->window : 0;
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

/* `rows` rows of one head into y (rows, w), the padding zero. */
static inline void load_rows(const struct head *h, float *y, struct view x, size_t at, int stride,
                             int rows)
{
    size_t width = (size_t)h->p->width;
    for (int r = 0; r < rows; r++, y += h->w, at += (size_t)stride) {
        const float *from = load(h->k, x, at, width, y);
        if (from != y)
            memcpy(y, from, width * sizeof *y);
        memset(y + width, 0, (h->w - width) * sizeof *y);
    }
}

static inline void store_rows(const struct head *h, struct view y, size_t at, int stride,
                              const float *x, int rows)
{
    for (int r = 0; r < rows; r++, x += h->w, at += (size_t)stride)
        store(h->k, y, at, (size_t)h->p->width, x);
}

/* s (rows, keys of the panels that hold [lo, hi)) = a b^T for a strip of rows of a; b is
 * transposed. Element j of a row of s is key j: panels before lo are left alone. */
static inline void strip_product(const struct head *h, float *s, const float *a,
                                 const float *b_panels, int rows, int lo, int hi)
{
    for (int j = lo / PANEL * PANEL; j < hi; j += PANEL) {
        int n = (int)round_up((size_t)min_int(PANEL, hi - j), PAD);
        h->k->attention->product(rows, n, h->p->width, a, h->w, 1,
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
