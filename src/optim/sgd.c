/* SGD with momentum, optionally Nesterov's, and L2 weight decay. */
#include "optim/optim.h"

#include "tensor/ops.h"

static void apply(struct optim *o, size_t begin, size_t end, struct view x, struct view theta,
                  struct view g, double lr, double grad_scale, bool peek)
{
    const struct optim_config *c = o->config;
    struct sgd p = {
        .lr = (float)lr,
        .momentum = (float)c->momentum,
        .nesterov = c->nesterov,
        .first = o->t == 0,
        .grad_scale = (float)grad_scale,
        .peek = peek,
    };
    struct segment s;
    for (int i = 0; optim_next(o, &i, begin, end, &s);) {
        size_t at = s.begin - begin;
        p.decay = s.decay ? (float)c->weight_decay : 0;
        o->dev->ops->sgd(o->dev, &p, view_at(x, at), view_at(theta, at), view_at(g, at),
                         view_at(o->state[0].view, s.begin), s.end - s.begin);
    }
}

const struct optim_ops optim_sgd = {"sgd", 1, {"velocity"}, apply};
