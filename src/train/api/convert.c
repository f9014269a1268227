/* The public structs of a round, a push and a cost, filled from the internal ones. */
#include "train/api/api_impl.h"

struct sotto_cost api_cost(const struct cost *c)
{
    return (struct sotto_cost){.seconds = c->seconds,
                               .compute = c->compute,
                               .wire = c->wire,
                               .waited_others = c->waited_others,
                               .waited_wire = c->waited_wire,
                               .inside = c->inside,
                               .between = c->between,
                               .update = c->update};
}

struct sotto_push api_push(const struct sotto_trainer *t, const struct applied_push *p)
{
    return (struct sotto_push){.struct_size = sizeof(struct sotto_push),
                               .number = p->number,
                               .step = p->step,
                               .group = (int)p->group,
                               .rounds = p->steps,
                               .staleness = p->staleness,
                               .microbatches = p->microbatches,
                               .loss = p->loss,
                               .seconds = p->seconds,
                               .idle = p->idle,
                               .time = p->time - t->training.origin};
}

/* Of a round that all workers made. */
static void add_common(struct sotto_round *out, const struct training *t)
{
    const struct train_config *c = &t->config->train;
    const bool done = t->step >= c->steps;
    out->stop = t->round.stop;
    out->over = t->round.stop || done;
    out->evaluate = done || training_eval_due(t);
    out->meet = true;
}

/* Of a round of this worker's group. */
static void add_async(struct sotto_round *out, const struct training *t,
                      const struct async_round *own)
{
    out->stop = t->round.stop && t->step < t->config->train.steps;
    out->over = t->round.stop;
    out->evaluate = own->evaluate || t->round.stop;
    out->meet = own->meet;
    out->pulled = own->pulled;
}

struct sotto_round api_round(const struct sotto_trainer *trainer)
{
    const struct training *t = &trainer->training;
    const struct round *r = &t->round;
    const struct cost cost = meter_read(&t->meter);
    struct sotto_round out = {.struct_size = sizeof out,
                              .step = t->step,
                              .steps = t->config->train.steps,
                              .loss = r->loss,
                              .grad_norm = r->grad_norm,
                              .lr = t->plan.lr,
                              .seconds = cost.seconds - t->plan.seconds,
                              .targets = r->targets,
                              .microbatches = r->microbatches,
                              .cost = api_cost(&cost),
                              .idle = r->idle};
    if (trainer_is_async(trainer))
        add_async(&out, t, &trainer->groups.round);
    else
        add_common(&out, t);
    return out;
}

struct sotto_round api_push_round(const struct sotto_trainer *t, const struct sotto_push *push,
                                  const struct sotto_round *last)
{
    const struct optim_config *optim = &t->training.config->optim;
    return (struct sotto_round){.struct_size = sizeof(struct sotto_round),
                                .step = push->step,
                                .steps = last->steps,
                                .loss = push->loss,
                                .grad_norm = -1,
                                .lr = t->lr < 0 ? optim_lr(optim, push->step, last->steps) : t->lr,
                                .seconds = push->seconds,
                                .microbatches = push->microbatches,
                                .cost = last->cost,
                                .push = push};
}
