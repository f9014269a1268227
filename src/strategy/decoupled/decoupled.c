#include "strategy/decoupled/decoupled.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "tensor/ops.h"

const char *const decoupled_signs[] = {"after", "before", "off", NULL};
const char *const decoupled_bases[] = {"demo-sgd", "decoupled-adamw", NULL};
const char *const decoupled_momenta[] = {"plain", "scaled", NULL};

const struct option_only decoupled_rules[1] = {{"dtype", "sign", "after, off"}};

enum sotto_status decoupled_resolve(void *own, const struct strategy_config *c)
{
    (void)own;
    if (strategy_elastic(c))
        return fail(SOTTO_EINVAL,
                    "%s x %s makes no sense: %s steps with gradients of the round before, but the "
                    "exchange of %s decides this round's step; take ddp, zero1 or fsdp",
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
                    "optim.kind = %s contradicts %s = %s, which steps with %s: set optim.kind = "
                    "%s, or %s = %s",
                    optim_name(o), key, decoupled_bases[c->base], optim_name(&is), optim_name(&is),
                    key, decoupled_bases[c->base == BASE_DEMO_SGD]);
    o->kind = is.kind;
    if (!o->weight_decay_said)
        o->weight_decay = base[c->base].weight_decay;
    if (!o->beta2_said && o->kind == OPTIM_ADAMW)
        o->beta2 = 0.999;
    if (o->kind == OPTIM_SGD && o->momentum != 0)
        return fail(SOTTO_EINVAL,
                    "optim.momentum = %g: %s = demo-sgd has no momentum but the method's; set "
                    "optim.momentum = 0",
                    o->momentum, key);
    return SOTTO_OK;
}

static const struct decoupled_config *decoupled_options(const struct decoupled *d)
{
    return replicate_options(&d->base);
}

/* Makes sections of consecutive stages: a section ends once its message is large enough, if the
 * rest of the stages is enough for a message, too. */
static void make_sections(struct decoupled *d, double each)
{
    const struct replicate *r = &d->base;
    const struct update_config *c = replicate_options(r);
    size_t begin = 0;
    owned_stages(r->is.own, r->is.table, d->ends);
    for (int k = 0; k < r->is.table->n_stage; k++) {
        const size_t end = d->ends[k], less = end - begin, rest = r->count - end;
        d->section[k] = d->n;
        d->ends[d->n] = end;
        if (each <= 0 || rest == 0 ||
            each * (double)(less < rest ? less : rest) < (double)c->message)
            continue;
        d->n++;
        d->base.last_exchange = k + 1;
        begin = end;
    }
    d->n++;
}

enum sotto_status decoupled_init(struct replicate *r, double each)
{
    struct decoupled *d = (struct decoupled *)r;
    const int stages = r->is.table->n_stage;
    d->part = calloc((size_t)r->is.n_part + 1, sizeof *d->part);
    d->ends = calloc((size_t)stages, sizeof *d->ends);
    d->section = calloc((size_t)stages, sizeof *d->section);
    if (!d->part || !d->ends || !d->section)
        return fail(SOTTO_ENOMEM, "no memory for %d parts of %d stages", r->is.n_part, stages);
    make_sections(d, each);
    return SOTTO_OK;
}

void decoupled_free(struct replicate *r)
{
    struct decoupled *d = (struct decoupled *)r;
    free(d->part);
    free(d->ends);
    free(d->section);
    buffer_free(&d->m);
    buffer_free(&d->q);
}

/* Visits the kind of terms that m sums. `same`: false if m was saved with another kind, and cannot
 * be used, since the learning rates of its steps are lost. */
static enum sotto_status visit_momentum(struct replicate *r, struct state_visitor *v, bool *same)
{
    const char *now = decoupled_momenta[decoupled_options((struct decoupled *)r)->momentum];
    char momentum[16];
    snprintf(momentum, sizeof momentum, "%s", now);
    *same = true;
    TRY(state_text(v, "outer.momentum", momentum, sizeof momentum));
    *same = strcmp(momentum, now) == 0;
    if (!*same && r->is.mesh->worker->rank == 0)
        log_info("'decoupled.m' is dropped and starts from zero: it was made with momentum = %s, "
                 "this run has %s",
                 momentum, now);
    return SOTTO_OK;
}

/* Visits m, which is the same in all of these methods: a method continues with another's m. */
enum sotto_status decoupled_visit(struct replicate *r, struct state_visitor *v)
{
    struct decoupled *d = (struct decoupled *)r;
    int64_t groups = r->is.mesh->n_r;
    bool same;
    TRY(replicate_visit(r, v));
    if (!r->from.same && !(state_loading(v) && state_has(v, "decoupled.")))
        return SOTTO_OK;
    TRY(state_count(v, "outer.groups", &groups, STATE_WORKERS));
    TRY(visit_momentum(r, v, &same));
    r->from.groups = groups;
    if (!same)
        return state_ignore(v, "decoupled.");
    return replicate_visit_own(r, v, "decoupled", "m", &d->m);
}

size_t decoupled_begin(const struct decoupled *d, int k)
{
    return k ? d->ends[k - 1] : 0;
}

void decoupled_add_here(struct decoupled *d, size_t end)
{
    const struct replicate *r = &d->base;
    const struct decoupled_config *c = decoupled_options(d);
    const float a =
        (float)(c->momentum == MOMENTUM_SCALED ? d->step.lr * d->step.scale : d->step.scale);
    for (int i = 0; i < r->is.n_part; i++) {
        const struct part *p = &r->is.part[i];
        const size_t from = p->begin > d->step.added ? p->begin : d->step.added;
        const size_t to = p->end < end ? p->end : end;
        if (from < to)
            r->is.dev->ops->axpby(r->is.dev, view_at(d->m.view, from), (float)c->decay, a,
                                  view_at(p->g, from - p->begin), to - from);
    }
    d->step.added = end > d->step.added ? end : d->step.added;
}

double decoupled_gradient_bytes(const struct decoupled *d, size_t end)
{
    const struct replicate *r = &d->base;
    double bytes = 0;
    for (int i = 0; i < r->is.n_part; i++) {
        const struct part *p = &r->is.part[i];
        const size_t from = p->begin > d->step.added ? p->begin : d->step.added;
        const size_t to = p->end < end ? p->end : end;
        if (from < to)
            bytes += (double)dtype_size(p->g.type) * (double)(to - from);
    }
    return bytes;
}

static enum sotto_status add_job(void *arg)
{
    struct decoupled *d = arg;
    decoupled_add_here(d, d->step.add_to);
    return device_failed(d->base.is.dev);
}

enum sotto_status decoupled_add(struct decoupled *d, size_t end)
{
    if (end <= d->step.added)
        return SOTTO_OK;
    d->step.add_to = end;
    return work_run(&d->base.on, add_job, d,
                    2 * sizeof(float) * (double)(end - d->step.added) +
                        decoupled_gradient_bytes(d, end));
}

/* Sets d->part to the elements without Q up to `end`, with Q for g. Returns the number of parts. */
static int parts_to(struct decoupled *d, size_t end)
{
    const struct replicate *r = &d->base;
    int n = 0;
    for (int i = 0; i < r->is.n_part; i++) {
        const struct part *p = &r->is.part[i];
        const size_t from = p->begin > d->step.applied ? p->begin : d->step.applied;
        const size_t to = p->end < end ? p->end : end, skip = from - p->begin;
        if (from < to)
            d->part[n++] =
                (struct part){.begin = from,
                              .end = to,
                              .x = view_at(p->x, skip),
                              .theta = view_at(p->theta, skip), /* theta may change between steps */
                              .copied = p->copied,
                              .g = view_at(d->q.view, from - d->q_begin)};
    }
    return n;
}

void decoupled_apply_here(struct decoupled *d, size_t end)
{
    struct replicate *r = &d->base;
    struct device *dev = r->is.dev;
    if (end <= d->step.applied)
        return;
    const struct view q = view_at(d->q.view, d->step.applied - d->q_begin);
    if (decoupled_options(d)->update.sign == SIGN_AFTER)
        dev->ops->sign(dev, q, q, end - d->step.applied);
    optim_step_some(&r->optim, d->part, parts_to(d, end), d->step.lr, 1);
    d->step.applied = end;
}

double decoupled_apply_bytes(const struct decoupled *d, size_t end)
{
    const struct replicate *r = &d->base;
    double bytes = 0;
    for (int i = 0; i < r->is.n_part; i++) {
        const struct part *p = &r->is.part[i];
        const size_t from = p->begin > d->step.applied ? p->begin : d->step.applied;
        const size_t to = p->end < end ? p->end : end;
        if (from < to)
            bytes += optim_bytes(&r->optim, to - from, DTYPE_F32,
                                 p->copied ? dtype_size(p->theta.type) : 0, false) -
                     (double)sizeof(float) * (double)(to - from);
    }
    return bytes;
}

/* Runs in the lane. */
static enum sotto_status exchange_job(void *arg)
{
    struct decoupled *d = arg;
    return d->step.ops->exchange(d, d->base.is.mesh->lane_replicate, d->step.sent);
}

static enum sotto_status start_exchange(struct decoupled *d, int k)
{
    d->step.sent = k;
    return lane_start(d->base.is.mesh->lane, exchange_job, d);
}

/* Receives the messages of section k and, in the lane, starts the exchange of the next section. */
static enum sotto_status receive_section(struct decoupled *d, int k)
{
    struct replicate *r = &d->base;
    if (!d->step.ops->exchange)
        return SOTTO_OK;
    if (!d->step.in_lane)
        return d->step.ops->exchange(d, r->is.across, k);
    TRY(lane_wait(r->is.mesh->lane));
    return k + 1 < d->n ? start_exchange(d, k + 1) : SOTTO_OK;
}

/* x <- Base(x, Q) for the rest of section k. */
static enum sotto_status step_section(struct decoupled *d, int k)
{
    const int n = parts_to(d, d->ends[k]);
    d->step.applied = d->ends[k];
    return n ? replicate_step_some(&d->base, d->part, n, d->step.lr, 1) : SOTTO_OK;
}

enum sotto_status decoupled_ready(struct replicate *r, int k)
{
    struct decoupled *d = (struct decoupled *)r;
    for (; d->step.next <= d->section[k]; d->step.next++) {
        TRY(receive_section(d, d->step.next));
        TRY(d->step.ops->put(d, d->step.next));
        TRY(step_section(d, d->step.next));
    }
    if (d->step.next < d->n)
        return SOTTO_OK;
    optim_next(&r->optim);
    r->unfinished = false;
    return SOTTO_OK;
}

enum sotto_status decoupled_step(struct decoupled *d, const struct section_ops *ops,
                                 const struct plan *plan, double scale)
{
    struct replicate *r = &d->base;
    assert(!r->unfinished);
    d->step.ops = ops;
    d->step.lr = plan->lr;
    d->step.scale = scale;
    d->step.added = d->step.applied = 0;
    d->step.next = 0;
    d->step.in_lane = r->is.later && ops->exchange;
    r->unfinished = true;
    for (int k = 0; k < d->n; k++) {
        TRY(ops->take(d, k));
        if (k == 0 && d->step.in_lane)
            TRY(start_exchange(d, 0)); /* while q of the other sections is taken */
    }
    return d->step.in_lane ? SOTTO_OK : decoupled_ready(r, r->is.table->n_stage - 1);
}
