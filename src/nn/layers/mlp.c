/* The feed-forward sublayer with its norm and residual.
 *
 * Unless all is kept, only the pre-activations are; the norm's output and the activation are
 * computed again in backward, which costs one pass over memory each and saves (width + hidden)
 * elements a token. */
#include "nn/layers/layers.h"

static struct edge mlp_output(const struct layer *layer, struct extent e)
{
    const struct mlp_layer *l = (const struct mlp_layer *)layer;
    return (struct edge){1, {{extent_tokens(e), (size_t)l->width}}};
}

/* Memory that forward leaves for backward. */
struct mlp_saved {
    struct view stats; /* (rows, 2) */
    struct view up;    /* (rows, hidden) */
    struct view gate;  /* (rows, hidden), SwiGLU */
    struct view out;   /* (rows, width), norm_after: before the norm */
    struct view n, a;  /* (rows, width), (rows, hidden), all: as below */
};

static struct mlp_saved mlp_carve_saved(const struct mlp_layer *l, struct extent e,
                                        struct room *room)
{
    size_t rows = extent_tokens(e);
    struct mlp_saved k = {.gate = view_none, .out = view_none};
    k.stats = carve_piece(room, 2 * rows, DTYPE_F32);
    k.up = carve_piece(room, rows * (size_t)l->hidden, e.type);
    if (l->kind == MLP_SWIGLU)
        k.gate = carve_piece(room, rows * (size_t)l->hidden, e.type);
    if (l->norm_after)
        k.out = carve_piece(room, rows * (size_t)l->width, e.type);
    if (e.all && !l->norm_after)
        k.n = carve_piece(room, rows * (size_t)l->width, e.type);
    if (e.all)
        k.a = carve_piece(room, rows * (size_t)l->hidden, e.type);
    return k;
}

static size_t mlp_saved(const struct layer *layer, struct extent e)
{
    struct room room = {0};
    mlp_carve_saved((const struct mlp_layer *)layer, e, &room);
    return room.used;
}

struct mlp_scratch {
    struct view n, dn;         /* (rows, width) the norm's output, and the gradient of n */
    struct view a, dup, dgate; /* (rows, hidden) activation, and gradients before the activation */
};

static struct mlp_scratch mlp_carve_scratch(const struct mlp_layer *l, struct extent e,
                                            bool backward, struct room *room)
{
    const size_t narrow = extent_tokens(e) * (size_t)l->width;
    const size_t wide = extent_tokens(e) * (size_t)l->hidden;
    struct mlp_scratch w = {.n = view_none, .a = view_none};
    if (!e.all) {
        w.n = carve_piece(room, narrow, e.type);
        w.a = carve_piece(room, wide, e.type);
    }
    if (!backward)
        return w;
    w.dn = carve_piece(room, narrow, e.type);
    w.dup = carve_piece(room, wide, e.type);
    if (l->kind == MLP_SWIGLU)
        w.dgate = carve_piece(room, wide, e.type);
    return w;
}

static size_t mlp_scratch(const struct layer *layer, struct extent e, bool backward)
{
    const struct mlp_layer *l = (const struct mlp_layer *)layer;
    struct room room = {0};
    mlp_carve_scratch(l, e, backward, &room);
    return room.used;
}

static double mlp_flops(const struct layer *layer, struct extent e)
{
    const struct mlp_layer *l = (const struct mlp_layer *)layer;
    return 2.0 * (double)extent_tokens(e) * l->width * l->hidden * (l->kind == MLP_SWIGLU ? 3 : 2);
}

/* Computes a = gelu(up) or silu(gate) * up. */
static void mlp_activate(const struct mlp_layer *l, struct pass *pass, const struct mlp_saved *k,
                         struct view a)
{
    size_t count = extent_tokens(pass->extent) * (size_t)l->hidden;
    if (l->kind == MLP_SWIGLU)
        pass->dev->ops->swiglu_forward(pass->dev, a, k->gate, k->up, count);
    else
        pass->dev->ops->gelu_forward(pass->dev, mlp_gelu(l), a, k->up, count);
}

static void mlp_forward(const struct layer *layer, struct pass *pass, const struct view *theta,
                        struct layer_flow flow)
{
    const struct mlp_layer *l = (const struct mlp_layer *)layer;
    struct device *dev = pass->dev;
    const struct ops *ops = dev->ops;
    const struct extent e = pass->extent;
    const int rows = (int)extent_tokens(e);
    const struct linear widen = pass_linear(pass, extent_tokens(e), l->width, l->hidden, l->layout);
    const struct linear narrow =
        pass_linear(pass, extent_tokens(e), l->hidden, l->width, l->layout);
    struct mlp_saved k = mlp_carve_saved(l, e, &flow.saved);
    struct mlp_scratch w = mlp_carve_scratch(l, e, false, &flow.scratch);
    struct view n = e.all ? k.n : w.n, a = e.all ? k.a : w.a;

    if (l->norm_after)
        n = flow.x;
    else
        norm_part_forward(&l->norm, pass, theta, l->width, n, flow.x, k.stats);
    if (l->kind == MLP_SWIGLU)
        ops->linear_forward(dev, &widen, k.gate, n, pass_param(pass, theta, l->gate_w), view_none,
                            view_none);
    ops->linear_forward(dev, &widen, k.up, n, pass_param(pass, theta, l->up_w),
                        pass_param(pass, theta, l->up_b), view_none);
    mlp_activate(l, pass, &k, a);
    struct view down_w = pass_param(pass, theta, l->down_w),
                down_b = pass_param(pass, theta, l->down_b);
    if (!l->norm_after) {
        ops->linear_forward(dev, &narrow, flow.y, a, down_w, down_b, flow.x); /* y = x + down(a) */
        return;
    }
    ops->linear_forward(dev, &narrow, k.out, a, down_w, down_b, view_none);
    norm_part_forward(&l->norm, pass, theta, l->width, flow.y, k.out, k.stats);
    ops->axpy(dev, flow.y, 1, flow.x, (size_t)rows * (size_t)l->width); /* y = x + norm(down(a)) */
}

static void mlp_backward(const struct layer *layer, struct pass *pass, const struct view *theta,
                         const struct view *grad, struct layer_flow flow)
{
    const struct mlp_layer *l = (const struct mlp_layer *)layer;
    struct device *dev = pass->dev;
    const struct ops *ops = dev->ops;
    const struct extent e = pass->extent;
    const int rows = (int)extent_tokens(e);
    const size_t wide_count = (size_t)rows * (size_t)l->hidden;
    const struct linear widen = pass_linear(pass, extent_tokens(e), l->width, l->hidden, l->layout);
    const struct linear narrow =
        pass_linear(pass, extent_tokens(e), l->hidden, l->width, l->layout);
    struct mlp_saved k = mlp_carve_saved(l, e, &flow.saved);
    struct mlp_scratch w = mlp_carve_scratch(l, e, true, &flow.scratch);
    struct view n = e.all ? k.n : w.n, a = e.all ? k.a : w.a, dn = w.dn, dup = w.dup;

    struct view dout = flow.dy; /* gradient of down's output */
    if (l->norm_after) {
        norm_part_backward(&l->norm, pass, theta, grad, l->width, dn, flow.dy, k.out, k.stats,
                           view_none);
        dout = dn;
        n = flow.x;
    } else if (!e.all) {
        norm_part_forward(&l->norm, pass, theta, l->width, n, flow.x, k.stats);
    }
    if (!e.all)
        mlp_activate(l, pass, &k, a);
    projection_backward(pass, &narrow, dup, pass_param(pass, grad, l->down_w),
                        pass_param(pass, grad, l->down_b), dout, a,
                        pass_param(pass, theta, l->down_w), false); /* da */
    struct view dup_b = pass_param(pass, grad, l->up_b);
    /* From here on `dn` is free again: with norm_after the gradient goes straight into dx. */
    struct view into = l->norm_after ? flow.dx : dn;
    bool add = l->norm_after;
    if (l->norm_after)
        start_dx(pass, flow, l->width);
    if (l->kind == MLP_SWIGLU) {
        ops->swiglu_backward(dev, w.dgate, dup, dup, k.gate, k.up, wide_count);
        projection_backward(pass, &widen, into, pass_param(pass, grad, l->gate_w), view_none,
                            w.dgate, n, pass_param(pass, theta, l->gate_w), add);
        add = true;
    } else if (ops->gelu_bias_backward && view_there(dup_b)) {
        ops->gelu_bias_backward(dev, mlp_gelu(l), rows, l->hidden, dup, dup_b, dup, k.up);
        dup_b = view_none;
    } else {
        ops->gelu_backward(dev, mlp_gelu(l), dup, dup, k.up, wide_count);
    }
    projection_backward(pass, &widen, into, pass_param(pass, grad, l->up_w), dup_b, dup, n,
                        pass_param(pass, theta, l->up_w), add);
    if (!l->norm_after)
        norm_part_backward(&l->norm, pass, theta, grad, l->width, flow.dx, dn, flow.x, k.stats,
                           flow.dy);
}

static void mlp_writes(const struct layer *layer, struct table *table)
{
    const struct mlp_layer *l = (const struct mlp_layer *)layer;
    table_written(table, l->gate_w);
    table_written(table, l->up_w);
    table_written(table, l->down_w);
}

const struct layer_ops mlp_ops = {.name = "mlp",
                                  .passes_on = true,
                                  .output = mlp_output,
                                  .saved = mlp_saved,
                                  .scratch = mlp_scratch,
                                  .flops = mlp_flops,
                                  .forward = mlp_forward,
                                  .backward = mlp_backward,
                                  .writes = mlp_writes};
