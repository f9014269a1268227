/* The halves of a feed-forward sublayer, where a stage ends inside the sublayer. They compute as
 * mlp.c does, in the same order, with the pre-activations in the edge between the halves.
 *
 *     (x, up)  x is the residual that the second half adds to */
#include <assert.h>

#include "nn/layers/layers.h"

static const struct mlp_layer *mlp_of(const struct layer *layer)
{
    return (const struct mlp_layer *)layer;
}

static size_t narrow_count(const struct mlp_layer *l, struct extent e)
{
    return extent_tokens(e) * (size_t)l->width;
}

static size_t wide_count(const struct mlp_layer *l, struct extent e)
{
    return extent_tokens(e) * (size_t)l->hidden;
}

static struct edge up_output(const struct layer *layer, struct extent e)
{
    const struct mlp_layer *l = mlp_of(layer);
    assert(l->kind != MLP_SWIGLU && !l->norm_after);
    return (struct edge){
        2, {{extent_tokens(e), (size_t)l->width}, {extent_tokens(e), (size_t)l->hidden}}};
}

static struct view up_of(const struct layer *layer, const struct pass *pass, struct view edge)
{
    return edge_part(edge, up_output(layer, pass->extent), 1);
}

static double mlp_half_flops(const struct layer *layer, struct extent e)
{
    return 2.0 * (double)extent_tokens(e) * mlp_of(layer)->width * mlp_of(layer)->hidden;
}

/* ---- the first half ---- */

static size_t up_saved(const struct layer *layer, struct extent e)
{
    struct room room = {0};
    (void)layer;
    carve_piece(&room, 2 * extent_tokens(e), DTYPE_F32); /* the norm's statistics */
    return room.used;
}

struct up_work {
    struct view n, dn; /* (rows, width) the norm's output, and the gradient of n */
};

static struct up_work up_work(const struct mlp_layer *l, struct extent e, bool backward,
                              struct room *room)
{
    struct up_work w = {.n = carve_piece(room, narrow_count(l, e), e.type)};
    if (backward)
        w.dn = carve_piece(room, narrow_count(l, e), e.type);
    return w;
}

static size_t up_scratch(const struct layer *layer, struct extent e, bool backward)
{
    struct room room = {0};
    up_work(mlp_of(layer), e, backward, &room);
    return room.used;
}

static struct linear up_linear(const struct mlp_layer *l, const struct pass *pass)
{
    return pass_linear(pass, extent_tokens(pass->extent), l->width, l->hidden, l->layout);
}

static void up_forward(const struct layer *layer, struct pass *pass, const struct view *theta,
                       struct layer_flow flow)
{
    const struct mlp_layer *l = mlp_of(layer);
    const struct linear wide = up_linear(l, pass);
    struct view stats = carve_piece(&flow.saved, 2 * extent_tokens(pass->extent), DTYPE_F32);
    struct up_work w = up_work(l, pass->extent, false, &flow.scratch);
    norm_part_forward(&l->norm, pass, theta, l->width, w.n, flow.x, stats);
    pass->dev->ops->linear_forward(pass->dev, &wide, up_of(layer, pass, flow.y), w.n,
                                   pass_param(pass, theta, l->up_w),
                                   pass_param(pass, theta, l->up_b), view_none);
    pass->dev->ops->copy(pass->dev, flow.y, flow.x, narrow_count(l, pass->extent));
}

static void up_backward(const struct layer *layer, struct pass *pass, const struct view *theta,
                        const struct view *grad, struct layer_flow flow)
{
    const struct mlp_layer *l = mlp_of(layer);
    const struct ops *ops = pass->dev->ops;
    const struct linear wide = up_linear(l, pass);
    struct view stats = carve_piece(&flow.saved, 2 * extent_tokens(pass->extent), DTYPE_F32);
    struct up_work w = up_work(l, pass->extent, true, &flow.scratch);
    const struct view dup = up_of(layer, pass, flow.dy);
    norm_part_forward(&l->norm, pass, theta, l->width, w.n, flow.x, stats);
    ops->linear_backward_w(pass->dev, &wide, pass_param(pass, grad, l->up_w),
                           pass_param(pass, grad, l->up_b), dup, w.n);
    ops->linear_backward_x(pass->dev, &wide, w.dn, dup, pass_param(pass, theta, l->up_w), false);
    norm_part_backward(&l->norm, pass, theta, grad, l->width, flow.dx, w.dn, flow.x, stats,
                       flow.dy);
}

static void up_writes(const struct layer *layer, struct table *table)
{
    table_written(table, mlp_of(layer)->up_w);
}

static bool up_join(struct layer *layer, const struct layer *next)
{
    if (next->ops != &mlp_down_ops)
        return false;
    layer->ops = &mlp_ops;
    return true;
}

/* ---- the second half ---- */

static struct edge down_output(const struct layer *layer, struct extent e)
{
    return (struct edge){1, {{extent_tokens(e), (size_t)mlp_of(layer)->width}}};
}

static size_t down_saved(const struct layer *layer, struct extent e)
{
    (void)layer;
    (void)e;
    return 0;
}

static size_t down_scratch(const struct layer *layer, struct extent e, bool backward)
{
    struct room room = {0};
    (void)backward;
    carve_piece(&room, wide_count(mlp_of(layer), e), e.type);
    return room.used;
}

static struct linear down_linear(const struct mlp_layer *l, const struct pass *pass)
{
    return pass_linear(pass, extent_tokens(pass->extent), l->hidden, l->width, l->layout);
}

/* Computes the activation, in scratch. */
static struct view down_activate(const struct layer *layer, struct pass *pass,
                                 struct layer_flow *flow)
{
    const struct mlp_layer *l = mlp_of(layer);
    const size_t count = wide_count(l, pass->extent);
    struct view a = carve_piece(&flow->scratch, count, pass->extent.type);
    pass->dev->ops->gelu_forward(pass->dev, mlp_gelu(l), a, up_of(layer, pass, flow->x), count);
    return a;
}

static void down_forward(const struct layer *layer, struct pass *pass, const struct view *theta,
                         struct layer_flow flow)
{
    const struct mlp_layer *l = mlp_of(layer);
    const struct linear small = down_linear(l, pass);
    pass->dev->ops->linear_forward(pass->dev, &small, flow.y, down_activate(layer, pass, &flow),
                                   pass_param(pass, theta, l->down_w),
                                   pass_param(pass, theta, l->down_b),
                                   flow.x); /* y = x + down(a) */
}

static void down_backward(const struct layer *layer, struct pass *pass, const struct view *theta,
                          const struct view *grad, struct layer_flow flow)
{
    const struct mlp_layer *l = mlp_of(layer);
    const struct ops *ops = pass->dev->ops;
    const struct linear small = down_linear(l, pass);
    const struct view dup = up_of(layer, pass, flow.dx);
    ops->linear_backward_w(pass->dev, &small, pass_param(pass, grad, l->down_w),
                           pass_param(pass, grad, l->down_b), flow.dy,
                           down_activate(layer, pass, &flow));
    ops->linear_backward_x(pass->dev, &small, dup, flow.dy, pass_param(pass, theta, l->down_w),
                           false);
    ops->gelu_backward(pass->dev, mlp_gelu(l), dup, dup, up_of(layer, pass, flow.x),
                       wide_count(l, pass->extent));
    ops->copy(pass->dev, flow.dx, flow.dy, narrow_count(l, pass->extent));
}

static void down_writes(const struct layer *layer, struct table *table)
{
    table_written(table, mlp_of(layer)->down_w);
}

const struct layer_ops mlp_up_ops = {.name = "mlp, first half",
                                     .output = up_output,
                                     .saved = up_saved,
                                     .scratch = up_scratch,
                                     .flops = mlp_half_flops,
                                     .forward = up_forward,
                                     .backward = up_backward,
                                     .writes = up_writes,
                                     .join = up_join};

const struct layer_ops mlp_down_ops = {.name = "mlp, second half",
                                       .output = down_output,
                                       .saved = down_saved,
                                       .scratch = down_scratch,
                                       .flops = mlp_half_flops,
                                       .forward = down_forward,
                                       .backward = down_backward,
                                       .writes = down_writes};
