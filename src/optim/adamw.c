/* AdamW (Loshchilov and Hutter 2019): decoupled weight decay, bias-corrected moments. */
#include "optim/optim.h"

#include <math.h>

#include "tensor/ops.h"

static void apply(struct optim *o, size_t begin, size_t end, struct view x, struct view theta,
                  struct view g, double lr, double grad_scale, bool peek)
{
    const struct optim_config *c = o->config;
    struct adamw p = {
        .lr = (float)lr,
        .beta1 = (float)c->beta1,
        .beta2 = (float)c->beta2,
        .eps = (float)c->eps,
        .correct1 = (float)(1 - pow(c->beta1, (double)(o->t + 1))),
        .correct2 = (float)(1 - pow(c->beta2, (double)(o->t + 1))),
        .grad_scale = (float)grad_scale,
        .peek = peek,
    };
    struct segment s;
    for (int i = 0; optim_next(o, &i, begin, end, &s);) {
        size_t at = s.begin - begin;
        p.decay = s.decay ? (float)c->weight_decay : 0;
        o->dev->ops->adamw(o->dev, &p, view_at(x, at), view_at(theta, at), view_at(g, at),
                           view_at(o->state[0].view, s.begin), view_at(o->state[1].view, s.begin),
                           s.end - s.begin);
    }
}

const struct optim_ops optim_adamw = {"adamw", 2, {"m", "v"}, apply};
