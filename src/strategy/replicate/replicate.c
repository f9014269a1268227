#include "strategy/replicate/replicate.h"

#include <stdlib.h>
#include <string.h>

#include "tensor/ops.h"

static const struct replicate_ops *const members[] = {
    [REPLICATE_SYNC] = &replicate_sync,
};

enum sotto_status replicate_open(struct replicate **out, const struct replicate_setup *setup)
{
    *out = NULL;
    return members[setup->config->replicate]->open(out, setup);
}

enum sotto_status replicate_sum(struct replicate *r, struct comm *across, struct view g,
                                size_t count)
{
    return r->ops->averages ? comm_allreduce(across, g, g, count) : SOTTO_OK;
}

enum sotto_status replicate_init(struct replicate *r, const struct replicate_ops *ops,
                                 const struct replicate_setup *setup)
{
    r->ops = ops;
    r->is = *setup;
    struct part *part = malloc((size_t)setup->n_part * sizeof *part);
    if (!part)
        return fail(SOTTO_ENOMEM, "no memory for %d parts", setup->n_part);
    memcpy(part, setup->part, (size_t)setup->n_part * sizeof *part);
    r->is.part = part;
    r->count = part[setup->n_part - 1].end;
    return optim_init(&r->optim, setup->optim, setup->dev, setup->table, setup->index,
                      setup->parts);
}

void replicate_free(struct replicate *r)
{
    optim_free(&r->optim);
    free(r->is.part);
}

static enum sotto_status step_parts(void *arg)
{
    struct replicate *r = arg;
    for (int i = 0; i < r->is.n_part; i++) {
        const struct part *p = &r->is.part[i];
        optim_step_part(&r->optim, p->begin, p->end, p->x, p->theta, p->g, r->now.lr, r->now.scale);
    }
    optim_advance(&r->optim);
    return device_check(r->is.dev);
}

enum sotto_status replicate_local_step(struct replicate *r, double lr, double scale)
{
    struct worker *w = r->is.mesh->worker;
    r->now.lr = lr;
    r->now.scale = scale;
    return w->ops->compute(w, step_parts, r, 0);
}

static enum sotto_status peek_parts(void *arg)
{
    struct replicate *r = arg;
    for (int i = 0; i < r->is.n_part; i++) {
        const struct part *p = &r->is.part[i];
        optim_peek_part(&r->optim, p->begin, p->end, p->x, p->theta, p->g, r->now.lr, r->now.scale);
    }
    return device_check(r->is.dev);
}

enum sotto_status replicate_peek(struct replicate *r, double lr, double scale)
{
    struct worker *w = r->is.mesh->worker;
    r->now.lr = lr;
    r->now.scale = scale;
    return w->ops->compute(w, peek_parts, r, 0);
}

void replicate_publish(struct replicate *r)
{
    for (int i = 0; i < r->is.n_part; i++) {
        const struct part *p = &r->is.part[i];
        if (p->theta.data)
            r->is.dev->ops->copy(r->is.dev, p->theta, p->x, p->end - p->begin);
    }
}

enum sotto_status replicate_visit(struct replicate *r, struct state_visitor *v)
{
    struct optim *o = &r->optim;
    TRY(state_int(v, "optim.t", &o->t));
    for (int i = 0; i < o->ops->states; i++) {
        if (!o->state[i].dev)
            continue;
        TRY(state_enter(v, o->ops->state_name[i]));
        TRY(state_table(v, r->is.table, r->is.index, r->is.parts, MEMORY_OPTIMIZER, r->is.dev,
                        o->state[i].view));
        state_leave(v);
    }
    return SOTTO_OK;
}
