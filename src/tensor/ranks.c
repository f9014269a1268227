#include "tensor/ranks.h"

enum { PIECE = 2048 }; /* elements: a piece and its sources stay in the first cache */

/* y may be a or b. */
static void add_f32(float *y, const float *a, const float *b, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}

static void widen_all(float *y, const uint16_t *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = bf16_widen(x[i]);
}

static void add_bf16(float *sum, const uint16_t *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        sum[i] += bf16_widen(x[i]);
}

static void round_all(float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        x[i] = bf16_widen(bf16_round(x[i]));
}

static void narrow_all(uint16_t *y, const float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = bf16_round(x[i]);
}

/* A piece [at, at + n) of a block, to be summed. */
struct rank_piece {
    const struct view *x;
    const struct rank_sum *of;
    size_t at, n;
};

/* Returns the piece of the i-th place after the block's own, on the k-th node after it. */
static const void *source_of(const struct rank_piece *p, int k, int i)
{
    const int rank = rank_sum_turn(p->of, (k - 1) * p->of->each + i - 1);
    return view_at(p->x[rank], p->at).data;
}

/* Returns the sum of a node's pieces: at `to`, with `partial` for sums in between, or in place
 * if the node has one rank. */
static const float *node_f32(float *to, float *partial, const struct rank_piece *p, int k)
{
    const float *sum = source_of(p, k, 1);
    for (int i = 2; i <= p->of->each; i++) {
        float *next = i < p->of->each ? partial : to;
        add_f32(next, sum, source_of(p, k, i), p->n);
        sum = next;
    }
    return sum;
}

/* y may be one of the x: only the last sum is written to y. */
static void sum_f32(float *y, const struct rank_piece *p)
{
    float total[PIECE], partial[PIECE];
    const int nodes = p->of->nodes;
    const float *sum = node_f32(nodes > 1 ? total : y, total, p, 1);
    for (int k = 2; k <= nodes; k++) {
        float *next = k < nodes ? total : y;
        add_f32(next, sum, node_f32(partial, partial, p, k), p->n);
        sum = next;
    }
    if (sum != y)
        memmove(y, sum, p->n * sizeof *y);
}

/* Sums a node's pieces, rounded to bf16 if other nodes receive the sum. */
static void node_bf16(float *sum, const struct rank_piece *p, int k)
{
    widen_all(sum, source_of(p, k, 1), p->n);
    for (int i = 2; i <= p->of->each; i++)
        add_bf16(sum, source_of(p, k, i), p->n);
    if (p->of->each > 1 && p->of->nodes > 1)
        round_all(sum, p->n);
}

static void sum_bf16(uint16_t *y, const struct rank_piece *p)
{
    float total[PIECE], partial[PIECE];
    node_bf16(total, p, 1);
    for (int k = 2; k <= p->of->nodes; k++) {
        node_bf16(partial, p, k);
        add_f32(total, total, partial, p->n);
    }
    narrow_all(y, total, p->n);
}

void sum_ranks(const struct rank_sum *of, const struct view *out, int n_out, const struct view *x)
{
    const size_t unit = dtype_size(out[0].type);
    struct rank_piece p = {.x = x, .of = of};
    for (p.at = of->begin; p.at < of->end; p.at += PIECE) {
        p.n = of->end - p.at < PIECE ? of->end - p.at : PIECE;
        void *y = view_at(out[0], p.at).data;
        if (out[0].type == DTYPE_F32)
            sum_f32(y, &p);
        else
            sum_bf16(y, &p);
        for (int i = 1; i < n_out; i++)
            memcpy(view_at(out[i], p.at).data, y, p.n * unit);
    }
}
