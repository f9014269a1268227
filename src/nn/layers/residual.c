/* A residual block: two or three convolutions with their norms around which the input is carried,
 * through a convolution and norm of its own where the block changes its shape.
 *
 *     y = relu(part_n(... relu(part_1(x))) + (x or shortcut(x))) */
#include "nn/layers/layers.h"

static const struct conv_part *last_of(const struct residual_layer *l)
{
    return &l->part[l->parts - 1];
}

static struct edge residual_output(const struct layer *layer, struct extent e)
{
    const struct conv_part *p = last_of((const struct residual_layer *)layer);
    return (struct edge){1, {{conv_pixels(p, e.rows), (size_t)p->out}}};
}

struct residual_saved {
    struct conv_kept part[RESIDUAL_PARTS], shortcut;
};

static struct residual_saved residual_carve_saved(const struct residual_layer *l, struct extent e,
                                                  struct room *room)
{
    struct residual_saved k = {0};
    for (int i = 0; i < l->parts; i++)
        k.part[i] = conv_carve(&l->part[i], e, room);
    if (l->projects)
        k.shortcut = conv_carve(&l->shortcut, e, room);
    return k;
}

static size_t residual_saved(const struct layer *layer, struct extent e)
{
    struct room room = {0};
    residual_carve_saved((const struct residual_layer *)layer, e, &room);
    return room.used;
}

struct residual_scratch {
    struct view a[RESIDUAL_PARTS - 1]; /* outputs of all parts but the last */
    struct view rest;                  /* output of the shortcut */
    struct view one;
    struct view y;     /* (backward) output of the block, if forward's is not kept */
    struct view drest; /* (backward) gradient of `rest` */
    struct view d[2];  /* (backward) gradients between the parts, in turn */
};

static struct residual_scratch residual_carve_scratch(const struct residual_layer *l,
                                                      struct extent e, bool backward,
                                                      struct room *room)
{
    struct residual_scratch w = {.one = carve_piece(room, 1, DTYPE_F32)};
    const size_t out = conv_count(last_of(l), e.rows);
    size_t most = out;
    for (int i = 0; i + 1 < l->parts; i++) {
        const size_t count = conv_count(&l->part[i], e.rows);
        w.a[i] = carve_piece(room, count, e.type);
        most = count > most ? count : most;
    }
    if (l->projects)
        w.rest = carve_piece(room, out, e.type);
    if (!backward)
        return w;
    w.y = carve_piece(room, out, e.type);
    if (l->projects)
        w.drest = carve_piece(room, out, e.type);
    for (int i = 0; i < 2; i++)
        w.d[i] = carve_piece(room, most, e.type);
    return w;
}

static size_t residual_scratch(const struct layer *layer, struct extent e, bool backward)
{
    struct room room = {0};
    residual_carve_scratch((const struct residual_layer *)layer, e, backward, &room);
    return room.used;
}

static double residual_flops(const struct layer *layer, struct extent e)
{
    const struct residual_layer *l = (const struct residual_layer *)layer;
    double sum = l->projects ? conv_flops(&l->shortcut, e.rows) : 0;
    for (int i = 0; i < l->parts; i++)
        sum += conv_flops(&l->part[i], e.rows);
    return sum;
}

static void residual_forward(const struct layer *layer, struct pass *pass, const struct view *theta,
                             struct layer_flow flow)
{
    const struct residual_layer *l = (const struct residual_layer *)layer;
    const int last = l->parts - 1;
    struct residual_saved k = residual_carve_saved(l, pass->extent, &flow.saved);
    struct residual_scratch w = residual_carve_scratch(l, pass->extent, false, &flow.scratch);
    struct view x = flow.x;
    for (int i = 0; i < last; i++) {
        conv_part_forward(&l->part[i], pass, theta, &k.part[i], w.a[i], x, view_none, true, w.one);
        x = w.a[i];
    }
    if (l->projects)
        conv_part_forward(&l->shortcut, pass, theta, &k.shortcut, w.rest, flow.x, view_none, false,
                          w.one);
    conv_part_forward(&l->part[last], pass, theta, &k.part[last], flow.y, x,
                      l->projects ? w.rest : flow.x, true, w.one);
}

/* Computes forward's results again that were not kept, and returns the block's output. That output
 * is the input of the next layer and still in memory, unless a stage ends here. */
static struct view residual_again(const struct residual_layer *l, struct pass *pass,
                                  const struct view *theta, const struct residual_saved *k,
                                  const struct residual_scratch *w, struct layer_flow flow)
{
    const int last = l->parts - 1;
    for (int i = 0; i < last; i++)
        conv_part_again(&l->part[i], pass, theta, &k->part[i], w->a[i], view_none, true);
    if (flow.y.data)
        return flow.y;
    if (l->projects)
        conv_part_again(&l->shortcut, pass, theta, &k->shortcut, w->rest, view_none, false);
    conv_part_again(&l->part[last], pass, theta, &k->part[last], w->y,
                    l->projects ? w->rest : flow.x, true);
    return w->y;
}

static void residual_backward(const struct layer *layer, struct pass *pass,
                              const struct view *theta, const struct view *grad,
                              struct layer_flow flow)
{
    const struct residual_layer *l = (const struct residual_layer *)layer;
    const int last = l->parts - 1;
    struct residual_saved k = residual_carve_saved(l, pass->extent, &flow.saved);
    struct residual_scratch w = residual_carve_scratch(l, pass->extent, true, &flow.scratch);
    struct view y = residual_again(l, pass, theta, &k, &w, flow);
    struct view dy = flow.dy, rest = l->projects ? w.drest : flow.dx;
    for (int i = last; i > 0; i--) {
        struct view dx = w.d[i % 2], dc = i == last ? w.d[(i + 1) % 2] : dy;
        const struct conv_gradient g = {.dx = dx,
                                        .dresidual = i == last ? rest : view_none,
                                        .dc = dc,
                                        .dy = dy,
                                        .x = w.a[i - 1],
                                        .y = y,
                                        .relu = true};
        conv_part_backward(&l->part[i], pass, theta, grad, &k.part[i], &g);
        dy = dx;
        y = w.a[i - 1];
    }
    if (l->projects) {
        const struct conv_gradient g = {.dx = flow.dx, .dc = rest, .dy = rest, .x = flow.x};
        conv_part_backward(&l->shortcut, pass, theta, grad, &k.shortcut, &g);
    }
    const struct conv_gradient g = {
        .dx = flow.dx, .dc = dy, .dy = dy, .x = flow.x, .y = y, .add = true, .relu = true};
    conv_part_backward(&l->part[0], pass, theta, grad, &k.part[0], &g);
}

const struct layer_ops residual_ops = {.name = "residual",
                                       .output = residual_output,
                                       .saved = residual_saved,
                                       .scratch = residual_scratch,
                                       .flops = residual_flops,
                                       .forward = residual_forward,
                                       .backward = residual_backward};
