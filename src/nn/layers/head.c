/* Final norm, projection to the vocabulary and cross-entropy.
 *
 * The logits of a few hundred rows at a time are made, turned into their gradient and used up, so
 * that (rows, vocab) never exists at once. In training the whole of it happens in backward, where
 * the logits are needed anyway; forward alone computes the losses. */
#include "nn/layers/layers.h"

/* Rows whose logits are held at once: enough that the weight gradient is not read and written too
 * often, few enough that the logits stay below this many elements; all chunks about the same. */
static int chunk_rows(const struct head_layer *l, size_t rows)
{
    enum { ELEMENTS = 16 << 20, LEAST = 16 };
    size_t most = ELEMENTS / (size_t)l->vocab;
    if (most < LEAST)
        most = LEAST;
    size_t chunks = (rows + most - 1) / most;
    return (int)((rows + chunks - 1) / chunks);
}

static struct edge output(const struct layer *layer, struct extent e)
{
    (void)layer, (void)e;
    return (struct edge){0};
}

static size_t saved(const struct layer *layer, struct extent e)
{
    (void)layer, (void)e;
    return 0;
}

static size_t scratch(const struct layer *layer, struct extent e, bool backward)
{
    const struct head_layer *l = (const struct head_layer *)layer;
    size_t rows = extent_tokens(e);
    size_t narrow = carve_bytes(rows * (size_t)l->width, e.type);
    return carve_bytes(2 * rows, DTYPE_F32) + (backward ? 2 : 1) * narrow +
           carve_bytes((size_t)chunk_rows(l, rows) * (size_t)l->vocab, DTYPE_F32);
}

static double flops(const struct layer *layer, struct extent e)
{
    const struct head_layer *l = (const struct head_layer *)layer;
    return 2.0 * (double)extent_tokens(e) * l->width * l->vocab;
}

static void chunked(const struct head_layer *l, struct pass *pass, const struct view *theta,
                    const struct view *grad, struct flow flow)
{
    struct device *dev = pass->dev;
    const struct ops *ops = dev->ops;
    const size_t rows = extent_tokens(pass->extent), width = (size_t)l->width;
    const int chunk = chunk_rows(l, rows);
    const enum dtype type = pass->extent.type;
    struct view stats = carve(&flow.scratch, 2 * rows, DTYPE_F32);
    struct view n = carve(&flow.scratch, rows * width, type);
    struct view dn = grad ? carve(&flow.scratch, rows * width, type) : view_none;
    struct view logits = carve(&flow.scratch, (size_t)chunk * (size_t)l->vocab, DTYPE_F32);
    struct view w = param(pass, theta, l->w);

    norm_forward(&l->norm, pass, theta, l->width, n, flow.x, stats);
    for (size_t row = 0; row < rows; row += (size_t)chunk) {
        int here = rows - row < (size_t)chunk ? (int)(rows - row) : chunk;
        const struct linear p = {here, l->width, l->vocab, LINEAR_OUT_IN};
        struct view n_here = view_at(n, row * width);
        ops->linear_forward(dev, &p, logits, n_here, w, view_none, view_none);
        if (pass->logits)
            ops->read(dev, pass->logits + row * (size_t)l->vocab, logits,
                      (size_t)here * (size_t)l->vocab);
        if (pass->losses)
            ops->cross_entropy(dev, here, l->vocab, logits, pass->batch->targets + row,
                               grad ? pass->loss_scale : 0, pass->losses + row,
                               pass->hits ? pass->hits + row : NULL);
        if (grad) {
            ops->linear_backward_w(dev, &p, param(pass, grad, l->w), view_none, logits, n_here);
            ops->linear_backward_x(dev, &p, view_at(dn, row * width), logits, w, false);
        }
    }
    if (grad)
        norm_backward(&l->norm, pass, theta, grad, l->width, flow.dx, dn, flow.x, stats, false);
}

static void forward(const struct layer *layer, struct pass *pass, const struct view *theta,
                    struct flow flow)
{
    if (!pass->training && (pass->losses || pass->logits))
        chunked((const struct head_layer *)layer, pass, theta, NULL, flow);
}

static void backward(const struct layer *layer, struct pass *pass, const struct view *theta,
                     const struct view *grad, struct flow flow)
{
    chunked((const struct head_layer *)layer, pass, theta, grad, flow);
}

const struct layer_ops head_ops = {"head", false, output, saved, scratch, flops, forward, backward};
