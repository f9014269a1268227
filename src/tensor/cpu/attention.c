/* Attention that holds one strip of rows of scores at a time, or a block in backward (after
 * FlashAttention, Dao et al. 2022, without its online softmax: a row of scores fits the cache and
 * is normalised at once).
 *
 * A task of the forward pass is a head of one sequence. A task of the backward pass is a key/value
 * head with its query heads, so that one thread sums dk and dv in a fixed order. A task packs its
 * keys and values for the kernels of matrix products. A strip of queries is multiplied only with
 * the keys that its last row may see. */
#include "tensor/cpu/attention.h"

struct forward_room {
    float *k, *v; /* packed                                  */
    float *q, *s; /* q: packed queries of a strip; s: scores (strip, row) */
    float *p;     /* packed probabilities                    */
    float *rows;  /* (t_k, width)                            */
    float *o;     /* (strip, width)                          */
};

static struct forward_room forward_room(const struct attention_task *h, struct room *rest)
{
    const struct attention *p = h->p;
    const size_t width = (size_t)p->width, strip = (size_t)h->strip;
    struct forward_room room;
    room.k = cpu_take(rest, right_size(h->f, p->t_k, p->width));
    room.v = cpu_take(rest, right_size(h->f, p->width, p->t_k));
    room.q = cpu_take(rest, left_size(h->f, h->strip, p->width));
    room.s = cpu_take(rest, strip * h->row);
    room.p = cpu_take(rest, left_size(h->f, h->strip, p->t_k));
    room.rows = cpu_take(rest, ((size_t)p->t_k > strip ? (size_t)p->t_k : strip) * width);
    room.o = cpu_take(rest, strip * width);
    return room;
}

static void forward_strip(const struct attention_task *h, const struct forward_room *room,
                          struct view o, struct view q, float *lse, int i, int rows)
{
    const struct attention *p = h->p;
    int first = key_start(p, i) / PANEL * PANEL, end = key_end(p, i + rows - 1);
    size_t o_at = query_place(h, i, p->o_stride);
    struct head_rows out = place_rows(h, room->o, o, o_at, p->o_stride);
    float inverse[STRIP_ROWS];

    struct head_rows queries =
        open_rows(h, room->rows, q, query_place(h, i, p->q_stride), p->q_stride, rows);
    score_product(h, room->s, open_left(h, room->q, queries, rows, p->width, false), room->k, rows,
                  first, end);
    for (int r = 0; r < rows; r++)
        inverse[r] = h->k->attention->softmax(
            room->s + (size_t)r * h->row + first, key_start(p, i + r) - first,
            key_end(p, i + r) - first, end - first, p->scale, &lse[i + r]);
    struct head_rows seen = {room->s + first, h->row};
    key_product(h, out, open_left(h, room->p, seen, rows, end - first, false), room->v, rows, first,
                end);
    for (int r = 0; r < rows; r++)
        h->k->vector->scale(out.at + (size_t)r * out.ld, inverse[r], (size_t)p->width);
    if (out.at == room->o)
        store_rows(h, o, o_at, p->o_stride, out, rows);
}

static void forward_head(const struct attention_task *h, const struct forward_room *room,
                         struct view o, struct view q, struct view k, struct view v, float *lse)
{
    const struct attention *p = h->p;
    pack_right(h, room->k,
               open_rows(h, room->rows, k, key_place(h, 0, p->k_stride), p->k_stride, p->t_k),
               p->t_k, p->width, true);
    pack_right(h, room->v,
               open_rows(h, room->rows, v, key_place(h, 0, p->v_stride), p->v_stride, p->t_k),
               p->width, p->t_k, false);
    for (int i = 0; i < p->t_q; i += h->strip)
        forward_strip(h, room, o, q, lse, i, min_int(h->strip, p->t_q - i));
}

/* Attends for a few queries over a long cache: every key and value is read once, in place. */
static void decode_head(const struct attention_task *h, const struct forward_room *room,
                        struct view o, struct view q, struct view k, struct view v, float *lse)
{
    const struct attention *p = h->p;
    size_t width = (size_t)p->width;
    float *row = room->rows + width; /* room->rows has at least two rows */
    for (int i = 0; i < p->t_q; i++) {
        int lo = key_start(p, i), hi = key_end(p, i), base = lo / ATTENTION_PAD * ATTENTION_PAD;
        const float *query = load_floats(h->k, q, query_place(h, i, p->q_stride), width, row);
        for (int j = lo; j < hi; j++) {
            const float *key =
                load_floats(h->k, k, key_place(h, j, p->k_stride), width, room->rows);
            room->s[j] = h->k->attention->dot(query, key, p->width);
        }
        float inverse = h->k->attention->softmax(room->s + base, lo - base, hi - base, hi - base,
                                                 p->scale, &lse[i]);
        memset(room->o, 0, width * sizeof *room->o);
        for (int j = lo; j < hi; j++) {
            const float *value =
                load_floats(h->k, v, key_place(h, j, p->v_stride), width, room->rows);
            h->k->vector->axpy(room->o, room->s[j], value, width);
        }
        h->k->vector->scale(room->o, inverse, width);
        store_floats(h->k, o, query_place(h, i, p->o_stride), width, room->o);
    }
}

void cpu_attention_forward(struct device *dev, const struct attention *p, struct view o,
                           struct view q, struct view k, struct view v, struct view lse)
{
    assert(p->heads % p->kv_heads == 0 && p->t_q <= p->t_k && lse.type == DTYPE_F32);
    enum { FEW = 3 }; /* fewer queries do not repay packing of the keys */
    const struct attention_task any = head_of(dev, p);
    struct room one = {0};
    forward_room(&any, &one);
    char *rooms = device_scratch(dev, one.used * (size_t)dev->threads);
    if (!rooms)
        return;
#pragma omp parallel num_threads(team_size(dev, attention_work(p)))
    {
#pragma omp for schedule(dynamic) nowait
        for (int task = 0; task < p->batch * p->heads; task++) {
            struct room rest = {.data = rooms + one.used * (size_t)thread_index(),
                                .size = one.used};
            struct forward_room room = forward_room(&any, &rest);
            struct attention_task h = any;
            h.b = task / p->heads;
            h.head = task % p->heads;
            h.kv_head = h.head / (p->heads / p->kv_heads);
            float *out = (float *)lse.data + (size_t)task * (size_t)p->t_q;
            if (p->t_q < FEW)
                decode_head(&h, &room, o, q, k, v, out);
            else
                forward_head(&h, &room, o, q, k, v, out);
        }
        finish_sending(kernels_of(dev));
    }
}
