/* Some of a residual block's convolutions, where a stage ends inside the block. Slices compute as
 * residual.c does, in the same order; an edge takes the place of residual.c's scratch.
 *
 *     (rest, a)  the tensor that the block adds at its end, and the result of the part before */
#include "nn/layers/layers.h"

static const struct slice_layer *slice_layer_of(const struct layer *layer)
{
    return (const struct slice_layer *)layer;
}

static bool ends_block(const struct slice_layer *l)
{
    return l->to == l->block.parts;
}

static bool projects_input(const struct slice_layer *l)
{
    return l->from == 0 && l->block.projects;
}

/* Returns the edge between parts p - 1 and p, or after the last part. */
static struct edge edge_at(const struct slice_layer *l, int p, struct extent e)
{
    const struct conv_part *last = &l->block.part[l->block.parts - 1],
                           *part = &l->block.part[p - 1];
    const struct edge edge = {.n = 2,
                              .part = {{conv_pixels(last, e.rows), (size_t)last->out},
                                       {conv_pixels(part, e.rows), (size_t)part->out}}};
    return p == l->block.parts ? (struct edge){1, {edge.part[0]}} : edge;
}

static struct edge slice_output(const struct layer *layer, struct extent e)
{
    return edge_at(slice_layer_of(layer), slice_layer_of(layer)->to, e);
}

struct slice_saved {
    struct conv_kept part[RESIDUAL_PARTS], shortcut;
};

static struct slice_saved slice_carve_saved(const struct slice_layer *l, struct extent e,
                                            struct room *room)
{
    struct slice_saved k = {0};
    for (int i = l->from; i < l->to; i++)
        k.part[i] = conv_carve(&l->block.part[i], e, room);
    if (projects_input(l))
        k.shortcut = conv_carve(&l->block.shortcut, e, room);
    return k;
}

static size_t slice_saved(const struct layer *layer, struct extent e)
{
    struct room room = {0};
    slice_carve_saved(slice_layer_of(layer), e, &room);
    return room.used;
}

struct slice_scratch {
    struct view a[RESIDUAL_PARTS]; /* outputs of all parts but the last */
    struct view one;               /* (1) fp32 scratch of conv_part_forward */
    struct view y;                 /* (backward) output of the slice, if forward's is not kept */
    struct view d[2];              /* (backward) gradients between the parts, in turn */
};

static struct slice_scratch slice_carve_scratch(const struct slice_layer *l, struct extent e,
                                                bool backward, struct room *room)
{
    struct slice_scratch w = {.one = carve_piece(room, 1, DTYPE_F32)};
    size_t most = 0;
    for (int i = l->from; i < l->to; i++) {
        const size_t count = conv_count(&l->block.part[i], e.rows);
        most = count > most ? count : most;
        if (i + 1 < l->to)
            w.a[i] = carve_piece(room, count, e.type);
    }
    if (!backward)
        return w;
    w.y = carve_piece(room, conv_count(&l->block.part[l->to - 1], e.rows), e.type);
    for (int i = 0; i < 2; i++)
        w.d[i] = carve_piece(room, most, e.type);
    return w;
}

static size_t slice_scratch(const struct layer *layer, struct extent e, bool backward)
{
    struct room room = {0};
    slice_carve_scratch(slice_layer_of(layer), e, backward, &room);
    return room.used;
}

static double slice_flops(const struct layer *layer, struct extent e)
{
    const struct slice_layer *l = slice_layer_of(layer);
    double sum = projects_input(l) ? conv_flops(&l->block.shortcut, e.rows) : 0;
    for (int i = l->from; i < l->to; i++)
        sum += conv_flops(&l->block.part[i], e.rows);
    return sum;
}

/* The two parts of an edge or of its gradient; the input and the output of a whole block have only
 * `a`. */
struct edge_views {
    struct view rest, a;
};

static struct edge_views edge_views(const struct slice_layer *l, int p, struct extent e,
                                    struct view v)
{
    if (p == 0 || p == l->block.parts)
        return (struct edge_views){view_none, v};
    const struct edge edge = edge_at(l, p, e);
    return (struct edge_views){v, edge_part(v, edge, 1)};
}

static size_t rest_count(const struct slice_layer *l, struct extent e)
{
    return conv_count(&l->block.part[l->block.parts - 1], e.rows);
}

static void slice_forward(const struct layer *layer, struct pass *pass, const struct view *theta,
                          struct layer_flow flow)
{
    const struct slice_layer *l = slice_layer_of(layer);
    const struct extent e = pass->extent;
    struct slice_saved k = slice_carve_saved(l, e, &flow.saved);
    struct slice_scratch w = slice_carve_scratch(l, e, false, &flow.scratch);
    const struct edge_views in = edge_views(l, l->from, e, flow.x),
                            out = edge_views(l, l->to, e, flow.y);
    struct view x = in.a;
    for (int i = l->from; i < l->to; i++) {
        const struct view y = i + 1 < l->to ? w.a[i] : out.a;
        const struct view residual = i + 1 == l->block.parts ? in.rest : view_none;
        conv_part_forward(&l->block.part[i], pass, theta, &k.part[i], y, x, residual, true, w.one);
        x = y;
    }
    if (projects_input(l))
        conv_part_forward(&l->block.shortcut, pass, theta, &k.shortcut, out.rest, flow.x, view_none,
                          false, w.one);
    else if (!ends_block(l))
        pass->dev->ops->copy(pass->dev, out.rest, l->from ? in.rest : flow.x, rest_count(l, e));
}

/* Computes the outputs of the blocks' parts again, for backward. Returns the slice's output. */
static struct view slice_again(const struct slice_layer *l, struct pass *pass,
                               const struct view *theta, const struct slice_saved *k,
                               const struct slice_scratch *w, struct layer_flow flow,
                               struct view rest)
{
    const int last = l->to - 1;
    for (int i = l->from; i < last; i++)
        conv_part_again(&l->block.part[i], pass, theta, &k->part[i], w->a[i], view_none, true);
    if (flow.y.data) /* another layer of the stage follows the block */
        return flow.y;
    conv_part_again(&l->block.part[last], pass, theta, &k->part[last], w->y,
                    ends_block(l) ? rest : view_none, true);
    return w->y;
}

/* Passes the gradient of the tensor that the block adds at its end on to the block's input. */
static void residual_gradient(const struct slice_layer *l, struct pass *pass,
                              const struct view *theta, const struct view *grad,
                              const struct slice_saved *k, struct layer_flow flow)
{
    const struct view drest = edge_views(l, l->to, pass->extent, flow.dy).rest;
    if (!projects_input(l)) {
        pass->dev->ops->copy(pass->dev, flow.dx, drest, rest_count(l, pass->extent));
        return;
    }
    const struct conv_gradient g = {.dx = flow.dx, .dc = drest, .dy = drest, .x = flow.x};
    conv_part_backward(&l->block.shortcut, pass, theta, grad, &k->shortcut, &g);
}

static void slice_backward(const struct layer *layer, struct pass *pass, const struct view *theta,
                           const struct view *grad, struct layer_flow flow)
{
    const struct slice_layer *l = slice_layer_of(layer);
    const struct extent e = pass->extent;
    struct slice_saved k = slice_carve_saved(l, e, &flow.saved);
    struct slice_scratch w = slice_carve_scratch(l, e, true, &flow.scratch);
    const struct edge_views in = edge_views(l, l->from, e, flow.x),
                            din = edge_views(l, l->from, e, flow.dx);
    struct view y = slice_again(l, pass, theta, &k, &w, flow, in.rest);
    struct view dy = edge_views(l, l->to, e, flow.dy).a;
    if (!ends_block(l))
        residual_gradient(l, pass, theta, grad, &k, flow);
    for (int i = l->to - 1; i >= l->from; i--) {
        const bool last = i + 1 == l->block.parts, first = i == l->from;
        const struct conv_gradient g = {.dx = first ? din.a : w.d[i % 2],
                                        .dresidual = last ? din.rest : view_none,
                                        .dc = last ? w.d[(i + 1) % 2] : dy,
                                        .dy = dy,
                                        .x = first ? in.a : w.a[i - 1],
                                        .y = y,
                                        .add = i == 0,
                                        .relu = true};
        conv_part_backward(&l->block.part[i], pass, theta, grad, &k.part[i], &g);
        dy = g.dx;
        y = g.x;
    }
}

static bool slice_join(struct layer *layer, const struct layer *next)
{
    struct slice_layer *l = (struct slice_layer *)layer;
    if (next->ops != &slice_ops || slice_layer_of(next)->from != l->to)
        return false;
    l->to = slice_layer_of(next)->to;
    if (l->from == 0 && ends_block(l))
        layer->ops = &residual_ops;
    return true;
}

const struct layer_ops slice_ops = {.name = "slice",
                                    .output = slice_output,
                                    .saved = slice_saved,
                                    .scratch = slice_scratch,
                                    .flops = slice_flops,
                                    .forward = slice_forward,
                                    .backward = slice_backward,
                                    .join = slice_join};
