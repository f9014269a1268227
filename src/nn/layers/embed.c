/* Token and, where the architecture has them, learned position embeddings. */
#include "nn/layers/layers.h"

static struct edge embed_output(const struct layer *layer, struct extent e)
{
    const struct embed_layer *l = (const struct embed_layer *)layer;
    return (struct edge){1, {{extent_tokens(e), (size_t)l->width}}};
}

static double embed_flops(const struct layer *layer, struct extent e)
{
    const struct embed_layer *l = (const struct embed_layer *)layer;
    return (double)extent_tokens(e) * l->width;
}

static void embed_forward(const struct layer *layer, struct pass *pass, const struct view *theta,
                          struct layer_flow flow)
{
    const struct embed_layer *l = (const struct embed_layer *)layer;
    pass->dev->ops->embedding_forward(
        pass->dev, pass->extent.rows, pass->extent.t, l->width, pass->start, flow.y, pass->input,
        pass_param(pass, theta, l->table), pass_param(pass, theta, l->positions));
}

static void embed_backward(const struct layer *layer, struct pass *pass, const struct view *theta,
                           const struct view *grad, struct layer_flow flow)
{
    (void)theta;
    const struct embed_layer *l = (const struct embed_layer *)layer;
    pass->dev->ops->embedding_backward(pass->dev, pass->extent.rows, pass->extent.t, l->width,
                                       pass_param(pass, grad, l->table),
                                       pass_param(pass, grad, l->positions), pass->input, flow.dy);
}

const struct layer_ops embed_ops = {.name = "embed",
                                    .output = embed_output,
                                    .flops = embed_flops,
                                    .forward = embed_forward,
                                    .backward = embed_backward};
