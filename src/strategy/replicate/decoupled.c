#include "strategy/replicate/decoupled.h"

#include <stdlib.h>
#include <string.h>

#include "tensor/ops.h"

const char *const decoupled_signs[] = {"after", "before", "off", NULL};
const char *const decoupled_dtypes[] = {
    [DTYPE_F32] = "fp32", [DTYPE_BF16] = "bf16", [DTYPE_BF16 + 1] = NULL};
const char *const decoupled_bases[] = {"demo-sgd", "decoupled-adamw", NULL};
const char *const decoupled_momenta[] = {"plain", "scaled", NULL};

const struct option_only decoupled_rules[1] = {{"dtype", "sign", "after, off"}};

enum sotto_status decoupled_resolve(void *own, const struct strategy_config *c)
{
    (void)own;
    if (strategy_elastic(c))
        return fail(SOTTO_EINVAL,
                    "%s x %s makes no sense: %s steps with gradients of the round before, and what "
                    "%s exchanges decides this round's step; take ddp, zero1 or fsdp",
                    c->sharding->name, c->replicating->name, c->sharding->name,
                    c->replicating->name);
    return SOTTO_OK;
}

enum sotto_status decoupled_optimizer(const void *own, const char *key, struct optim_config *o)
{
    const struct update_config *c = own;
    static const struct {
        int kind;
        double weight_decay;
    } base[] = {[BASE_DEMO_SGD] = {OPTIM_SGD, 0}, [BASE_DECOUPLED_ADAMW] = {OPTIM_ADAMW, 0.01}};
    const struct optim_config is = {.kind = base[c->base].kind};
    if (o->kind_said && o->kind != is.kind)
        return fail(SOTTO_EINVAL,
                    "optim.kind = %s contradicts %s = %s, which is %s fed with what is "
                    "exchanged: leave one of them out",
                    optim_name(o), key, decoupled_bases[c->base], optim_name(&is));
    o->kind = is.kind;
    if (!o->weight_decay_said)
        o->weight_decay = base[c->base].weight_decay;
    if (!o->beta2_said && o->kind == OPTIM_ADAMW)
        o->beta2 = 0.999;
    if (o->kind == OPTIM_SGD && o->momentum != 0)
        return fail(SOTTO_EINVAL,
                    "optim.momentum = %g: %s = demo-sgd has none beside that of the method",
                    o->momentum, key);
    return SOTTO_OK;
}

static const struct decoupled_config *options(const struct decoupled *d)
{
    return replicate_options(&d->base);
}

enum sotto_status decoupled_init_update(struct replicate *r)
{
    struct decoupled *d = (struct decoupled *)r;
    d->part = calloc((size_t)r->is.n_part + 1, sizeof *d->part);
    if (!d->part)
        return fail(SOTTO_ENOMEM, "no memory for %d parts", r->is.n_part);
    return replicate_buffer(r, &d->q, MEMORY_OUTER);
}

enum sotto_status decoupled_init(struct replicate *r)
{
    TRY(decoupled_init_update(r));
    return replicate_buffer(r, &((struct decoupled *)r)->m, MEMORY_OUTER);
}

void decoupled_free(struct replicate *r)
{
    struct decoupled *d = (struct decoupled *)r;
    free(d->part);
    buffer_free(&d->m);
    buffer_free(&d->q);
}

enum sotto_status decoupled_visit(struct replicate *r, struct state_visitor *v)
{
    struct decoupled *d = (struct decoupled *)r;
    int64_t groups = r->is.mesh->n_r;
    TRY(replicate_visit(r, v));
    if (!r->from.same)
        return SOTTO_OK;
    TRY(state_count(v, "outer.groups", &groups, STATE_WORKERS));
    r->from.groups = groups;
    return replicate_visit_own(r, v, "decoupled", "m", &d->m);
}

enum sotto_status decoupled_add(struct decoupled *d, const struct plan *plan, double scale)
{
    struct replicate *r = &d->base;
    const struct decoupled_config *c = options(d);
    const float a = (float)(c->momentum == MOMENTUM_SCALED ? plan->lr * scale : scale);
    TRY(work_scale(&r->on, d->m.view, (float)c->decay, r->count));
    for (int i = 0; i < r->is.n_part; i++) {
        const struct part *p = &r->is.part[i];
        TRY(work_axpy(&r->on, view_at(d->m.view, p->begin), a, p->g, p->end - p->begin));
    }
    return SOTTO_OK;
}

enum sotto_status decoupled_sign(struct decoupled *d, struct view q, size_t count)
{
    return options(d)->update.sign == SIGN_AFTER ? work_sign(&d->base.on, q, count) : SOTTO_OK;
}

enum sotto_status decoupled_step(struct decoupled *d, const struct plan *plan)
{
    struct replicate *r = &d->base;
    struct part *const given = r->is.part;
    for (int i = 0; i < r->is.n_part; i++) { /* theta may have moved */
        d->part[i] = given[i];
        d->part[i].g = view_at(d->q.view, given[i].begin);
    }
    r->is.part = d->part;
    const enum sotto_status st = replicate_local_step(r, plan->lr, 1);
    r->is.part = given;
    return st;
}
