/* SGD with momentum, optionally Nesterov's, and L2 weight decay. */
#include "optim/optim.h"

#include "tensor/ops.h"

static void sgd_apply(struct optim *o, const struct stretch *s, int n, double lr, double grad_scale,
                      bool peek)
{
    const struct optim_config *c = o->config;
    const struct sgd p = {
        .lr = (float)lr,
        .momentum = (float)c->momentum,
        .nesterov = c->nesterov,
        .first = o->t == 0,
        .grad_scale = (float)grad_scale,
        .peek = peek,
    };
    o->dev->ops->sgd(o->dev, &p, s, n);
}

const struct optim_ops optim_sgd = {"sgd", 1, {"velocity"}, sgd_apply};
