/* The two normalisations under one call, shared by the blocks. */
#ifndef SOTTO_NN_LAYERS_NORM_H
#define SOTTO_NN_LAYERS_NORM_H

#include "nn/layer.h"

enum norm_kind { NORM_LAYER, NORM_RMS };

struct norm_part {
    enum norm_kind kind;
    int gain, bias; /* tensors; bias -1: none */
    float eps;
};

/* Normalizes `rows` rows of `width` elements. */
static inline void normalize_rows_forward(const struct norm_part *n, struct pass *pass,
                                          const struct view *theta, size_t rows, int width,
                                          struct view y, struct view x, struct view stats)
{
    const struct norm shape = {(int)rows, width, n->eps};
    const struct ops *ops = pass->dev->ops;
    struct view gain = pass_param(pass, theta, n->gain);
    if (n->kind == NORM_LAYER)
        ops->layernorm_forward(pass->dev, &shape, y, x, gain, pass_param(pass, theta, n->bias),
                               stats);
    else
        ops->rmsnorm_forward(pass->dev, &shape, y, x, gain, stats);
}

static inline void normalize_rows_backward(const struct norm_part *n, struct pass *pass,
                                           const struct view *theta, const struct view *grad,
                                           size_t rows, int width, struct view dx, struct view dy,
                                           struct view x, struct view stats, struct view from)
{
    const struct norm shape = {(int)rows, width, n->eps};
    const struct ops *ops = pass->dev->ops;
    struct view gain = pass_param(pass, theta, n->gain), dgain = pass_param(pass, grad, n->gain);
    if (n->kind == NORM_LAYER)
        ops->layernorm_backward(pass->dev, &shape, dx, dgain, pass_param(pass, grad, n->bias), dy,
                                x, gain, stats, from);
    else
        ops->rmsnorm_backward(pass->dev, &shape, dx, dgain, dy, x, gain, stats, from);
}

/* Normalize a row of `width` elements for each token. */
static inline void norm_part_forward(const struct norm_part *n, struct pass *pass,
                                     const struct view *theta, int width, struct view y,
                                     struct view x, struct view stats)
{
    normalize_rows_forward(n, pass, theta, extent_tokens(pass->extent), width, y, x, stats);
}

static inline void norm_part_backward(const struct norm_part *n, struct pass *pass,
                                      const struct view *theta, const struct view *grad, int width,
                                      struct view dx, struct view dy, struct view x,
                                      struct view stats, struct view from)
{
    normalize_rows_backward(n, pass, theta, grad, extent_tokens(pass->extent), width, dx, dy, x,
                            stats, from);
}

#endif
