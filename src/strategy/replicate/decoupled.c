#include "strategy/replicate/decoupled.h"

#include <assert.h>
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
    const int stages = r->is.table->n_stage;
    d->part = calloc((size_t)r->is.n_part + 1, sizeof *d->part);
    d->ends = calloc((size_t)stages, sizeof *d->ends);
    if (!d->part || !d->ends)
        return fail(SOTTO_ENOMEM, "no memory for %d parts of %d stages", r->is.n_part, stages);
    owned_stages(r->is.own, r->is.table, d->ends);
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
    free(d->ends);
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

size_t decoupled_begin(const struct decoupled *d, int k)
{
    return k ? d->ends[k - 1] : 0;
}

enum sotto_status decoupled_add(struct decoupled *d, size_t end)
{
    struct replicate *r = &d->base;
    const struct decoupled_config *c = options(d);
    const float a = (float)(c->momentum == MOMENTUM_SCALED ? d->lr * d->scale : d->scale);
    const size_t begin = d->added;
    if (end <= begin)
        return SOTTO_OK;
    d->added = end;
    TRY(work_scale(&r->on, view_at(d->m.view, begin), (float)c->decay, end - begin));
    for (int i = 0; i < r->is.n_part; i++) {
        const struct part *p = &r->is.part[i];
        const size_t from = p->begin > begin ? p->begin : begin, to = p->end < end ? p->end : end;
        if (from < to)
            TRY(work_axpy(&r->on, view_at(d->m.view, from), a, view_at(p->g, from - p->begin),
                          to - from));
    }
    return SOTTO_OK;
}

enum sotto_status decoupled_sign(struct decoupled *d, struct view q, size_t count)
{
    return options(d)->update.sign == SIGN_AFTER ? work_sign(&d->base.on, q, count) : SOTTO_OK;
}

/* In the lane. */
static enum sotto_status exchange(void *arg)
{
    struct decoupled *d = arg;
    return d->stages->exchange(d, d->base.is.mesh->lane_replicate, d->sent);
}

static enum sotto_status send(struct decoupled *d, int k)
{
    d->sent = k;
    return lane_start(d->base.is.mesh->lane, exchange, d);
}

/* What came of stage k is there. */
static enum sotto_status receive(struct decoupled *d, int k)
{
    struct replicate *r = &d->base;
    if (!d->stages->exchange)
        return SOTTO_OK;
    if (!d->beside)
        return d->stages->exchange(d, r->is.across, k);
    TRY(lane_wait(r->is.mesh->lane));
    return k + 1 < r->is.table->n_stage ? send(d, k + 1) : SOTTO_OK;
}

/* x <- Base(x, Q), of stage k. */
static enum sotto_status step_stage(struct decoupled *d, int k)
{
    struct replicate *r = &d->base;
    const int first = d->next_part;
    int n = 0;
    for (; first + n < r->is.n_part && r->is.part[first + n].begin < d->ends[k]; n++) {
        d->part[n] = r->is.part[first + n]; /* theta may have moved */
        d->part[n].g = view_at(d->q.view, d->part[n].begin);
    }
    d->next_part += n;
    return n ? replicate_step_some(r, d->part, n, d->lr, 1) : SOTTO_OK;
}

enum sotto_status decoupled_ready(struct replicate *r, int k)
{
    struct decoupled *d = (struct decoupled *)r;
    assert(r->left && k == d->next);
    TRY(receive(d, k));
    TRY(d->stages->put(d, k));
    TRY(step_stage(d, k));
    if (++d->next < r->is.table->n_stage)
        return SOTTO_OK;
    optim_next(&r->optim);
    r->left = false;
    return SOTTO_OK;
}

enum sotto_status decoupled_step(struct decoupled *d, const struct decoupled_stages *stages,
                                 const struct plan *plan, double scale)
{
    struct replicate *r = &d->base;
    const int n = r->is.table->n_stage;
    assert(!r->left);
    d->stages = stages;
    d->lr = plan->lr;
    d->scale = scale;
    d->added = 0;
    d->next = d->next_part = 0;
    d->beside = r->is.later && stages->exchange;
    r->left = true;
    for (int k = 0; k < n; k++) {
        TRY(stages->take(d, k));
        if (k == 0 && d->beside)
            TRY(send(d, 0)); /* beside what is taken of the others */
    }
    for (int k = 0; k < n && !d->beside; k++)
        TRY(decoupled_ready(r, k));
    return SOTTO_OK;
}
