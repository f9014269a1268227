/* The end of a chain: a projection to classes or to the vocabulary, and the cross-entropy of the
 * logits.
 *
 * Training computes all of this in backward, where the logits are needed anyway; forward alone
 * computes the losses. */
#ifndef SOTTO_NN_LAYERS_LOSS_H
#define SOTTO_NN_LAYERS_LOSS_H

#include "nn/layer.h"

/* True if forward has something to compute. */
static inline bool loss_in_forward(const struct pass *pass)
{
    return !pass->training && (view_there(pass->losses) || pass->logits);
}

/* Computes all rows at once if the device can and the caller does not read the logits; arguments as
 * in loss_rows, without a tensor b. Returns true if the rows were computed. */
static inline bool loss_at_once(struct pass *pass, const struct view *theta,
                                const struct view *grad, const struct linear *p, int w,
                                struct view n, struct view dn)
{
    const struct ops *ops = pass->dev->ops;
    if (!ops->linear_loss || pass->logits || !view_there(pass->losses))
        return false;
    struct linear_loss l = {.x = n,
                            .w = pass_param(pass, theta, w),
                            .targets = pass->targets,
                            .losses = pass->losses,
                            .places = pass->places};
    if (grad) {
        l.scale = pass->loss_scale;
        l.dx = dn;
        l.dw = pass_param(pass, grad, w);
    }
    ops->linear_loss(pass->dev, p, &l);
    return true;
}

/* For rows [row, row + p->rows): computes the logits of n (rows, in) with the tensors w and b, the
 * losses, and with `grad` the gradients of w, b and n. `logits`: room for the logits of these rows.
 */
static inline void loss_rows(struct pass *pass, const struct view *theta, const struct view *grad,
                             const struct linear *p, int w, int b, size_t row, struct view logits,
                             struct view n, struct view dn)
{
    struct device *dev = pass->dev;
    const struct ops *ops = dev->ops;
    const size_t out = (size_t)p->out, at = row * (size_t)p->in;
    const struct view weight = pass_param(pass, theta, w);
    ops->linear_forward(dev, p, logits, view_at(n, at), weight, pass_param(pass, theta, b),
                        view_none);
    if (pass->logits)
        ops->read(dev, pass->logits + row * out, logits, (size_t)p->rows * out);
    if (pass->losses.data)
        ops->cross_entropy(dev, p->rows, p->out, logits, view_at(pass->targets, row),
                           grad ? pass->loss_scale : 0, view_at(pass->losses, row),
                           view_at(pass->places, row));
    if (!grad)
        return;
    projection_backward(pass, p, view_at(dn, at), pass_param(pass, grad, w),
                        pass_param(pass, grad, b), logits, view_at(n, at), weight, false);
}

#endif
