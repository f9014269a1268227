/* The class of each sample: of the mean over an image's pixels, or of the first position with its
 * norm; a projection and cross-entropy. */
#include "nn/layers/layers.h"
#include "nn/layers/loss.h"

struct classify_scratch {
    struct view x, stats; /* by position: x (rows, width) at the first position, (rows, 2) */
    struct view n, dn;    /* (rows, width) input of the projection, and the gradient of n */
    struct view logits;   /* (rows, classes), then the logits' gradient */
};

static struct classify_scratch classify_carve_scratch(const struct classify_layer *l,
                                                      struct extent e, bool backward,
                                                      struct room *room)
{
    const size_t rows = (size_t)e.rows, narrow = rows * (size_t)l->width;
    struct classify_scratch w = {.n = carve_piece(room, narrow, e.type)};
    if (backward)
        w.dn = carve_piece(room, narrow, e.type);
    if (!l->pixels) {
        w.x = carve_piece(room, narrow, e.type);
        w.stats = carve_piece(room, 2 * rows, DTYPE_F32);
    }
    w.logits = carve_piece(room, rows * (size_t)l->classes, DTYPE_F32);
    return w;
}

static size_t classify_scratch(const struct layer *layer, struct extent e, bool backward)
{
    struct room room = {0};
    classify_carve_scratch((const struct classify_layer *)layer, e, backward, &room);
    return room.used;
}

static double classify_flops(const struct layer *layer, struct extent e)
{
    const struct classify_layer *l = (const struct classify_layer *)layer;
    return 2.0 * e.rows * l->width * l->classes;
}

/* Describes copying the first position of each sample out of all positions, or back `to` its place.
 */
static struct row_copy first_positions(const struct classify_layer *l, struct extent e, bool to)
{
    const size_t width = (size_t)l->width, all = (size_t)e.t * width;
    return (struct row_copy){.batch = e.rows,
                             .rows = 1,
                             .width = l->width,
                             .y_stride = width,
                             .x_stride = width,
                             .y_batch_stride = to ? all : width,
                             .x_batch_stride = to ? width : all};
}

static void reduce_positions(const struct classify_layer *l, struct pass *pass,
                             const struct view *theta, const struct classify_scratch *w,
                             struct view x)
{
    struct device *dev = pass->dev;
    const struct extent e = pass->extent;
    if (l->pixels) {
        dev->ops->meanpool_forward(dev, e.rows, l->pixels, l->width, w->n, x);
        return;
    }
    const struct row_copy first = first_positions(l, e, false);
    const struct norm shape = {e.rows, l->width, l->norm.eps};
    dev->ops->copy_rows(dev, &first, w->x, x);
    dev->ops->layernorm_forward(dev, &shape, w->n, w->x, pass_param(pass, theta, l->norm.gain),
                                pass_param(pass, theta, l->norm.bias), w->stats);
}

static void reduce_positions_backward(const struct classify_layer *l, struct pass *pass,
                                      const struct view *theta, const struct view *grad,
                                      const struct classify_scratch *w, struct view dx)
{
    struct device *dev = pass->dev;
    const struct extent e = pass->extent;
    if (l->pixels) {
        dev->ops->meanpool_backward(dev, e.rows, l->pixels, l->width, dx, w->dn);
        return;
    }
    const struct row_copy first = first_positions(l, e, true);
    const struct norm shape = {e.rows, l->width, l->norm.eps};
    dev->ops->layernorm_backward(dev, &shape, w->dn, pass_param(pass, grad, l->norm.gain),
                                 pass_param(pass, grad, l->norm.bias), w->dn, w->x,
                                 pass_param(pass, theta, l->norm.gain), w->stats, view_none);
    dev->ops->fill(dev, dx, extent_tokens(e) * (size_t)l->width, 0);
    dev->ops->copy_rows(dev, &first, dx, w->dn);
}

static void run_classifier(const struct classify_layer *l, struct pass *pass,
                           const struct view *theta, const struct view *grad,
                           struct layer_flow flow)
{
    const struct linear p =
        pass_linear(pass, (size_t)pass->extent.rows, l->width, l->classes, LINEAR_OUT_IN);
    struct classify_scratch w = classify_carve_scratch(l, pass->extent, grad, &flow.scratch);
    reduce_positions(l, pass, theta, &w, flow.x);
    loss_rows(pass, theta, grad, &p, l->w, l->b, 0, w.logits, w.n, w.dn);
    if (grad)
        reduce_positions_backward(l, pass, theta, grad, &w, flow.dx);
}

static void classify_forward(const struct layer *layer, struct pass *pass, const struct view *theta,
                             struct layer_flow flow)
{
    if (loss_in_forward(pass))
        run_classifier((const struct classify_layer *)layer, pass, theta, NULL, flow);
}

static void classify_backward(const struct layer *layer, struct pass *pass,
                              const struct view *theta, const struct view *grad,
                              struct layer_flow flow)
{
    run_classifier((const struct classify_layer *)layer, pass, theta, grad, flow);
}

static void classify_writes(const struct layer *layer, struct table *table)
{
    table_written(table, ((const struct classify_layer *)layer)->w);
}

const struct layer_ops classify_ops = {.name = "classify",
                                       .scratch = classify_scratch,
                                       .flops = classify_flops,
                                       .forward = classify_forward,
                                       .backward = classify_backward,
                                       .writes = classify_writes};
