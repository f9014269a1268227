#include "strategy/method.h"
#include "strategy/replicate/replicate.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "tensor/ops.h"

const char *const replicate_dtypes[] = {
    [DTYPE_F32] = "fp32", [DTYPE_BF16] = "bf16", [DTYPE_BF16 + 1] = NULL};

static enum sotto_status init(struct replicate *r, const struct replicate_setup *setup)
{
    r->is = *setup;
    r->is.part = calloc((size_t)setup->n_part + 1, sizeof *setup->part);
    if (!r->is.part)
        return fail(SOTTO_ENOMEM, "no memory for %d parts", setup->n_part);
    memcpy(r->is.part, setup->part, (size_t)setup->n_part * sizeof *setup->part);
    r->on = (struct work){setup->mesh, setup->across->lane, setup->dev};
    r->count = setup->own->count;
    r->x = setup->x;
    r->weight = 1;
    r->weights = setup->mesh->n_r;
    return optim_init(&r->optim, setup->optim, setup->dev, setup->table, setup->own,
                      MEMORY_OPTIMIZER);
}

enum sotto_status replicate_open(struct replicate **out, const struct replicate_setup *setup)
{
    const struct replicate_ops *ops = setup->config->replicating->replicate;
    struct replicate *r = calloc(1, ops->bytes ? ops->bytes : sizeof *r);
    *out = NULL;
    if (!r)
        return fail(SOTTO_ENOMEM, "no memory for the replicate method");
    r->ops = ops;
    enum sotto_status st = init(r, setup);
    if (st == SOTTO_OK && ops->init)
        st = ops->init(r);
    if (st != SOTTO_OK)
        replicate_close(r);
    else
        *out = r;
    return st;
}

void replicate_close(struct replicate *r)
{
    if (r->unfinished)
        (void)lane_wait(r->is.mesh->lane); /* for an exchange without use */
    if (r->ops->free)
        r->ops->free(r);
    optim_free(&r->optim);
    free(r->is.part);
    free(r);
}

enum sotto_status replicate_show(struct replicate *r, struct state_visitor *v)
{
    return (r->ops->visit ? r->ops->visit : replicate_visit)(r, v);
}

const void *replicate_options(const struct replicate *r)
{
    return method_own(r->is.config, r->is.config->replicating);
}

int64_t tau_every(const void *own)
{
    return ((const struct tau_config *)own)->tau;
}

enum sotto_status replicate_sum(struct replicate *r, struct comm *across, struct view g,
                                size_t count)
{
    return r->ops->sums_gradient ? comm_allreduce(across, g, g, count) : SOTTO_OK;
}

void replicate_anchor(struct replicate *r)
{
    r->diverged = false;
    r->steps = 0;
    if (r->ops->anchor)
        r->ops->anchor(r);
}

enum sotto_status replicate_buffer(struct replicate *r, struct buffer *buffer,
                                   enum memory_category category)
{
    return buffer_init(buffer, r->is.dev, DTYPE_F32, r->count, category);
}

static enum sotto_status step_parts_job(void *arg)
{
    struct replicate *r = arg;
    optim_step_some(&r->optim, r->now.part, r->now.n, r->now.lr, r->now.scale);
    return device_failed(r->is.dev);
}

static double parts_bytes(const struct replicate *r, bool peek)
{
    double bytes = 0;
    for (int i = 0; i < r->now.n; i++) {
        const struct part *p = &r->now.part[i];
        bytes += optim_bytes(&r->optim, p->end - p->begin, p->g.type,
                             p->copied ? dtype_size(p->theta.type) : 0, peek);
    }
    return bytes;
}

static void set_step_argument(struct replicate *r, const struct part *part, int n, double lr,
                              double scale)
{
    r->now.part = part;
    r->now.n = n;
    r->now.lr = lr;
    r->now.scale = scale;
}

enum sotto_status replicate_step_some(struct replicate *r, const struct part *part, int n,
                                      double lr, double scale)
{
    set_step_argument(r, part, n, lr, scale);
    return work_run(&r->on, step_parts_job, r, parts_bytes(r, false));
}

enum sotto_status replicate_local_step(struct replicate *r, double lr, double scale)
{
    TRY(replicate_step_some(r, r->is.part, r->is.n_part, lr, scale));
    optim_next(&r->optim);
    return SOTTO_OK;
}

enum sotto_status replicate_ready(struct replicate *r, int k)
{
    return r->unfinished ? r->ops->ready(r, k) : SOTTO_OK;
}

static enum sotto_status peek_parts_job(void *arg)
{
    struct replicate *r = arg;
    optim_peek_parts(&r->optim, r->now.part, r->now.n, r->now.lr, r->now.scale);
    return device_failed(r->is.dev);
}

enum sotto_status replicate_peek(struct replicate *r, double lr, double scale)
{
    set_step_argument(r, r->is.part, r->is.n_part, lr, scale);
    return work_run(&r->on, peek_parts_job, r, parts_bytes(r, true));
}

enum sotto_status replicate_publish(struct replicate *r)
{
    for (int i = 0; i < r->is.n_part; i++) {
        const struct part *p = &r->is.part[i];
        if (p->copied)
            TRY(work_copy(&r->on, p->theta, p->x, p->end - p->begin));
    }
    return SOTTO_OK;
}

enum sotto_status replicate_mean(struct replicate *r, struct comm *across, struct view y)
{
    const struct work on = work_in(r->is.mesh, across->lane);
    if (across->size == 1)
        return SOTTO_OK;
    if (r->weight != 1)
        TRY(work_scale(&on, y, (float)r->weight, r->count));
    TRY(comm_allreduce(across, y, y, r->count));
    return work_scale(&on, y, (float)(1 / r->weights), r->count);
}

bool replicate_boundary(struct replicate *r, int64_t every)
{
    r->diverged = r->is.mesh->n_r > 1;
    if (++r->steps < every)
        return false;
    r->steps = 0;
    return true;
}

/* True if the optimizer has state, and the file has none for it. */
static bool lacks_optimizer_state(const struct optim *o, const struct state_visitor *v)
{
    int wanted = 0;
    for (int i = 0; i < o->ops->states; i++) {
        char any[64];
        snprintf(any, sizeof any, "%s.", o->ops->state_name[i]);
        wanted += o->state[i].dev != NULL;
        if (state_has(v, any))
            return false;
    }
    return wanted > 0;
}

/* Begins with zero state after an optimizer without state, such as SGD without momentum. Refuses a
 * file of an optimizer with state. */
static enum sotto_status reset_optimizer(struct replicate *r)
{
    struct optim *o = &r->optim;
    if (r->is.before && optim_keeps(r->is.before))
        return fail(SOTTO_EFORMAT,
                    "the optimizer was %s, and the file has none of its state ('%s.%s' and the "
                    "others): the file is not whole, and training cannot continue from it",
                    optim_name(r->is.before), o->ops->state_name[0], r->is.table->entry[0].name);
    if (r->is.mesh->worker->rank == 0)
        log_info("the optimizer (%s) starts from zero: the checkpoint has no state for it",
                 o->ops->name);
    o->t = 0;
    return SOTTO_OK;
}

/* Drops a vector that the optimizer does not use, such as the velocity of SGD without momentum. */
static enum sotto_status drop_optimizer_state(struct replicate *r, struct state_visitor *v,
                                              const char *name)
{
    char any[64];
    snprintf(any, sizeof any, "%s.", name);
    if (!state_loading(v) || !state_has(v, any))
        return SOTTO_OK;
    if (r->is.mesh->worker->rank == 0)
        log_info("the optimizer (%s) continues without '%s', which is dropped", r->optim.ops->name,
                 name);
    return state_ignore(v, any);
}

static enum sotto_status visit_optimizer_state(struct replicate *r, struct state_visitor *v, int i)
{
    const struct optim *o = &r->optim;
    if (!r->is.show)
        return replicate_visit_vector(r, v, o->ops->state_name[i], &o->state[i]);
    TRY(state_enter(v, o->ops->state_name[i]));
    TRY(r->is.show(r->is.owner, v, i));
    state_leave(v);
    return SOTTO_OK;
}

static enum sotto_status visit_optimizer(struct replicate *r, struct state_visitor *v)
{
    struct optim *o = &r->optim;
    if (!v->own || state_loading(v) || r->is.mesh->s == 0) /* a scalar of the group */
        TRY(state_count(v, "optim.t", &o->t, STATE_STEPS));
    if (state_loading(v) && lacks_optimizer_state(o, v))
        return reset_optimizer(r);
    for (int i = 0; i < o->ops->states; i++)
        TRY(o->state[i].dev ? visit_optimizer_state(r, v, i)
                            : drop_optimizer_state(r, v, o->ops->state_name[i]));
    return SOTTO_OK;
}

bool replicate_shown(const struct replicate *r, const struct state_visitor *v)
{
    const bool all = r->count == table_count(r->is.table);
    return !state_loading(v) && all && r->is.mesh->s > 0; /* shown by the first worker */
}

enum sotto_status replicate_visit_vector(struct replicate *r, struct state_visitor *v,
                                         const char *name, const struct buffer *b)
{
    TRY(state_enter(v, name));
    TRY(state_table(v, r->is.table, r->is.own, b->category, r->is.dev, b->view));
    state_leave(v);
    return SOTTO_OK;
}

/* Reports vectors that are dropped, or zero, as the number of groups has changed. */
static void report_own_vectors(const struct replicate *r, const struct state_visitor *v,
                               const char *group, const char *name, int64_t groups)
{
    const int64_t now = r->is.mesh->n_r, more = groups > now ? groups - now : now - groups;
    char any[64];
    snprintf(any, sizeof any, "%s.", group);
    if (now == groups || r->is.mesh->worker->rank != 0 || !state_has(v, any))
        return;
    log_info("continuing with %lld group%s after %lld: '%s.%s' of %lld group%s %s", (long long)now,
             now == 1 ? "" : "s", (long long)groups, group, name, (long long)more,
             more == 1 ? "" : "s",
             now > groups ? "that the checkpoint does not have starts from zero"
             : more == 1  ? "is dropped"
                          : "are dropped");
}

enum sotto_status replicate_visit_own(struct replicate *r, struct state_visitor *v,
                                      const char *group, const char *name, const struct buffer *b)
{
    const bool loads = state_loading(v);
    const int64_t groups = loads ? r->from.groups : r->is.mesh->n_r;
    if (replicate_shown(r, v))
        return SOTTO_OK;
    if (r->is.mesh->r < groups) {
        char any[64];
        snprintf(any, sizeof any, "%s.", name);
        TRY(state_enter_own(v, group, r->is.mesh->r, groups));
        if (!loads || state_has(v, any))
            TRY(replicate_visit_vector(r, v, name, b));
        state_leave(v);
    }
    char all[64];
    snprintf(all, sizeof all, "%s.", group);
    if (loads)
        report_own_vectors(r, v, group, name, groups);
    return loads ? state_ignore(v, all) : SOTTO_OK;
}

enum sotto_status replicate_visit_sum(struct replicate *r, struct state_visitor *v,
                                      const char *name, const struct buffer *b)
{
    TRY(replicate_visit_vector(r, v, name, b));
    if (state_loading(v) && r->from.groups != r->is.mesh->n_r)
        r->is.dev->ops->scale(r->is.dev, b->view, (float)r->is.mesh->n_r / (float)r->from.groups,
                              r->count);
    return device_check(r->is.dev);
}

/* Visits the own state of group `mesh->r`. A new group loads the optimizer's state of another
 * group, and starts with the parameters that all groups agree on. */
static enum sotto_status visit_replica(struct replicate *r, struct state_visitor *v, int64_t groups)
{
    const struct mesh *mesh = r->is.mesh;
    const bool loads = state_loading(v);
    const struct buffer x = {.view = r->x, .count = r->count, .category = MEMORY_PARAMETERS};
    if (replicate_shown(r, v))
        return SOTTO_OK;
    const int64_t whose = r->ops->in_step ? 0 : mesh->r % groups;
    TRY(state_enter_own(v, "replica", whose, groups)); /* in step: the first group's */
    TRY(visit_optimizer(r, v));
    const bool own = !r->ops->in_step && groups == mesh->n_r;
    if (loads)
        r->diverged = own && state_has(v, "x.");
    if (loads && !own && state_has(v, "x.") && mesh->worker->rank == 0)
        log_info("continuing with %d group%s after %lld whose parameters differed: all start with "
                 "their average",
                 mesh->n_r, mesh->n_r == 1 ? "" : "s", (long long)groups);
    if (r->diverged)
        TRY(replicate_visit_vector(r, v, "x", &x));
    state_leave(v);
    return loads ? state_ignore(v, "replica.") : SOTTO_OK;
}

/* Visits the method's name, so that no method loads another method's vectors. Methods that sum
 * gradients have no vectors. */
static enum sotto_status visit_method_name(struct replicate *r, struct state_visitor *v)
{
    char method[32];
    snprintf(method, sizeof method, "%s", r->is.config->replicating->name);
    if (r->ops->sums_gradient || (state_loading(v) && !state_has(v, "outer.method")))
        return SOTTO_OK;
    TRY(state_text(v, "outer.method", method, sizeof method));
    r->from.same = strcmp(method, r->is.config->replicating->name) == 0;
    return state_count(v, "outer.steps", &r->steps, STATE_STEPS);
}

enum sotto_status replicate_visit(struct replicate *r, struct state_visitor *v)
{
    int64_t groups = r->ops->in_step ? 0 : r->is.mesh->n_r;
    if (state_loading(v) ? state_has(v, "replicas") : groups > 0)
        TRY(state_count(v, "replicas", &groups, STATE_WORKERS));
    else
        groups = 0;
    r->from.groups = groups;
    r->from.same = false;
    TRY(groups ? visit_replica(r, v, groups) : visit_optimizer(r, v));
    return visit_method_name(r, v);
}
