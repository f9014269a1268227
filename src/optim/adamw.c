/* AdamW (Loshchilov and Hutter 2019): decoupled weight decay, bias-corrected moments. */
#include "optim/optim.h"

#include <math.h>

#include "tensor/ops.h"

static void adamw_apply(struct optim *o, const struct stretch *s, int n, double lr,
                        double grad_scale, bool peek)
{
    const struct optim_config *c = o->config;
    const struct adamw p = {
        .lr = (float)lr,
        .beta1 = (float)c->beta1,
        .beta2 = (float)c->beta2,
        .eps = (float)c->eps,
        .correct1 = (float)(1 - pow(c->beta1, (double)(o->t + 1))),
        .correct2 = (float)(1 - pow(c->beta2, (double)(o->t + 1))),
        .grad_scale = (float)grad_scale,
        .peek = peek,
    };
    o->dev->ops->adamw(o->dev, &p, s, n);
}

const struct optim_ops optim_adamw = {"adamw", 2, {"m", "v"}, adamw_apply};
