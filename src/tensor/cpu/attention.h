/* Shared by the passes of attention: the place of a head's rows, and products (struct
 * gemm_kernels) of operands that a task packs for itself; kernels with `direct` take the left
 * operand as it is. */
#ifndef SOTTO_TENSOR_CPU_ATTENTION_H
#define SOTTO_TENSOR_CPU_ATTENTION_H

#include <assert.h>

#include "tensor/cpu/cpu.h"

enum {
    PANEL = 64,      /* keys are skipped in panels: a multiple of every kernel's columns */
    STRIP_ROWS = 32, /* queries of a strip, at most; a multiple of the kernel's rows */
    SHORT = 64       /* up to this number of queries, k->small multiplies without packing; same bits
                        forward */
};

/* A task: a head of a sequence, and the kernels. */
struct attention_task {
    const struct kernels *k;
    const struct gemm_kernels *f;
    const struct attention *p;
    int b, head, kv_head;
    int strip;  /* queries computed at once */
    size_t row; /* floats of a row of scores, padded */
};

/* Query i sees keys [key_start, key_end). */
static inline int key_end(const struct attention *p, int i)
{
    return p->whole ? p->t_k : p->t_k - p->t_q + i + 1;
}

static inline int key_start(const struct attention *p, int i)
{
    int end = key_end(p, i);
    return p->window > 0 && !p->whole && end > p->window ? end - p->window : 0;
}

static inline size_t query_place(const struct attention_task *h, int i, int stride)
{
    size_t row = (size_t)h->b * (size_t)h->p->t_q + (size_t)i;
    return row * (size_t)stride + (size_t)h->head * (size_t)h->p->width;
}

static inline size_t key_place(const struct attention_task *h, int j, int stride)
{
    size_t sequence = h->p->kv_batch_stride;
    if (sequence == 0)
        sequence = (size_t)h->p->t_k * (size_t)stride;
    return (size_t)h->b * sequence + (size_t)j * (size_t)stride +
           (size_t)h->kv_head * (size_t)h->p->width;
}

/* Rows of one head as fp32. */
struct head_rows {
    float *at;
    size_t ld;
};

/* Returns `rows` rows of x from element `at` on: in place, or widened in `room`. */
static inline struct head_rows open_rows(const struct attention_task *h, float *room, struct view x,
                                         size_t at, int stride, int rows)
{
    const size_t width = (size_t)h->p->width;
    if (x.type == DTYPE_F32)
        return (struct head_rows){(float *)x.data + at, (size_t)stride};
    for (int r = 0; r < rows; r++)
        load_floats(h->k, x, at + (size_t)r * (size_t)stride, width, room + (size_t)r * width);
    return (struct head_rows){room, width};
}

/* Returns where to compute rows of y: in place, or `room`, from which store_rows copies to y. */
static inline struct head_rows place_rows(const struct attention_task *h, float *room,
                                          struct view y, size_t at, int stride)
{
    if (y.type == DTYPE_F32 && !sends_past_caches(h->k))
        return (struct head_rows){(float *)y.data + at, (size_t)stride};
    return (struct head_rows){room, (size_t)h->p->width};
}

static inline void store_rows(const struct attention_task *h, struct view y, size_t at, int stride,
                              struct head_rows x, int rows)
{
    for (int r = 0; r < rows; r++)
        send_floats(h->k, y, at + (size_t)r * (size_t)stride, (size_t)h->p->width,
                    x.at + (size_t)r * x.ld);
}

static inline struct head_rows skip_rows(struct head_rows rows, int n)
{
    return (struct head_rows){rows.at + (size_t)n * rows.ld, rows.ld};
}

/* Floats of packed operands: rows of a left, columns of a right operand, `k` deep. */
static inline size_t left_size(const struct gemm_kernels *f, int rows, int k)
{
    return f->direct ? 0 : strip_size(f, (int)round_up((size_t)rows, (size_t)f->rows), k);
}

static inline size_t right_size(const struct gemm_kernels *f, int columns, int k)
{
    return strip_size(f, (int)round_up((size_t)columns, (size_t)f->columns), k);
}

/* A left operand: packed, or in place with the distances of its rows and columns. */
struct left_operand {
    const float *at;
    size_t row, column;
};

/* Returns n rows of depth k of x; with `across`, n columns of k rows. Packed into `room`, or in
 * place. */
static inline struct left_operand open_left(const struct attention_task *h, float *room,
                                            struct head_rows x, int n, int k, bool across)
{
    const struct gemm_kernels *f = h->f;
    if (f->direct)
        return (struct left_operand){x.at, across ? 1 : x.ld, across ? x.ld : 1};
    float *to = room;
    for (int i = 0; i < n; i += f->rows, to += strip_size(f, f->rows, k))
        f->pack_a(to, x.at + (size_t)i * (across ? 1 : x.ld), x.ld, min_int(f->rows, n - i), k,
                  !across);
    return (struct left_operand){.at = room};
}

/* Packs the right operand: n columns of k rows; with `across`, n rows of depth k. */
static inline void pack_right(const struct attention_task *h, float *to, struct head_rows x, int n,
                              int k, bool across)
{
    const struct gemm_kernels *f = h->f;
    for (int j = 0; j < n; j += f->columns, to += strip_size(f, f->columns, k))
        f->pack_b(to, x.at + (size_t)j * (across ? x.ld : 1), x.ld, min_int(f->columns, n - j), k,
                  across);
}

/* c (m, n) = a b, or += with `add`, over the first k of the `depth` rows of the strips of b. */
static inline void multiply_packed(const struct attention_task *h, struct head_rows c, int m, int n,
                                   int k, struct left_operand a, const float *b, int depth,
                                   bool add)
{
    const struct gemm_kernels *f = h->f;
    const size_t strip = strip_size(f, f->columns, depth);
    if (f->direct) {
        f->direct(m, n, k, a.at, a.row, a.column, b, (size_t)f->columns, strip, c.at, c.ld, add);
        return;
    }
    const int each = depth == k ? n : f->columns; /* contiguous strips in one call */
    for (int j = 0; j < n; j += each, b += strip)
        f->block(m, min_int(each, n - j), k, a.at, b, c.at + j, c.ld, add ? c.at + j : NULL, c.ld,
                 NULL);
}

/* s (rows, row) = a b^T over the width at keys [first, end), `first` at the beginning of a
 * panel; the rest of the last panel is undefined. b has all keys. */
static inline void score_product(const struct attention_task *h, float *s, struct left_operand a,
                                 const float *b, int rows, int first, int end)
{
    const int width = h->p->width,
              keys = (int)round_up((size_t)(end - first), (size_t)h->f->columns);
    multiply_packed(h, (struct head_rows){s + first, h->row}, rows, keys, width, a,
                    b + strip_size(h->f, first, width), width, false);
}

/* c (rows, width) = a b over keys [first, end); b has all keys, a only these. */
static inline void key_product(const struct attention_task *h, struct head_rows c,
                               struct left_operand a, const float *b, int rows, int first, int end)
{
    multiply_packed(h, c, rows, h->p->width, end - first, a,
                    b + strip_size(h->f, h->f->columns, first), h->p->t_k, false);
}

static inline int strip_rows(const struct gemm_kernels *f)
{
    return f->direct ? f->tile_rows : STRIP_ROWS / f->rows * f->rows;
}

static inline size_t row_size(const struct attention *p)
{
    return round_up((size_t)p->t_k, PANEL);
}

static inline struct attention_task head_of(const struct device *dev, const struct attention *p)
{
    const struct kernels *k = kernels_of(dev);
    const struct gemm_kernels *f = p->t_q <= SHORT ? k->small : k->attend;
    if (p->half && k->gemm_half != k->gemm)
        f = k->gemm_half;
    assert(PANEL % f->columns == 0 && PANEL % f->depth == 0);
    assert(strip_rows(f) > 1 && strip_rows(f) <= STRIP_ROWS);
    return (struct attention_task){
        .k = k, .f = f, .p = p, .strip = strip_rows(f), .row = row_size(p)};
}

static inline size_t attention_work(const struct attention *p)
{
    return (size_t)p->batch * (size_t)p->heads * (size_t)p->t_q * (size_t)p->t_k *
           (size_t)p->width / 16;
}

#endif
