/* A linear layer with its activation. The values before the activation are kept for backward. */
#include "nn/layers/layers.h"

static struct edge output(const struct layer *layer, struct extent e)
{
    const struct dense_layer *l = (const struct dense_layer *)layer;
    return (struct edge){1, {{extent_tokens(e), (size_t)l->out}}};
}

static struct view kept(const struct dense_layer *l, struct extent e, struct room *room)
{
    return carve(room, extent_tokens(e) * (size_t)l->out, e.type);
}

static size_t saved(const struct layer *layer, struct extent e)
{
    struct room room = {0};
    kept((const struct dense_layer *)layer, e, &room);
    return room.used;
}

static size_t scratch(const struct layer *layer, struct extent e, bool backward)
{
    return backward ? saved(layer, e) : 0; /* the gradient before the activation */
}

static double flops(const struct layer *layer, struct extent e)
{
    const struct dense_layer *l = (const struct dense_layer *)layer;
    return 2.0 * (double)extent_tokens(e) * l->in * l->out;
}

static struct linear shape(const struct dense_layer *l, const struct pass *pass)
{
    return pass_linear(pass, extent_tokens(pass->extent), l->in, l->out, LINEAR_OUT_IN);
}

static void forward(const struct layer *layer, struct pass *pass, const struct view *theta,
                    struct flow flow)
{
    const struct dense_layer *l = (const struct dense_layer *)layer;
    const struct linear p = shape(l, pass);
    const struct view up = kept(l, pass->extent, &flow.saved);
    pass->dev->ops->linear_forward(pass->dev, &p, up, l->first ? pass->input : flow.x,
                                   param(pass, theta, l->w), param(pass, theta, l->b), view_none);
    pass->dev->ops->gelu_forward(pass->dev, GELU_EXACT, flow.y, up,
                                 (size_t)p.rows * (size_t)l->out);
}

static void backward(const struct layer *layer, struct pass *pass, const struct view *theta,
                     const struct view *grad, struct flow flow)
{
    const struct dense_layer *l = (const struct dense_layer *)layer;
    const struct ops *ops = pass->dev->ops;
    const struct linear p = shape(l, pass);
    const struct view up = kept(l, pass->extent, &flow.saved);
    const struct view dup = kept(l, pass->extent, &flow.scratch);
    ops->gelu_backward(pass->dev, GELU_EXACT, dup, flow.dy, up, (size_t)p.rows * (size_t)l->out);
    ops->linear_backward_w(pass->dev, &p, param(pass, grad, l->w), param(pass, grad, l->b), dup,
                           l->first ? pass->input : flow.x);
    if (!l->first)
        ops->linear_backward_x(pass->dev, &p, flow.dx, dup, param(pass, theta, l->w), false);
}

static void writes(const struct layer *layer, struct table *table)
{
    table_written(table, ((const struct dense_layer *)layer)->w);
}

const struct layer_ops dense_ops = {.name = "dense",
                                    .output = output,
                                    .saved = saved,
                                    .scratch = scratch,
                                    .flops = flops,
                                    .forward = forward,
                                    .backward = backward,
                                    .writes = writes};
