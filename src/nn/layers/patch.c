/* Images as sequences: a token that represents the whole image, then a projection of each patch of
 * pixels; learned positions are added to all positions. */
#include "nn/layers/layers.h"

static int patches(const struct patch_layer *l)
{
    return (l->h / l->patch) * (l->w / l->patch);
}

static struct edge output(const struct layer *layer, struct extent e)
{
    const struct patch_layer *l = (const struct patch_layer *)layer;
    return (struct edge){1, {{extent_tokens(e), (size_t)l->width}}};
}

struct work {
    struct view x;   /* the images, in the type that is computed with               */
    struct view p;   /* (rows, patches, width) projections, or their gradient       */
    struct view all; /* (forward) (rows, t, width) positions for each image         */
    struct view own; /* (backward) (rows, width) gradient of the images' own tokens */
};

static size_t pixels(const struct patch_layer *l, struct extent e)
{
    return (size_t)e.rows * (size_t)l->h * (size_t)l->w * (size_t)l->channels;
}

static struct work work(const struct patch_layer *l, struct extent e, bool backward,
                        struct room *room)
{
    struct work w = {.x = view_none};
    if (e.type != DTYPE_F32)
        w.x = carve(room, pixels(l, e), e.type);
    w.p = carve(room, (size_t)e.rows * (size_t)patches(l) * (size_t)l->width, e.type);
    if (backward)
        w.own = carve(room, (size_t)e.rows * (size_t)l->width, e.type);
    else
        w.all = carve(room, extent_tokens(e) * (size_t)l->width, e.type);
    return w;
}

static size_t scratch(const struct layer *layer, struct extent e, bool backward)
{
    struct room room = {0};
    work((const struct patch_layer *)layer, e, backward, &room);
    return room.used;
}

static struct conv shape(const struct patch_layer *l, const struct pass *pass)
{
    return (struct conv){.rows = pass->extent.rows,
                         .h = l->h,
                         .w = l->w,
                         .in = l->channels,
                         .out = l->width,
                         .kernel = l->patch,
                         .stride = l->patch,
                         .half = pass->half};
}

static double flops(const struct layer *layer, struct extent e)
{
    const struct patch_layer *l = (const struct patch_layer *)layer;
    return 2.0 * (double)pixels(l, e) * l->width;
}

static struct view images(const struct patch_layer *l, struct pass *pass, const struct work *w)
{
    if (pass->extent.type == DTYPE_F32)
        return pass->input;
    pass->dev->ops->copy(pass->dev, w->x, pass->input, pixels(l, pass->extent));
    return w->x;
}

/* `rows` positions of each image, `y_room` and `x_room` positions from one image to the next; 0:
 * the same for all. */
static void copy(const struct patch_layer *l, struct pass *pass, int rows, struct view y,
                 int y_room, struct view x, int x_room)
{
    const size_t width = (size_t)l->width;
    const struct row_copy p = {.batch = pass->extent.rows,
                               .rows = rows,
                               .width = l->width,
                               .y_stride = width,
                               .x_stride = width,
                               .y_batch_stride = (size_t)y_room * width,
                               .x_batch_stride = (size_t)x_room * width};
    pass->dev->ops->copy_rows(pass->dev, &p, y, x);
}

static void forward(const struct layer *layer, struct pass *pass, const struct view *theta,
                    struct flow flow)
{
    const struct patch_layer *l = (const struct patch_layer *)layer;
    struct device *dev = pass->dev;
    const struct conv p = shape(l, pass);
    const int n = patches(l), t = n + 1;
    struct work w = work(l, pass->extent, false, &flow.scratch);
    dev->ops->conv_forward(dev, &p, w.p, images(l, pass, &w), param(pass, theta, l->weight),
                           param(pass, theta, l->bias));
    copy(l, pass, 1, flow.y, t, param(pass, theta, l->token), 0);
    copy(l, pass, n, view_at(flow.y, (size_t)l->width), t, w.p, n);
    copy(l, pass, t, w.all, t, param(pass, theta, l->positions), 0);
    dev->ops->axpy(dev, flow.y, 1, w.all, extent_tokens(pass->extent) * (size_t)l->width);
}

static void backward(const struct layer *layer, struct pass *pass, const struct view *theta,
                     const struct view *grad, struct flow flow)
{
    (void)theta;
    const struct patch_layer *l = (const struct patch_layer *)layer;
    struct device *dev = pass->dev;
    const struct conv p = shape(l, pass);
    const int rows = pass->extent.rows, n = patches(l), t = n + 1;
    struct work w = work(l, pass->extent, true, &flow.scratch);
    copy(l, pass, n, w.p, n, view_at(flow.dy, (size_t)l->width), t);
    copy(l, pass, 1, w.own, 1, flow.dy, t);
    dev->ops->conv_backward_w(dev, &p, param(pass, grad, l->weight), param(pass, grad, l->bias),
                              w.p, images(l, pass, &w));
    dev->ops->embedding_backward(dev, rows, t, l->width, view_none, param(pass, grad, l->positions),
                                 view_none, flow.dy);
    dev->ops->embedding_backward(dev, rows, 1, l->width, view_none, param(pass, grad, l->token),
                                 view_none, w.own);
}

const struct layer_ops patch_ops = {.name = "patch",
                                    .output = output,
                                    .scratch = scratch,
                                    .flops = flops,
                                    .forward = forward,
                                    .backward = backward};
