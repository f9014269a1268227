/* Shared by the two passes of attention: where a head's rows are, and products of operands that a
 * task packs for itself (struct gemm_kernels). */
#ifndef SOTTO_TENSOR_CPU_ATTENTION_H
#define SOTTO_TENSOR_CPU_ATTENTION_H

#include <assert.h>

#include "tensor/cpu/cpu.h"

enum {
    PANEL = 64, /* keys that a strip leaves out or meets at once: a multiple of every kernel's */
    STRIP_ROWS = 32 /* queries of a strip, at most: a multiple of the kernel's rows */
};

/* One task's place in the problem. */
struct head {
    const struct kernels *k;
    const struct gemm_kernels *f;
    const struct attention *p;
    int b, head, kv_head;
    int strip;  /* rows of queries at a time        */
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

/* Where they lie, or widened in `room`. */
static inline struct rows open_rows(const struct head *h, float *room, struct view x, size_t at,
                                    int stride, int rows)
{
    const size_t width = (size_t)h->p->width;
    if (x.type == DTYPE_F32)
        return (struct rows){(float *)x.data + at, (size_t)stride};
    for (int r = 0; r < rows; r++)
        load(h->k, x, at + (size_t)r * (size_t)stride, width, room + (size_t)r * width);
    return (struct rows){room, width};
}

/* Where results may be put, and, behind it, how they come to y. */
static inline struct rows place_rows(const struct head *h, float *room, struct view y, size_t at,
                                     int stride)
{
    if (y.type == DTYPE_F32)
        return (struct rows){(float *)y.data + at, (size_t)stride};
    return (struct rows){room, (size_t)h->p->width};
}

static inline void store_rows(const struct head *h, struct view y, size_t at, int stride,
                              struct rows x, int rows)
{
    for (int r = 0; r < rows; r++)
        store(h->k, y, at + (size_t)r * (size_t)stride, (size_t)h->p->width,
              x.at + (size_t)r * x.ld);
}

static inline struct rows skip_rows(struct rows rows, int n)
{
    return (struct rows){rows.at + (size_t)n * rows.ld, rows.ld};
}

/* Floats of packed operands: so many rows, or columns, of a depth. */
static inline size_t left_size(const struct gemm_kernels *f, int rows, int k)
{
    return strip_size(f, (int)round_up((size_t)rows, (size_t)f->rows), k);
}

static inline size_t right_size(const struct gemm_kernels *f, int columns, int k)
{
    return strip_size(f, (int)round_up((size_t)columns, (size_t)f->columns), k);
}

/* The left operand: n rows, k deep, at x.at; or, `across`, columns of k rows. */
static inline void pack_left(const struct head *h, float *to, struct rows x, int n, int k,
                             bool across)
{
    const struct gemm_kernels *f = h->f;
    for (int i = 0; i < n; i += f->rows, to += strip_size(f, f->rows, k))
        f->pack_a(to, x.at + (size_t)i * (across ? 1 : x.ld), x.ld, min_int(f->rows, n - i), k,
                  !across);
}

/* The right operand: n columns of k rows; or, `across`, n rows, k deep. */
static inline void pack_right(const struct head *h, float *to, struct rows x, int n, int k,
                              bool across)
{
    const struct gemm_kernels *f = h->f;
    for (int j = 0; j < n; j += f->columns, to += strip_size(f, f->columns, k))
        f->pack_b(to, x.at + (size_t)j * (across ? x.ld : 1), x.ld, min_int(f->columns, n - j), k,
                  across);
}

/* s (rows, row) at keys [first, end) = a b^T over the width; `first` begins a panel, and b has all
 * keys. */
static inline void score_product(const struct head *h, float *s, const float *a, const float *b,
                                 int rows, int first, int end)
{
    h->f->block(rows, end - first, h->p->width, a, b + strip_size(h->f, first, h->p->width),
                s + first, h->row, NULL, 0, NULL);
}

/* c (rows, width) = a b over keys [first, end), of which b has all and a those alone. */
static inline void key_product(const struct head *h, struct rows c, const float *a, const float *b,
                               int rows, int first, int end)
{
    const struct gemm_kernels *f = h->f;
    b += strip_size(f, f->columns, first);
    for (int j = 0; j < h->p->width; j += f->columns, b += strip_size(f, f->columns, h->p->t_k))
        f->block(rows, min_int(f->columns, h->p->width - j), end - first, a, b, c.at + j, c.ld,
                 NULL, 0, NULL);
}

static inline int strip_rows(const struct gemm_kernels *f)
{
    return STRIP_ROWS / f->rows * f->rows;
}

static inline size_t row_size(const struct attention *p)
{
    return round_up((size_t)p->t_k, PANEL);
}

static inline struct head head_of(const struct device *dev, const struct attention *p)
{
    const struct gemm_kernels *f = gemm_of(dev, p->half);
    assert(PANEL % f->columns == 0 && PANEL % f->depth == 0 && f->rows <= STRIP_ROWS);
    return (struct head){
        .k = kernels_of(dev), .f = f, .p = p, .strip = strip_rows(f), .row = row_size(p)};
}

static inline size_t attention_work(const struct attention *p)
{
    return (size_t)p->batch * (size_t)p->heads * (size_t)p->t_q * (size_t)p->t_k *
           (size_t)p->width / 16;
}

#endif
