/* The attention sublayer with its norm and residual: global or sliding window, grouped queries,
 * rotary positions, QK-norm, fused or separate projections.
 *
 * Kept for backward: q, k, v as attended (after norm and rotation), the output and the log-sum-exp;
 * the norm's output is computed again, unless all is kept. */
#include "nn/layers/layers.h"

#include <stdlib.h>

static struct edge attention_output(const struct layer *layer, struct extent e)
{
    const struct attention_layer *l = (const struct attention_layer *)layer;
    return (struct edge){1, {{extent_tokens(e), (size_t)l->width}}};
}

static int q_width(const struct attention_layer *l)
{
    return l->heads * l->head_width;
}

static int kv_width(const struct attention_layer *l)
{
    return l->kv_heads * l->head_width;
}

/* Returns how many norms a row of q or k with `heads` heads has. */
static size_t qk_norms(const struct attention_layer *l, int heads)
{
    return l->qk_norm == QK_EACH_HEAD ? (size_t)heads : 1;
}

/* q, k and v: columns of one (rows, q + 2 kv) block when the projection is fused, blocks of their
 * own otherwise. The first view is the start of the memory in both cases. */
struct attention_qkv {
    struct view q, k, v;
    int q_stride, k_stride, v_stride;
};

static struct attention_qkv carve_qkv(const struct attention_layer *l, struct extent e,
                                      struct room *room)
{
    size_t rows = extent_tokens(e), q = (size_t)q_width(l), kv = (size_t)kv_width(l);
    if (l->qkv_w >= 0) {
        struct view all = carve_piece(room, rows * (q + 2 * kv), e.type);
        int stride = (int)(q + 2 * kv);
        return (struct attention_qkv){all,    view_at(all, q), view_at(all, q + kv),
                                      stride, stride,          stride};
    }
    struct attention_qkv s = {.q_stride = (int)q, .k_stride = (int)kv, .v_stride = (int)kv};
    s.q = carve_piece(room, rows * q, e.type);
    s.k = carve_piece(room, rows * kv, e.type);
    s.v = carve_piece(room, rows * kv, e.type);
    return s;
}

struct attention_saved {
    struct view stats;            /* (rows, 2) */
    struct attention_qkv s;       /* as attended */
    struct view q_raw, k_raw;     /* QK-norm: before the norm */
    struct view q_stats, k_stats; /* (rows, qk_norms, 2) */
    struct view o;                /* (rows, q_width) */
    struct view lse;              /* (batch, heads, t) */
    struct view out;              /* (rows, width), norm_after: before the norm */
    struct view n;                /* (rows, width), all: the norm's output */
};

static struct attention_saved attention_carve_saved(const struct attention_layer *l,
                                                    struct extent e, struct room *room)
{
    size_t rows = extent_tokens(e), q = (size_t)q_width(l), kv = (size_t)kv_width(l);
    struct attention_saved k = {0};
    k.stats = carve_piece(room, 2 * rows, DTYPE_F32);
    k.s = carve_qkv(l, e, room);
    if (l->qk_norm) {
        k.q_raw = carve_piece(room, rows * q, e.type);
        k.k_raw = carve_piece(room, rows * kv, e.type);
        k.q_stats = carve_piece(room, 2 * rows * qk_norms(l, l->heads), DTYPE_F32);
        k.k_stats = carve_piece(room, 2 * rows * qk_norms(l, l->kv_heads), DTYPE_F32);
    }
    k.o = carve_piece(room, rows * q, e.type);
    k.lse = carve_piece(room, rows * (size_t)l->heads, DTYPE_F32);
    if (l->norm_after)
        k.out = carve_piece(room, rows * (size_t)l->width, e.type);
    else if (e.all)
        k.n = carve_piece(room, rows * (size_t)l->width, e.type);
    return k;
}

static size_t attention_saved(const struct layer *layer, struct extent e)
{
    struct room room = {0};
    attention_carve_saved((const struct attention_layer *)layer, e, &room);
    return room.used;
}

struct attention_scratch {
    struct view n;          /* (rows, width) norm's output */
    struct view dn;         /* (rows, width) gradient of n */
    struct attention_qkv d; /* gradients as attended */
    struct view d_o;        /* (rows, q_width) */
};

static struct attention_scratch attention_carve_scratch(const struct attention_layer *l,
                                                        struct extent e, bool backward,
                                                        struct room *room)
{
    size_t rows = extent_tokens(e);
    struct attention_scratch w = {.n = view_none};
    if (!e.all)
        w.n = carve_piece(room, rows * (size_t)l->width, e.type);
    if (!backward)
        return w;
    w.dn = carve_piece(room, rows * (size_t)l->width, e.type);
    w.d = carve_qkv(l, e, room);
    w.d_o = carve_piece(room, rows * (size_t)q_width(l), e.type);
    return w;
}

static size_t attention_scratch(const struct layer *layer, struct extent e, bool backward)
{
    const struct attention_layer *l = (const struct attention_layer *)layer;
    struct room room = {0};
    attention_carve_scratch(l, e, backward, &room);
    return room.used;
}

static double attention_flops(const struct layer *layer, struct extent e)
{
    const struct attention_layer *l = (const struct attention_layer *)layer;
    double tokens = (double)extent_tokens(e), q = q_width(l), kv = kv_width(l);
    double seen = l->whole ? e.t : l->window && l->window < e.t ? l->window : (e.t + 1) / 2.0;
    return 2 * tokens * (l->width * (2 * q + 2 * kv) + 2 * q * seen);
}

static struct attention describe_attention(const struct attention_layer *l, const struct pass *pass,
                                           const struct attention_qkv *s)
{
    const struct extent e = pass->extent;
    return (struct attention){
        .batch = e.rows,
        .t_q = e.t,
        .t_k = e.t,
        .heads = l->heads,
        .kv_heads = l->kv_heads,
        .width = l->head_width,
        .window = l->window,
        .whole = l->whole,
        .scale = l->scale,
        .q_stride = s->q_stride,
        .k_stride = s->k_stride,
        .v_stride = s->v_stride,
        .o_stride = q_width(l),
        .half = pass->half,
    };
}

static void rotate_heads(const struct attention_layer *l, struct pass *pass,
                         const struct attention_qkv *s, bool inverse)
{
    if (!l->frequencies)
        return;
    struct rope r = {pass->extent.rows, pass->extent.t, l->heads,      l->head_width,
                     s->q_stride,       pass->start,    l->frequencies};
    pass->dev->ops->rope(pass->dev, &r, s->q, inverse);
    r.heads = l->kv_heads;
    r.stride = s->k_stride;
    pass->dev->ops->rope(pass->dev, &r, s->k, inverse);
}

/* y = the norms of x: q or k, with `heads` heads. */
static void qk_norm_forward(const struct attention_layer *l, const struct norm_part *n,
                            struct pass *pass, const struct view *theta, int heads, struct view y,
                            struct view x, struct view stats)
{
    const size_t norms = qk_norms(l, heads);
    normalize_rows_forward(n, pass, theta, extent_tokens(pass->extent) * norms,
                           heads * l->head_width / (int)norms, y, x, stats);
}

/* d = the gradient of x, from that of y. */
static void qk_norm_backward(const struct attention_layer *l, const struct norm_part *n,
                             struct pass *pass, const struct view *theta, const struct view *grad,
                             int heads, struct view d, struct view x, struct view stats)
{
    const size_t norms = qk_norms(l, heads);
    normalize_rows_backward(n, pass, theta, grad, extent_tokens(pass->extent) * norms,
                            heads * l->head_width / (int)norms, d, d, x, stats, view_none);
}

static void project_qkv(const struct attention_layer *l, struct pass *pass,
                        const struct view *theta, struct view n, const struct attention_saved *k)
{
    struct device *dev = pass->dev;
    struct linear p =
        pass_linear(pass, extent_tokens(pass->extent), l->width, q_width(l), l->layout);
    if (l->qkv_w >= 0) {
        p.out = q_width(l) + 2 * kv_width(l);
        dev->ops->linear_forward(dev, &p, k->s.q, n, pass_param(pass, theta, l->qkv_w),
                                 pass_param(pass, theta, l->qkv_b), view_none);
    } else {
        struct view q = l->qk_norm ? k->q_raw : k->s.q, key = l->qk_norm ? k->k_raw : k->s.k;
        dev->ops->linear_forward(dev, &p, q, n, pass_param(pass, theta, l->q_w),
                                 pass_param(pass, theta, l->q_b), view_none);
        p.out = kv_width(l);
        dev->ops->linear_forward(dev, &p, key, n, pass_param(pass, theta, l->k_w),
                                 pass_param(pass, theta, l->k_b), view_none);
        dev->ops->linear_forward(dev, &p, k->s.v, n, pass_param(pass, theta, l->v_w),
                                 pass_param(pass, theta, l->v_b), view_none);
    }
    if (l->qk_norm) {
        qk_norm_forward(l, &l->q_norm, pass, theta, l->heads, k->s.q, k->q_raw, k->q_stats);
        qk_norm_forward(l, &l->k_norm, pass, theta, l->kv_heads, k->s.k, k->k_raw, k->k_stats);
    }
    rotate_heads(l, pass, &k->s, false);
}

/* Attends while decoding: the new keys and values join the cache, and the queries see the whole
 * cache. */
static void attend_cached(const struct attention_layer *l, struct pass *pass,
                          const struct attention_saved *k)
{
    struct device *dev = pass->dev;
    const struct extent e = pass->extent;
    const size_t kv = (size_t)kv_width(l), room = (size_t)pass->cache->positions * kv;
    struct view keys = pass->cache->k[l->index].view, values = pass->cache->v[l->index].view;
    struct row_copy new = {.batch = e.rows,
                           .rows = e.t,
                           .width = (int)kv,
                           .y_stride = kv,
                           .x_stride = (size_t)k->s.k_stride,
                           .y_batch_stride = room,
                           .x_batch_stride = (size_t)e.t * (size_t)k->s.k_stride};
    const size_t at = (size_t)pass->start * kv;
    dev->ops->copy_rows(dev, &new, view_at(keys, at), k->s.k);
    new.x_stride = (size_t)k->s.v_stride;
    new.x_batch_stride = (size_t)e.t *new.x_stride;
    dev->ops->copy_rows(dev, &new, view_at(values, at), k->s.v);
    struct attention a = describe_attention(l, pass, &k->s);
    a.t_k = pass->start + e.t;
    a.k_stride = a.v_stride = (int)kv;
    a.kv_batch_stride = room;
    dev->ops->attention_forward(dev, &a, k->o, k->s.q, keys, values, k->lse);
}

static void attention_forward(const struct layer *layer, struct pass *pass,
                              const struct view *theta, struct layer_flow flow)
{
    const struct attention_layer *l = (const struct attention_layer *)layer;
    struct device *dev = pass->dev;
    const struct extent e = pass->extent;
    const size_t count = extent_tokens(e) * (size_t)l->width;
    const struct linear p = pass_linear(pass, extent_tokens(e), q_width(l), l->width, l->layout);
    struct attention_saved k = attention_carve_saved(l, e, &flow.saved);
    struct view n = e.all ? k.n : attention_carve_scratch(l, e, false, &flow.scratch).n;

    if (l->norm_after)
        n = flow.x;
    else
        norm_part_forward(&l->norm, pass, theta, l->width, n, flow.x, k.stats);
    project_qkv(l, pass, theta, n, &k);
    if (pass->cache) {
        attend_cached(l, pass, &k);
    } else {
        struct attention a = describe_attention(l, pass, &k.s);
        dev->ops->attention_forward(dev, &a, k.o, k.s.q, k.s.k, k.s.v, k.lse);
    }
    struct view o_w = pass_param(pass, theta, l->o_w), o_b = pass_param(pass, theta, l->o_b);
    if (!l->norm_after) {
        dev->ops->linear_forward(dev, &p, flow.y, k.o, o_w, o_b, flow.x); /* y = x + out(o) */
        return;
    }
    dev->ops->linear_forward(dev, &p, k.out, k.o, o_w, o_b, view_none);
    norm_part_forward(&l->norm, pass, theta, l->width, flow.y, k.out, k.stats);
    dev->ops->axpy(dev, flow.y, 1, flow.x, count); /* y = x + norm(out(o)) */
}

/* Computes the gradients of the projections from those of q, k and v as attended, then dn = (or +=
 * with `add`). */
static void project_qkv_backward(const struct attention_layer *l, struct pass *pass,
                                 const struct view *theta, const struct view *grad, struct view n,
                                 struct view dn, bool add, const struct attention_saved *k,
                                 const struct attention_qkv *d)
{
    struct linear p =
        pass_linear(pass, extent_tokens(pass->extent), l->width, q_width(l), l->layout);
    rotate_heads(l, pass, d, true);
    if (l->qkv_w >= 0) {
        p.out = q_width(l) + 2 * kv_width(l);
        projection_backward(pass, &p, dn, pass_param(pass, grad, l->qkv_w),
                            pass_param(pass, grad, l->qkv_b), d->q, n,
                            pass_param(pass, theta, l->qkv_w), add);
        return;
    }
    if (l->qk_norm) {
        qk_norm_backward(l, &l->q_norm, pass, theta, grad, l->heads, d->q, k->q_raw, k->q_stats);
        qk_norm_backward(l, &l->k_norm, pass, theta, grad, l->kv_heads, d->k, k->k_raw, k->k_stats);
    }
    projection_backward(pass, &p, dn, pass_param(pass, grad, l->q_w),
                        pass_param(pass, grad, l->q_b), d->q, n, pass_param(pass, theta, l->q_w),
                        add);
    p.out = kv_width(l);
    projection_backward(pass, &p, dn, pass_param(pass, grad, l->k_w),
                        pass_param(pass, grad, l->k_b), d->k, n, pass_param(pass, theta, l->k_w),
                        true);
    projection_backward(pass, &p, dn, pass_param(pass, grad, l->v_w),
                        pass_param(pass, grad, l->v_b), d->v, n, pass_param(pass, theta, l->v_w),
                        true);
}

static void attention_backward(const struct layer *layer, struct pass *pass,
                               const struct view *theta, const struct view *grad,
                               struct layer_flow flow)
{
    const struct attention_layer *l = (const struct attention_layer *)layer;
    struct device *dev = pass->dev;
    const struct extent e = pass->extent;
    const struct linear p = pass_linear(pass, extent_tokens(e), q_width(l), l->width, l->layout);
    struct attention_saved k = attention_carve_saved(l, e, &flow.saved);
    struct attention_scratch w = attention_carve_scratch(l, e, true, &flow.scratch);

    struct view dout = flow.dy; /* gradient of the out projection's result */
    if (l->norm_after) {
        norm_part_backward(&l->norm, pass, theta, grad, l->width, w.dn, flow.dy, k.out, k.stats,
                           view_none);
        dout = w.dn;
    }
    projection_backward(pass, &p, w.d_o, pass_param(pass, grad, l->o_w),
                        pass_param(pass, grad, l->o_b), dout, k.o, pass_param(pass, theta, l->o_w),
                        false);
    struct attention a = describe_attention(l, pass, &k.s);
    dev->ops->attention_backward(dev, &a, w.d.q, w.d.k, w.d.v, w.d_o, k.o, k.s.q, k.s.k, k.s.v,
                                 k.lse);
    if (l->norm_after) {
        start_dx(pass, flow, l->width);
        project_qkv_backward(l, pass, theta, grad, flow.x, flow.dx, true, &k, &w.d);
        return;
    }
    struct view n = e.all ? k.n : w.n;
    if (!e.all)
        norm_part_forward(&l->norm, pass, theta, l->width, n, flow.x, k.stats);
    project_qkv_backward(l, pass, theta, grad, n, w.dn, false, &k, &w.d);
    norm_part_backward(&l->norm, pass, theta, grad, l->width, flow.dx, w.dn, flow.x, k.stats,
                       flow.dy);
}

static void attention_writes(const struct layer *layer, struct table *table)
{
    const struct attention_layer *l = (const struct attention_layer *)layer;
    const int weights[] = {l->qkv_w, l->q_w, l->k_w, l->v_w, l->o_w};
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        table_written(table, weights[i]);
}

static void free_frequencies(struct layer *layer)
{
    free(((struct attention_layer *)layer)->frequencies);
}

const struct layer_ops attention_ops = {.name = "attention",
                                        .passes_on = true,
                                        .output = attention_output,
                                        .saved = attention_saved,
                                        .scratch = attention_scratch,
                                        .flops = attention_flops,
                                        .forward = attention_forward,
                                        .backward = attention_backward,
                                        .writes = attention_writes,
                                        .free = free_frequencies};
