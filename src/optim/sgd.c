/* SGD with momentum, optionally Nesterov's, and L2 weight decay. */
#include "optim/optim.h"

#include "tensor/ops.h"

static void apply(struct optim *o, struct view x, struct view theta, struct view g, double lr,
                  double grad_scale, bool peek)
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
    for (int i = 0; i < o->n_segment; i++) {
        const struct segment *s = &o->segment[i];
        p.decay = s->decay ? (float)c->weight_decay : 0;
        o->dev->ops->sgd(o->dev, &p, view_at(x, s->begin), view_at(theta, s->begin),
                         view_at(g, s->begin), view_at(o->state[0].view, s->begin),
                         s->end - s->begin);
    }
}

const struct optim_ops optim_sgd = {"sgd", 1, {"velocity"}, apply};
