#include "strategy/async/outer.h"

#include "tensor/ops.h"

static bool is_delayed(const struct async_outer *o)
{
    return o->rules.outer == ASYNC_DELAYED && rules_buffer(&o->rules) > 1;
}

enum sotto_status outer_init(struct async_outer *o, const struct async_rules *rules,
                             const struct work *on, const struct table *table,
                             const struct owned *own)
{
    const bool momentum = rules->outer != ASYNC_SGD && rules->outer_momentum > 0;
    *o = (struct async_outer){
        .rules = *rules, .on = *on, .table = table, .own = own, .count = own->count};
    o->config = (struct optim_config){
        .kind = OPTIM_SGD, .momentum = momentum ? rules->outer_momentum : 0, .nesterov = momentum};
    TRY(buffer_init(&o->x0, on->dev, DTYPE_F32, o->count, MEMORY_OUTER));
    if (!is_delayed(o))
        return optim_init(&o->optim, &o->config, on->dev, table, own, MEMORY_OUTER);
    TRY(buffer_init(&o->m, on->dev, DTYPE_F32, o->count, MEMORY_OUTER));
    return buffer_init(&o->Delta, on->dev, DTYPE_F32, o->count, MEMORY_OUTER);
}

void outer_free(struct async_outer *o)
{
    buffer_free(&o->x0);
    buffer_free(&o->m);
    buffer_free(&o->Delta);
    optim_free(&o->optim);
    *o = (struct async_outer){0};
}

void outer_set_x0(struct async_outer *o, struct view x)
{
    struct device *dev = o->on.dev;
    const struct buffer *zero[] = {&o->m, &o->Delta, &o->optim.state[0]};
    dev->ops->copy(dev, o->x0.view, x, o->count);
    for (size_t i = 0; i < sizeof zero / sizeof *zero; i++)
        if (zero[i]->dev)
            dev->ops->fill(dev, zero[i]->view, o->count, 0);
    o->filled = 0;
    o->optim.t = 0;
}

static enum sotto_status step_outer(void *arg)
{
    struct async_outer *o = arg;
    optim_step(&o->optim, o->x0.view, view_none, o->push.g, o->rules.outer_lr, o->push.w);
    return device_failed(o->on.dev);
}

static enum sotto_status push_delayed(struct async_outer *o, struct view g, double w)
{
    const struct work *on = &o->on;
    const double N = (double)rules_buffer(&o->rules), c = o->rules.c;
    const double beta = o->rules.outer_momentum, eps = o->rules.outer_lr;
    double part = c; /* share of the momentum in this step */
    TRY(work_axpy(on, o->Delta.view, (float)w, g, o->count));
    if (++o->filled == rules_buffer(&o->rules)) {
        TRY(work_scale(on, o->m.view, (float)beta, o->count));
        TRY(work_axpy(on, o->m.view, (float)(1 / N), o->Delta.view, o->count));
        TRY(work_fill(on, o->Delta.view, o->count, 0));
        o->filled = 0;
        part = 1 - c * N + c;
    }
    if (part > 0)
        TRY(work_axpy(on, o->x0.view, (float)(-eps * part * beta), o->m.view, o->count));
    return work_axpy(on, o->x0.view, (float)(-eps * w / N), g, o->count);
}

enum sotto_status outer_push(struct async_outer *o, struct view g, double w)
{
    if (is_delayed(o))
        return push_delayed(o, g, w);
    o->push.g = g;
    o->push.w = w;
    return work_run(&o->on, step_outer, o, optim_bytes(&o->optim, o->count, g.type, 0, false));
}

/* Returns 0 without momentum, 1 with momentum, N with momentum and a buffer of N pushes. */
static int64_t momentum_kind(const struct async_outer *o)
{
    return is_delayed(o) ? rules_buffer(&o->rules) : o->optim.state[0].dev ? 1 : 0;
}

/* Drops the state of a run with another rule, or with another N: of `before` (momentum_kind). */
static enum sotto_status reset_outer(struct async_outer *o, struct state_visitor *v, int64_t before)
{
    struct device *dev = o->on.dev;
    const struct buffer *part[] = {&o->Delta, is_delayed(o) ? &o->m : &o->optim.state[0]};
    const bool all = before < 2 || !is_delayed(o);
    o->filled = 0;
    TRY(state_ignore(v, "outer.Delta."));
    if (all)
        TRY(state_ignore(v, "outer.m."));
    for (int i = 0; i < 1 + all; i++)
        if (part[i]->dev)
            dev->ops->fill(dev, part[i]->view, o->count, 0);
    o->reset = momentum_kind(o) == 0 ? "no momentum" : all ? "a momentum of 0" : "an empty buffer";
    return SOTTO_OK;
}

static enum sotto_status visit_outer_vector(struct async_outer *o, struct state_visitor *v,
                                            const char *name, const struct buffer *b)
{
    if (!b->dev)
        return SOTTO_OK;
    TRY(state_enter(v, name));
    TRY(state_table(v, o->table, o->own, b->category, o->on.dev, b->view));
    state_leave(v);
    return SOTTO_OK;
}

enum sotto_status outer_visit(struct async_outer *o, struct state_visitor *v)
{
    const int64_t now = momentum_kind(o);
    int64_t before = now;
    if (!state_hashing(v))
        TRY(state_count(v, "outer.momentum", &before, STATE_STEPS));
    TRY(state_count(v, "outer.filled", &o->filled, before > 1 ? before - 1 : 0));
    TRY(state_count(v, "outer.t", &o->optim.t, STATE_STEPS));
    TRY(visit_outer_vector(o, v, "outer.x0", &o->x0));
    const bool other = before != now && (before < 2 || now < 2);
    if (other || o->filled >= (now > 1 ? now : 1))
        TRY(reset_outer(o, v, before));
    else
        TRY(visit_outer_vector(o, v, "outer.Delta", &o->Delta));
    if (!other)
        TRY(visit_outer_vector(o, v, "outer.m", is_delayed(o) ? &o->m : &o->optim.state[0]));
    return device_check(o->on.dev);
}
