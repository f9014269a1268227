/* The backward pass of attention. Probabilities are recomputed from the saved lse. With
 * delta = sum(dy * o) of a row
 *     dv += p^T dy,   ds = p * (dy v^T - delta) * scale,   dq = ds k,   dk += ds^T q.
 * Queries are taken in blocks of strips: dq is computed a strip at a time, dk and dv a block at a
 * time, which reads and writes their sums once a block. */
#include "tensor/cpu/attention.h"

enum { STRIPS = 2 }; /* of a block */

struct backward_room {
    float *k, *kt, *vt; /* packed: over keys; over the width */
    float *dk, *dv;     /* (t_k, width); dk first holds widened rows */
    float *left;        /* packed: a strip, or keys of a block        */
    float *right;       /* packed: rows of a block                    */
    float *s, *ds;      /* (block, row)                               */
    float *q, *dy, *dq; /* (block, width): copies of views that are not fp32 */
};

static int block_rows(const struct attention_task *h)
{
    return STRIPS * h->strip;
}

static struct backward_room backward_room(const struct attention_task *h, struct room *rest)
{
    const struct attention *p = h->p;
    const size_t width = (size_t)p->width, keys = (size_t)p->t_k * width;
    const size_t block = (size_t)block_rows(h);
    const size_t strip = left_size(h->f, h->strip, p->t_k > p->width ? p->t_k : p->width);
    const size_t across = left_size(h->f, h->f->rows, block_rows(h));
    struct backward_room room;
    room.kt = cpu_take(rest, right_size(h->f, p->t_k, p->width));
    room.vt = cpu_take(rest, right_size(h->f, p->t_k, p->width));
    room.k = cpu_take(rest, right_size(h->f, p->width, p->t_k));
    room.s = cpu_take(rest, block * h->row);
    room.ds = cpu_take(rest, block * h->row);
    room.left = cpu_take(rest, strip > across ? strip : across);
    room.right = cpu_take(rest, right_size(h->f, p->width, block_rows(h)));
    room.dk = cpu_take(rest, keys);
    room.dv = cpu_take(rest, keys);
    room.q = cpu_take(rest, block * width);
    room.dy = cpu_take(rest, block * width);
    room.dq = cpu_take(rest, block * width);
    return room;
}

/* Returns delta of query i; `dy` is the row of the query in the block. */
static float row_delta(const struct attention_task *h, const float *dy, struct view o, int i)
{
    float sum = 0, room[256];
    size_t at = query_place(h, i, h->p->o_stride);
    for (int d = 0; d < h->p->width; d += 256) {
        int n = min_int(256, h->p->width - d);
        sum +=
            h->k->attention->dot(dy + d, load_floats(h->k, o, at + (size_t)d, (size_t)n, room), n);
    }
    return sum;
}

/* A block of queries: rows of q, dy and dq, and the keys [first, end) that they see; `first`
 * begins a panel. */
struct block {
    struct head_rows q, dy, dq;
    int i, rows, first, end;
};

/* Computes p, ds and dq of rows [at, at + rows) of a block; p and ds are zero where a query does
 * not see a key. */
static void backward_strip(const struct attention_task *h, const struct backward_room *room,
                           const struct block *block, struct view o, const float *lse, int at,
                           int rows)
{
    const struct attention *p = h->p;
    int i = block->i + at, first = block->first, end = key_end(p, i + rows - 1);
    float *s = room->s + (size_t)at * h->row, *ds = room->ds + (size_t)at * h->row;
    struct head_rows dy = skip_rows(block->dy, at);

    score_product(h, s, open_left(h, room->left, skip_rows(block->q, at), rows, p->width, false),
                  room->kt, rows, first, end);
    score_product(h, ds, open_left(h, room->left, dy, rows, p->width, false), room->vt, rows, first,
                  end);
    const size_t unseen = (size_t)(block->end - end) * sizeof(float);
    for (int r = 0; r < rows; r++) {
        size_t row = (size_t)r * h->row;
        h->k->attention->softmax_backward(s + row + first, ds + row + first,
                                          key_start(p, i + r) - first, key_end(p, i + r) - first,
                                          end - first, p->scale, lse[i + r],
                                          row_delta(h, dy.at + (size_t)r * dy.ld, o, i + r));
        memset(s + row + end, 0, unseen);
        memset(ds + row + end, 0, unseen);
    }
    struct head_rows seen = {ds + first, h->row};
    key_product(h, skip_rows(block->dq, at),
                open_left(h, room->left, seen, rows, end - first, false), room->k, rows, first,
                end);
}

/* d (keys, width) += s^T x for a block's rows. */
static void add_to_keys(const struct attention_task *h, const struct backward_room *room,
                        const struct block *block, float *d, const float *s, struct head_rows x)
{
    const int width = h->p->width;
    pack_right(h, room->right, x, width, block->rows, false);
    const int each = h->f->direct ? block->end - block->first : h->f->rows; /* keys at once */
    for (int j = block->first; j < block->end; j += each) {
        const int n = min_int(each, block->end - j);
        struct head_rows to = {d + (size_t)j * (size_t)width, (size_t)width};
        struct head_rows from = {(float *)s + j, h->row};
        multiply_packed(h, to, n, width, block->rows,
                        open_left(h, room->left, from, n, block->rows, true), room->right,
                        block->rows, true);
    }
}

static void backward_block(const struct attention_task *h, const struct backward_room *room,
                           struct view dq, struct view dy, struct view o, struct view q,
                           const float *lse, int i, int rows)
{
    const struct attention *p = h->p;
    size_t q_at = query_place(h, i, p->q_stride), dy_at = query_place(h, i, p->o_stride);
    struct block block = {.q = open_rows(h, room->q, q, q_at, p->q_stride, rows),
                          .dy = open_rows(h, room->dy, dy, dy_at, p->o_stride, rows),
                          .dq = place_rows(h, room->dq, dq, q_at, p->q_stride),
                          .i = i,
                          .rows = rows,
                          .first = key_start(p, i) / PANEL * PANEL,
                          .end = key_end(p, i + rows - 1)};
    for (int r = 0; r < rows; r += h->strip)
        backward_strip(h, room, &block, o, lse, r, min_int(h->strip, rows - r));
    if (block.dq.at == room->dq)
        store_rows(h, dq, q_at, p->q_stride, block.dq, rows);
    add_to_keys(h, room, &block, room->dv, room->s, block.dy);
    add_to_keys(h, room, &block, room->dk, room->ds, block.q);
}

void cpu_attention_backward(struct device *dev, const struct attention *p, struct view dq,
                            struct view dk, struct view dv, struct view dy, struct view o,
                            struct view q, struct view k, struct view v, struct view lse)
{
    assert(p->heads % p->kv_heads == 0 && p->t_q == p->t_k && lse.type == DTYPE_F32);
    const struct attention_task any = head_of(dev, p);
    const size_t keys = (size_t)p->t_k * (size_t)p->width;
    struct room one = {0};
    backward_room(&any, &one);
    char *rooms = device_scratch(dev, one.used * (size_t)dev->threads);
    if (!rooms)
        return;
    int group = p->heads / p->kv_heads;
#pragma omp parallel num_threads(team_size(dev, attention_work(p)))
    {
#pragma omp for schedule(dynamic) nowait
        for (int task = 0; task < p->batch * p->kv_heads; task++) {
            struct room rest = {.data = rooms + one.used * (size_t)thread_index(),
                                .size = one.used};
            struct backward_room room = backward_room(&any, &rest);
            struct attention_task h = any;
            h.b = task / p->kv_heads;
            h.kv_head = task % p->kv_heads;
            const size_t k_at = key_place(&h, 0, p->k_stride), v_at = key_place(&h, 0, p->v_stride);
            pack_right(&h, room.vt, open_rows(&h, room.dk, v, v_at, p->v_stride, p->t_k), p->t_k,
                       p->width, true);
            const struct head_rows all = open_rows(&h, room.dk, k, k_at, p->k_stride, p->t_k);
            pack_right(&h, room.kt, all, p->t_k, p->width, true);
            pack_right(&h, room.k, all, p->width, p->t_k, false);
            memset(room.dk, 0, keys * sizeof(float));
            memset(room.dv, 0, keys * sizeof(float));
            for (int g = 0; g < group; g++) {
                h.head = h.kv_head * group + g;
                const float *row_lse =
                    (float *)lse.data + (size_t)(h.b * p->heads + h.head) * (size_t)p->t_q;
                for (int i = 0; i < p->t_q; i += block_rows(&h))
                    backward_block(&h, &room, dq, dy, o, q, row_lse, i,
                                   min_int(block_rows(&h), p->t_q - i));
            }
            const size_t width = (size_t)p->width;
            store_rows(&h, dk, k_at, p->k_stride, (struct head_rows){room.dk, width}, p->t_k);
            store_rows(&h, dv, v_at, p->v_stride, (struct head_rows){room.dv, width}, p->t_k);
        }
        finish_sending(kernels_of(dev));
    }
}
