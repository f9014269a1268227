/* The layer of docs/internals/adding-a-model.md. In src the struct and the declaration of the ops
 * are lines of src/nn/layers/layers.h, and the rest is a file in src/nn/layers. */
#ifndef SOTTO_TESTS_NN_RELU_MLP_H
#define SOTTO_TESTS_NN_RELU_MLP_H

#include "nn/layers/layers.h"

/* y = x + down(relu(up(norm(x)))) */
struct relu_mlp_layer {
    struct layer base;
    int width, hidden;
    struct norm_part norm;
    int up_w, up_b, down_w, down_b; /* tensors */
};

static struct edge relu_mlp_output(const struct layer *layer, struct extent e)
{
    const struct relu_mlp_layer *l = (const struct relu_mlp_layer *)layer;
    return (struct edge){1, {{extent_tokens(e), (size_t)l->width}}};
}

/* Memory that forward leaves for backward. */
struct relu_mlp_saved {
    struct view stats; /* (rows, 2) of the norm   */
    struct view n;     /* (rows, width) norm(x)   */
    struct view a;     /* (rows, hidden) relu(up) */
};

static struct relu_mlp_saved relu_mlp_carve(const struct relu_mlp_layer *l, struct extent e,
                                            struct room *room)
{
    const size_t rows = extent_tokens(e);
    struct relu_mlp_saved k;
    k.stats = carve_piece(room, 2 * rows, DTYPE_F32);
    k.n = carve_piece(room, rows * (size_t)l->width, e.type);
    k.a = carve_piece(room, rows * (size_t)l->hidden, e.type);
    return k;
}

static size_t relu_mlp_saved(const struct layer *layer, struct extent e)
{
    struct room room = {0};
    relu_mlp_carve((const struct relu_mlp_layer *)layer, e, &room);
    return room.used;
}

/* Backward's scratch has the gradients of n and of a, which have the shapes of n and a. */
static size_t relu_mlp_scratch(const struct layer *layer, struct extent e, bool backward)
{
    return backward ? relu_mlp_saved(layer, e) : 0;
}

static double relu_mlp_flops(const struct layer *layer, struct extent e)
{
    const struct relu_mlp_layer *l = (const struct relu_mlp_layer *)layer;
    return 4.0 * (double)extent_tokens(e) * l->width * l->hidden;
}

static void relu_mlp_forward(const struct layer *layer, struct pass *pass, const struct view *theta,
                             struct layer_flow flow)
{
    const struct relu_mlp_layer *l = (const struct relu_mlp_layer *)layer;
    const struct ops *ops = pass->dev->ops;
    const size_t rows = extent_tokens(pass->extent);
    const struct linear up = pass_linear(pass, rows, l->width, l->hidden, LINEAR_OUT_IN);
    const struct linear down = pass_linear(pass, rows, l->hidden, l->width, LINEAR_OUT_IN);
    const struct relu_mlp_saved k = relu_mlp_carve(l, pass->extent, &flow.saved);
    norm_part_forward(&l->norm, pass, theta, l->width, k.n, flow.x, k.stats);
    ops->linear_forward(pass->dev, &up, k.a, k.n, pass_param(pass, theta, l->up_w),
                        pass_param(pass, theta, l->up_b), view_none);
    ops->relu_forward(pass->dev, k.a, k.a, rows * (size_t)l->hidden);
    ops->linear_forward(pass->dev, &down, flow.y, k.a, pass_param(pass, theta, l->down_w),
                        pass_param(pass, theta, l->down_b), flow.x); /* y = x + down(a) */
}

static void relu_mlp_backward(const struct layer *layer, struct pass *pass,
                              const struct view *theta, const struct view *grad,
                              struct layer_flow flow)
{
    const struct relu_mlp_layer *l = (const struct relu_mlp_layer *)layer;
    const size_t rows = extent_tokens(pass->extent);
    const struct linear up = pass_linear(pass, rows, l->width, l->hidden, LINEAR_OUT_IN);
    const struct linear down = pass_linear(pass, rows, l->hidden, l->width, LINEAR_OUT_IN);
    const struct relu_mlp_saved k = relu_mlp_carve(l, pass->extent, &flow.saved);
    const struct relu_mlp_saved d = relu_mlp_carve(l, pass->extent, &flow.scratch);
    projection_backward(pass, &down, d.a, pass_param(pass, grad, l->down_w),
                        pass_param(pass, grad, l->down_b), flow.dy, k.a,
                        pass_param(pass, theta, l->down_w), false);
    pass->dev->ops->relu_backward(pass->dev, d.a, d.a, k.a, rows * (size_t)l->hidden);
    projection_backward(pass, &up, d.n, pass_param(pass, grad, l->up_w),
                        pass_param(pass, grad, l->up_b), d.a, k.n, pass_param(pass, theta, l->up_w),
                        false);
    norm_part_backward(&l->norm, pass, theta, grad, l->width, flow.dx, d.n, flow.x, k.stats,
                       flow.dy); /* dx = dy + the gradient through the norm */
}

/* In a fresh pass products overwrite the gradients of their weights. */
static void relu_mlp_writes(const struct layer *layer, struct table *table)
{
    const struct relu_mlp_layer *l = (const struct relu_mlp_layer *)layer;
    table_written(table, l->up_w);
    table_written(table, l->down_w);
}

static const struct layer_ops relu_mlp_ops = {.name = "relu_mlp",
                                              .passes_on = true,
                                              .output = relu_mlp_output,
                                              .saved = relu_mlp_saved,
                                              .scratch = relu_mlp_scratch,
                                              .flops = relu_mlp_flops,
                                              .forward = relu_mlp_forward,
                                              .backward = relu_mlp_backward,
                                              .writes = relu_mlp_writes};

#endif
