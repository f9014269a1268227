/* Images as sequences: a token that represents the whole image, then a projection of each patch of
 * pixels; learned positions are added to all positions. */
#include "nn/layers/layers.h"

static int patch_count(const struct patch_layer *l)
{
    return (l->h / l->patch) * (l->w / l->patch);
}

static struct edge patch_output(const struct layer *layer, struct extent e)
{
    const struct patch_layer *l = (const struct patch_layer *)layer;
    return (struct edge){1, {{extent_tokens(e), (size_t)l->width}}};
}

struct patch_scratch {
    struct view x;   /* the images, in the type that is computed with */
    struct view p;   /* (rows, patches, width) projections, or their gradient */
    struct view all; /* (forward) (rows, t, width) positions for each image */
    struct view own; /* (backward) (rows, width) gradient of the images' own tokens */
};

static size_t patch_pixels(const struct patch_layer *l, struct extent e)
{
    return (size_t)e.rows * (size_t)l->h * (size_t)l->w * (size_t)l->channels;
}

static struct patch_scratch patch_carve_scratch(const struct patch_layer *l, struct extent e,
                                                bool backward, struct room *room)
{
    struct patch_scratch w = {.x = view_none};
    if (e.type != DTYPE_F32)
        w.x = carve_piece(room, patch_pixels(l, e), e.type);
    w.p = carve_piece(room, (size_t)e.rows * (size_t)patch_count(l) * (size_t)l->width, e.type);
    if (backward)
        w.own = carve_piece(room, (size_t)e.rows * (size_t)l->width, e.type);
    else
        w.all = carve_piece(room, extent_tokens(e) * (size_t)l->width, e.type);
    return w;
}

static size_t patch_scratch(const struct layer *layer, struct extent e, bool backward)
{
    struct room room = {0};
    patch_carve_scratch((const struct patch_layer *)layer, e, backward, &room);
    return room.used;
}

static struct conv patch_conv(const struct patch_layer *l, const struct pass *pass)
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

static double patch_flops(const struct layer *layer, struct extent e)
{
    const struct patch_layer *l = (const struct patch_layer *)layer;
    return 2.0 * (double)patch_pixels(l, e) * l->width;
}

static struct view patch_input(const struct patch_layer *l, struct pass *pass,
                               const struct patch_scratch *w)
{
    if (pass->extent.type == DTYPE_F32)
        return pass->input;
    pass->dev->ops->copy(pass->dev, w->x, pass->input, patch_pixels(l, pass->extent));
    return w->x;
}

/* Copies `rows` positions of each image, `y_room` and `x_room` positions from one image to the
 * next; 0: the same for all. */
static void copy_positions(const struct patch_layer *l, struct pass *pass, int rows, struct view y,
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

static void patch_forward(const struct layer *layer, struct pass *pass, const struct view *theta,
                          struct layer_flow flow)
{
    const struct patch_layer *l = (const struct patch_layer *)layer;
    struct device *dev = pass->dev;
    const struct conv p = patch_conv(l, pass);
    const int n = patch_count(l), t = n + 1;
    struct patch_scratch w = patch_carve_scratch(l, pass->extent, false, &flow.scratch);
    dev->ops->conv_forward(dev, &p, w.p, patch_input(l, pass, &w),
                           pass_param(pass, theta, l->weight), pass_param(pass, theta, l->bias));
    copy_positions(l, pass, 1, flow.y, t, pass_param(pass, theta, l->token), 0);
    copy_positions(l, pass, n, view_at(flow.y, (size_t)l->width), t, w.p, n);
    copy_positions(l, pass, t, w.all, t, pass_param(pass, theta, l->positions), 0);
    dev->ops->axpy(dev, flow.y, 1, w.all, extent_tokens(pass->extent) * (size_t)l->width);
}

static void patch_backward(const struct layer *layer, struct pass *pass, const struct view *theta,
                           const struct view *grad, struct layer_flow flow)
{
    (void)theta;
    const struct patch_layer *l = (const struct patch_layer *)layer;
    struct device *dev = pass->dev;
    const struct conv p = patch_conv(l, pass);
    const int rows = pass->extent.rows, n = patch_count(l), t = n + 1;
    struct patch_scratch w = patch_carve_scratch(l, pass->extent, true, &flow.scratch);
    copy_positions(l, pass, n, w.p, n, view_at(flow.dy, (size_t)l->width), t);
    copy_positions(l, pass, 1, w.own, 1, flow.dy, t);
    dev->ops->conv_backward_w(dev, &p, pass_param(pass, grad, l->weight),
                              pass_param(pass, grad, l->bias), w.p, patch_input(l, pass, &w));
    dev->ops->embedding_backward(dev, rows, t, l->width, view_none,
                                 pass_param(pass, grad, l->positions), view_none, flow.dy);
    dev->ops->embedding_backward(dev, rows, 1, l->width, view_none,
                                 pass_param(pass, grad, l->token), view_none, w.own);
}

const struct layer_ops patch_ops = {.name = "patch",
                                    .output = patch_output,
                                    .scratch = patch_scratch,
                                    .flops = patch_flops,
                                    .forward = patch_forward,
                                    .backward = patch_backward};
