/* The first convolution over the images, with its norm, and optional max pooling. */
#include "nn/layers/layers.h"

static struct pooling stem_pooling(const struct stem_layer *l, int rows)
{
    return (struct pooling){.rows = rows,
                            .h = conv_side(&l->conv, l->conv.h),
                            .w = conv_side(&l->conv, l->conv.w),
                            .channels = l->conv.out,
                            .kernel = 3,
                            .stride = 2,
                            .pad = 1};
}

void stem_sides(const struct stem_layer *l, int *h, int *w)
{
    const struct pooling p = stem_pooling(l, 1);
    *h = l->pools ? window_count(p.h, p.kernel, p.stride, p.pad) : p.h;
    *w = l->pools ? window_count(p.w, p.kernel, p.stride, p.pad) : p.w;
}

static size_t stem_pixels(const struct stem_layer *l, struct extent e)
{
    int h, w;
    stem_sides(l, &h, &w);
    return (size_t)e.rows * (size_t)h * (size_t)w;
}

/* Numbers of the images. */
static size_t stem_numbers(const struct stem_layer *l, struct extent e)
{
    return (size_t)e.rows * (size_t)l->conv.h * (size_t)l->conv.w * (size_t)l->conv.in;
}

static struct edge stem_output(const struct layer *layer, struct extent e)
{
    const struct stem_layer *l = (const struct stem_layer *)layer;
    return (struct edge){1, {{stem_pixels(l, e), (size_t)l->conv.out}}};
}

struct stem_saved {
    struct conv_kept conv;
    struct view winner; /* pooling's: which pixel of a window was the largest */
};

static struct stem_saved stem_carve_saved(const struct stem_layer *l, struct extent e,
                                          struct room *room)
{
    struct stem_saved k = {.conv = conv_carve(&l->conv, e, room)};
    if (l->pools)
        k.winner = carve_piece(room, stem_pixels(l, e) * (size_t)l->conv.out, DTYPE_U8);
    return k;
}

static size_t stem_saved(const struct layer *layer, struct extent e)
{
    struct room room = {0};
    stem_carve_saved((const struct stem_layer *)layer, e, &room);
    return room.used;
}

struct stem_scratch {
    struct view x; /* the images, in the type that is computed with */
    struct view one;
    struct view a; /* output of the convolution and norm */
    struct view d; /* (backward) gradient of a */
};

static struct stem_scratch stem_carve_scratch(const struct stem_layer *l, struct extent e,
                                              bool backward, struct room *room)
{
    struct stem_scratch w = {.one = carve_piece(room, 1, DTYPE_F32)};
    if (e.type != DTYPE_F32)
        w.x = carve_piece(room, stem_numbers(l, e), e.type);
    w.a = carve_piece(room, conv_count(&l->conv, e.rows), e.type);
    if (backward)
        w.d = carve_piece(room, conv_count(&l->conv, e.rows), e.type);
    return w;
}

static size_t stem_scratch(const struct layer *layer, struct extent e, bool backward)
{
    struct room room = {0};
    stem_carve_scratch((const struct stem_layer *)layer, e, backward, &room);
    return room.used;
}

static double stem_flops(const struct layer *layer, struct extent e)
{
    return conv_flops(&((const struct stem_layer *)layer)->conv, e.rows);
}

static struct view stem_input(const struct stem_layer *l, struct pass *pass,
                              const struct stem_scratch *w)
{
    if (pass->extent.type == DTYPE_F32)
        return pass->input;
    pass->dev->ops->copy(pass->dev, w->x, pass->input, stem_numbers(l, pass->extent));
    return w->x;
}

static void stem_forward(const struct layer *layer, struct pass *pass, const struct view *theta,
                         struct layer_flow flow)
{
    const struct stem_layer *l = (const struct stem_layer *)layer;
    struct stem_saved k = stem_carve_saved(l, pass->extent, &flow.saved);
    struct stem_scratch w = stem_carve_scratch(l, pass->extent, false, &flow.scratch);
    conv_part_forward(&l->conv, pass, theta, &k.conv, l->pools ? w.a : flow.y,
                      stem_input(l, pass, &w), view_none, true, w.one);
    if (l->pools) {
        const struct pooling p = stem_pooling(l, pass->extent.rows);
        pass->dev->ops->maxpool_forward(pass->dev, &p, flow.y, k.winner, w.a);
    }
}

static void stem_backward(const struct layer *layer, struct pass *pass, const struct view *theta,
                          const struct view *grad, struct layer_flow flow)
{
    const struct stem_layer *l = (const struct stem_layer *)layer;
    struct stem_saved k = stem_carve_saved(l, pass->extent, &flow.saved);
    struct stem_scratch w = stem_carve_scratch(l, pass->extent, true, &flow.scratch);
    struct conv_gradient g = {.dx = view_none, /* images have no gradient */
                              .dresidual = view_none,
                              .dc = w.d,
                              .dy = flow.dy,
                              .x = stem_input(l, pass, &w),
                              .y = w.a,
                              .relu = true};
    conv_part_again(&l->conv, pass, theta, &k.conv, w.a, view_none, true);
    if (l->pools) {
        const struct pooling p = stem_pooling(l, pass->extent.rows);
        pass->dev->ops->maxpool_backward(pass->dev, &p, w.d, flow.dy, k.winner);
        g.dy = w.d;
    }
    conv_part_backward(&l->conv, pass, theta, grad, &k.conv, &g);
}

const struct layer_ops stem_ops = {.name = "stem",
                                   .output = stem_output,
                                   .saved = stem_saved,
                                   .scratch = stem_scratch,
                                   .flops = stem_flops,
                                   .forward = stem_forward,
                                   .backward = stem_backward};
