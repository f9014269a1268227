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
    if (r->left)
        (void)lane_wait(r->is.mesh->lane); /* for an exchange that nobody wants any more */
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

static enum sotto_status step_parts(void *arg)
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

static void set_now(struct replicate *r, const struct part *part, int n, double lr, double scale)
{
    r->now.part = part;
    r->now.n = n;
    r->now.lr = lr;
    r->now.scale = scale;
}

enum sotto_status replicate_step_some(struct replicate *r, const struct part *part, int n,
                                      double lr, double scale)
{
    set_now(r, part, n, lr, scale);
    return work_run(&r->on, step_parts, r, parts_bytes(r, false));
}

enum sotto_status replicate_local_step(struct replicate *r, double lr, double scale)
{
    TRY(replicate_step_some(r, r->is.part, r->is.n_part, lr, scale));
    optim_next(&r->optim);
    return SOTTO_OK;
}

enum sotto_status replicate_ready(struct replicate *r, int k)
{
    return r->left ? r->ops->ready(r, k) : SOTTO_OK;
}

static enum sotto_status peek_parts(void *arg)
{
    struct replicate *r = arg;
    optim_peek_parts(&r->optim, r->now.part, r->now.n, r->now.lr, r->now.scale);
    return device_failed(r->is.dev);
}

enum sotto_status replicate_peek(struct replicate *r, double lr, double scale)
{
    set_now(r, r->is.part, r->is.n_part, lr, scale);
    return work_run(&r->on, peek_parts, r, parts_bytes(r, true));
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

/* Whether the file has nothing of what this optimizer keeps. */
static bool has_no_state(const struct optim *o, const struct state_visitor *v)
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

/* Behind an optimizer without any state, such as SGD without momentum, this one begins anew; behind
 * another something is missing. */
static enum sotto_status begin_anew(struct replicate *r)
{
    struct optim *o = &r->optim;
    if (r->is.before && optim_keeps(r->is.before))
        return fail(SOTTO_EFORMAT,
                    "the optimizer was %s, and there is nothing of its state ('%s.%s' and the "
                    "others): the file is not whole, and training cannot go on from it",
                    optim_name(r->is.before), o->ops->state_name[0], r->is.table->entry[0].name);
    if (r->is.mesh->worker->rank == 0)
        log_info("the optimizer (%s) begins anew: there is no state to go on with", o->ops->name);
    o->t = 0;
    return SOTTO_OK;
}

/* SGD without momentum has no use for the velocity that it had with one. */
static enum sotto_status drop_state(struct replicate *r, struct state_visitor *v, const char *name)
{
    char any[64];
    snprintf(any, sizeof any, "%s.", name);
    if (!state_loading(v) || !state_has(v, any))
        return SOTTO_OK;
    if (r->is.mesh->worker->rank == 0)
        log_info("the optimizer (%s) goes on without '%s', which is dropped", r->optim.ops->name,
                 name);
    return state_ignore(v, any);
}

static enum sotto_status visit_state(struct replicate *r, struct state_visitor *v, int i)
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
    if (!v->own || state_loading(v) || r->is.mesh->s == 0) /* one for the group */
        TRY(state_count(v, "optim.t", &o->t, STATE_STEPS));
    if (state_loading(v) && has_no_state(o, v))
        return begin_anew(r);
    for (int i = 0; i < o->ops->states; i++)
        TRY(o->state[i].dev ? visit_state(r, v, i) : drop_state(r, v, o->ops->state_name[i]));
    return SOTTO_OK;
}

bool replicate_shown(const struct replicate *r, const struct state_visitor *v)
{
    const bool all = r->count == table_count(r->is.table);
    return !state_loading(v) && all && r->is.mesh->s > 0; /* by the first */
}

enum sotto_status replicate_visit_vector(struct replicate *r, struct state_visitor *v,
                                         const char *name, const struct buffer *b)
{
    TRY(state_enter(v, name));
    TRY(state_table(v, r->is.table, r->is.own, b->category, r->is.dev, b->view));
    state_leave(v);
    return SOTTO_OK;
}

/* Another number of groups cannot keep what each of them had. */
static void tell_own(const struct replicate *r, const struct state_visitor *v, const char *group,
                     const char *name, int64_t groups)
{
    const int64_t now = r->is.mesh->n_r, more = groups > now ? groups - now : now - groups;
    char any[64];
    snprintf(any, sizeof any, "%s.", group);
    if (now == groups || r->is.mesh->worker->rank != 0 || !state_has(v, any))
        return;
    log_info("going on with %lld group%s after %lld: '%s.%s' of %lld group%s %s", (long long)now,
             now == 1 ? "" : "s", (long long)groups, group, name, (long long)more,
             more == 1 ? "" : "s",
             now > groups ? "that the checkpoint does not have begins with 0"
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
        tell_own(r, v, group, name, groups);
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

/* Group `mesh->r` shows what is its own; one that is new takes over after another's example, but
 * begins with the parameters that all agree on. */
static enum sotto_status visit_own(struct replicate *r, struct state_visitor *v, int64_t groups)
{
    const struct mesh *mesh = r->is.mesh;
    const bool loads = state_loading(v);
    const struct buffer x = {.view = r->x, .count = r->count, .category = MEMORY_PARAMETERS};
    if (replicate_shown(r, v))
        return SOTTO_OK;
    const int64_t whose = r->ops->in_step ? 0 : mesh->r % groups;
    TRY(state_enter_own(v, "replica", whose, groups)); /* who never differ take the first one's */
    TRY(visit_optimizer(r, v));
    const bool own = !r->ops->in_step && groups == mesh->n_r;
    if (loads)
        r->diverged = own && state_has(v, "x.");
    if (loads && !own && state_has(v, "x.") && mesh->worker->rank == 0)
        log_info("going on with %d group%s after %lld whose parameters differed: all begin with "
                 "their average",
                 mesh->n_r, mesh->n_r == 1 ? "" : "s", (long long)groups);
    if (r->diverged)
        TRY(replicate_visit_vector(r, v, "x", &x));
    state_leave(v);
    return loads ? state_ignore(v, "replica.") : SOTTO_OK;
}

/* Which method it is, so that no method takes another's vectors for its own; with the gradient
 * summed there are none. */
static enum sotto_status visit_method(struct replicate *r, struct state_visitor *v)
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
    TRY(groups ? visit_own(r, v, groups) : visit_optimizer(r, v));
    return visit_method(r, v);
}
