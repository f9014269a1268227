#include "nn/layers/conv.h"

struct conv_kept conv_carve(const struct conv_part *p, struct extent e, struct room *room)
{
    struct conv_kept k = {.c = carve_piece(room, conv_count(p, e.rows), e.type)};
    k.stats = carve_piece(room, 2 * (size_t)p->out, DTYPE_F32);
    return k;
}

static struct conv describe_conv(const struct conv_part *p, const struct pass *pass)
{
    return (struct conv){.rows = pass->extent.rows,
                         .h = p->h,
                         .w = p->w,
                         .in = p->in,
                         .out = p->out,
                         .kernel = p->kernel,
                         .stride = p->stride,
                         .pad = p->kernel / 2,
                         .half = pass->half};
}

static struct batchnorm describe_conv_norm(const struct conv_part *p, const struct pass *pass,
                                           bool relu)
{
    return (struct batchnorm){.rows = (int)conv_pixels(p, pass->extent.rows),
                              .width = p->out,
                              .eps = CONV_EPS,
                              .momentum = CONV_MOMENTUM_PERCENT / 100.0f,
                              .training = pass->training,
                              .relu = relu};
}

void conv_part_forward(const struct conv_part *p, struct pass *pass, const struct view *theta,
                       const struct conv_kept *k, struct view y, struct view x,
                       struct view residual, bool relu, struct view one)
{
    struct device *dev = pass->dev;
    const struct conv conv = describe_conv(p, pass);
    const struct batchnorm bn = describe_conv_norm(p, pass, relu);
    const bool moves = pass->training && !pass->again;
    struct view mean = view_none, variance = view_none;
    if (moves || !pass->training) {
        mean = state_of(pass, p->mean);
        variance = state_of(pass, p->variance);
    }
    dev->ops->conv_forward(dev, &conv, k->c, x, pass_param(pass, theta, p->weight), view_none);
    dev->ops->batchnorm_forward(dev, &bn, y, k->c, pass_param(pass, theta, p->gain),
                                pass_param(pass, theta, p->bias), residual, mean, variance,
                                k->stats);
    if (!moves || !mean.data)
        return;
    dev->ops->fill(dev, one, 1, 1);
    dev->ops->axpy(dev, state_of(pass, p->seen), 1, one, 1);
}

void conv_part_again(const struct conv_part *p, struct pass *pass, const struct view *theta,
                     const struct conv_kept *k, struct view y, struct view residual, bool relu)
{
    struct batchnorm bn = describe_conv_norm(p, pass, relu);
    bn.given = true;
    pass->dev->ops->batchnorm_forward(pass->dev, &bn, y, k->c, pass_param(pass, theta, p->gain),
                                      pass_param(pass, theta, p->bias), residual, view_none,
                                      view_none, k->stats);
}

void conv_part_backward(const struct conv_part *p, struct pass *pass, const struct view *theta,
                        const struct view *grad, const struct conv_kept *k,
                        const struct conv_gradient *g)
{
    struct device *dev = pass->dev;
    const struct conv conv = describe_conv(p, pass);
    const struct batchnorm bn = describe_conv_norm(p, pass, g->relu);
    dev->ops->batchnorm_backward(dev, &bn, g->dc, pass_param(pass, grad, p->gain),
                                 pass_param(pass, grad, p->bias), g->dresidual, g->dy, k->c, g->y,
                                 pass_param(pass, theta, p->gain), k->stats);
    dev->ops->conv_backward_w(dev, &conv, pass_param(pass, grad, p->weight), view_none, g->dc,
                              g->x);
    if (view_there(g->dx))
        dev->ops->conv_backward_x(dev, &conv, g->dx, g->dc, pass_param(pass, theta, p->weight),
                                  g->add);
}
