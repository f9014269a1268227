/* AdamW (Loshchilov and Hutter 2019): decoupled weight decay, bias-corrected moments. */
#include "optim/optim.h"

#include <math.h>

#include "tensor/ops.h"

static void apply(struct optim *o, struct view x, struct view theta, struct view g, double lr,
                  double grad_scale, bool peek)
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
    for (int i = 0; i < o->n_segment; i++) {
        const struct segment *s = &o->segment[i];
        p.decay = s->decay ? (float)c->weight_decay : 0;
        o->dev->ops->adamw(o->dev, &p, view_at(x, s->begin), view_at(theta, s->begin),
                           view_at(g, s->begin), view_at(o->state[0].view, s->begin),
                           view_at(o->state[1].view, s->begin), s->end - s->begin);
    }
}

const struct optim_ops optim_adamw = {"adamw", 2, {"m", "v"}, apply};
