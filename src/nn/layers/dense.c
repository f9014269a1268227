/* A linear layer with its activation. The values before the activation are kept for backward. */
#include "nn/layers/layers.h"

static struct edge dense_output(const struct layer *layer, struct extent e)
{
    const struct dense_layer *l = (const struct dense_layer *)layer;
    return (struct edge){1, {{extent_tokens(e), (size_t)l->out}}};
}

static struct view dense_carve_saved(const struct dense_layer *l, struct extent e,
                                     struct room *room)
{
    return carve_piece(room, extent_tokens(e) * (size_t)l->out, e.type);
}

static size_t dense_saved(const struct layer *layer, struct extent e)
{
    struct room room = {0};
    dense_carve_saved((const struct dense_layer *)layer, e, &room);
    return room.used;
}

static size_t dense_scratch(const struct layer *layer, struct extent e, bool backward)
{
    return backward ? dense_saved(layer, e) : 0; /* the gradient before the activation */
}

static double dense_flops(const struct layer *layer, struct extent e)
{
    const struct dense_layer *l = (const struct dense_layer *)layer;
    return 2.0 * (double)extent_tokens(e) * l->in * l->out;
}

static struct linear dense_linear(const struct dense_layer *l, const struct pass *pass)
{
    return pass_linear(pass, extent_tokens(pass->extent), l->in, l->out, LINEAR_OUT_IN);
}

static void dense_forward(const struct layer *layer, struct pass *pass, const struct view *theta,
                          struct layer_flow flow)
{
    const struct dense_layer *l = (const struct dense_layer *)layer;
    const struct linear p = dense_linear(l, pass);
    const struct view up = dense_carve_saved(l, pass->extent, &flow.saved);
    pass->dev->ops->linear_forward(pass->dev, &p, up, l->first ? pass->input : flow.x,
                                   pass_param(pass, theta, l->w), pass_param(pass, theta, l->b),
                                   view_none);
    pass->dev->ops->gelu_forward(pass->dev, GELU_EXACT, flow.y, up,
                                 (size_t)p.rows * (size_t)l->out);
}

static void dense_backward(const struct layer *layer, struct pass *pass, const struct view *theta,
                           const struct view *grad, struct layer_flow flow)
{
    const struct dense_layer *l = (const struct dense_layer *)layer;
    const struct ops *ops = pass->dev->ops;
    const struct linear p = dense_linear(l, pass);
    const struct view up = dense_carve_saved(l, pass->extent, &flow.saved);
    const struct view dup = dense_carve_saved(l, pass->extent, &flow.scratch);
    ops->gelu_backward(pass->dev, GELU_EXACT, dup, flow.dy, up, (size_t)p.rows * (size_t)l->out);
    ops->linear_backward_w(pass->dev, &p, pass_param(pass, grad, l->w),
                           pass_param(pass, grad, l->b), dup, l->first ? pass->input : flow.x);
    if (!l->first)
        ops->linear_backward_x(pass->dev, &p, flow.dx, dup, pass_param(pass, theta, l->w), false);
}

static void dense_writes(const struct layer *layer, struct table *table)
{
    table_written(table, ((const struct dense_layer *)layer)->w);
}

const struct layer_ops dense_ops = {.name = "dense",
                                    .output = dense_output,
                                    .saved = dense_saved,
                                    .scratch = dense_scratch,
                                    .flops = dense_flops,
                                    .forward = dense_forward,
                                    .backward = dense_backward,
                                    .writes = dense_writes};
