/* The gradient oracle of a caller's problem. */
#include <stdlib.h>

#include "tensor/ops.h"
#include "train/api/api_impl.h"

enum { THETA = PROBLEM_THETA, GRAD = PROBLEM_GRAD };

static enum sotto_status begin(struct oracle *oracle, int slot, int64_t index, int rank, bool sum)
{
    struct problem_oracle *o = (struct problem_oracle *)oracle;
    struct problem_slot *s = &o->slot[slot];
    struct sotto_microbatch *b = &s->batch;
    s->number = o->worker->begun++;
    b->index = index;
    b->rank = rank;
    b->sum = sum;
    b->loss = 0;
    b->targets = 1;
    s->result = (struct oracle_result){.targets = 1, .tokens = 1};
    return SOTTO_OK;
}

static bool needs_stage(const struct problem_oracle *o, int k, int j)
{
    return o->needs[k * o->base.table->n_stage + j];
}

/* Sets the tensors for the callbacks of stage now.k; tensors that the stage does not need are NULL.
 */
static void show_tensors(struct problem_oracle *o, const struct view *theta,
                         const struct view *grad)
{
    const struct table *table = o->base.table;
    for (int i = 0; i < table->n; i++) {
        const struct table_entry *e = &table->entry[i];
        bool seen = needs_stage(o, o->now.k, e->stage);
        o->theta[i] = seen ? (const float *)theta[e->stage].data + e->offset : NULL;
        o->grad[i] = seen && grad ? (float *)grad[e->stage].data + e->offset : NULL;
    }
}

/* Returns the memory of stage j that `host` copies: the fp32 copy if mixed, else the method's. */
static struct view copied_view(const struct problem_oracle *o, int which, int j)
{
    const struct view *stages = which == THETA ? o->now.theta : o->now.grad;
    return o->wide_at[which] ? o->wide_at[which][j] : stages[j];
}

/* Copies the parameters to fp32, clears the fp32 gradient, and copies both from a device to the
 * host.
 */
static void show_copies(struct problem_oracle *o)
{
    const struct table *table = o->base.table;
    const struct ops *ops = o->dev->ops;
    for (int j = 0; j < table->n_stage; j++) {
        const size_t count = table_stage_count(table, j), start = table->stage_start[j];
        if (!needs_stage(o, o->now.k, j))
            continue;
        if (o->wide_at[THETA])
            ops->copy(o->dev, o->wide_at[THETA][j], o->now.theta[j], count);
        if (o->wide_at[GRAD] && o->now.grad)
            ops->fill(o->dev, o->wide_at[GRAD][j], count, 0);
        if (o->host[THETA])
            ops->read(o->dev, o->host[THETA] + start, copied_view(o, THETA, j), count);
        if (o->host[GRAD] && o->now.grad)
            ops->read(o->dev, o->host[GRAD] + start, copied_view(o, GRAD, j), count);
    }
}

static void add_back(struct problem_oracle *o)
{
    const struct table *table = o->base.table;
    const struct ops *ops = o->dev->ops;
    for (int j = 0; j < table->n_stage; j++) {
        const size_t count = table_stage_count(table, j), start = table->stage_start[j];
        if (!needs_stage(o, o->now.k, j))
            continue;
        if (o->host[GRAD])
            ops->write(o->dev, copied_view(o, GRAD, j), o->host[GRAD] + start, count);
        if (o->wide_at[GRAD])
            ops->axpy(o->dev, o->now.grad[j], 1, o->wide_at[GRAD][j], count);
    }
}

/* Sets the inputs and outputs of stage now.k, and their gradients, in the caller's micro-batch. */
static void show_edges(struct problem_oracle *o, bool backward)
{
    const int k = o->now.k, n = o->base.table->n_stage;
    const struct problem_slot *s = o->now.slot;
    struct sotto_microbatch *b = &o->now.slot->batch;
    if (!o->problem.edges)
        return;
    b->x = k > 0 ? s->edge[0][k] : NULL;
    b->y = !backward && k + 1 < n ? s->edge[0][k + 1] : NULL;
    b->dy = backward && k + 1 < n ? s->edge[1][k + 1] : NULL;
    b->dx = backward && k > 0 ? s->edge[1][k] : NULL;
}

/* Clears the message, so that no older message explains the failure of a callback. */
static void forget_message(void)
{
    (void)fail(SOTTO_OK, "%s", "");
}

static enum sotto_status explain_failure(enum sotto_status st, const char *callback)
{
    if (st != SOTTO_OK && !*sotto_error())
        return fail(st, "the %s callback failed (%s)", callback, sotto_status_name(st));
    return st;
}

static enum sotto_status call_user(struct problem_oracle *o, bool backward)
{
    const struct sotto_problem *p = &o->problem;
    struct sotto_microbatch *b = &o->now.slot->batch;
    forget_message();
    if (!backward)
        return explain_failure(p->forward(o->user, b, o->now.k, o->theta), "forward");
    if (p->gradient)
        return explain_failure(p->gradient(o->user, b, o->theta, o->grad), "gradient");
    return explain_failure(p->backward(o->user, b, o->now.k, o->theta, o->grad), "backward");
}

static enum sotto_status run_stage(struct problem_oracle *o, bool backward)
{
    const struct view *theta = o->now.theta, *grad = backward ? o->now.grad : NULL;
    const struct view own = theta[o->now.k];
    const struct sotto_microbatch *b = &o->now.slot->batch;
    const bool copies = own.type != DTYPE_F32 || own.place != PLACE_HOST;
    if (copies) {
        show_copies(o);
        TRY(device_check(o->dev));
        theta = o->seen_at[THETA];
        grad = backward ? o->seen_at[GRAD] : NULL;
    }
    show_tensors(o, theta, grad);
    show_edges(o, backward);
    enum sotto_status st = call_user(o, backward);
    if (st == SOTTO_OK && b->targets < 0)
        st = fail(SOTTO_EINVAL, "a callback sets %lld targets", (long long)b->targets);
    if (st != SOTTO_OK)
        return fail_in(st, "micro-batch %lld: ", (long long)b->index);
    if (copies && backward)
        add_back(o);
    if (backward && o->now.k == o->base.table->n_stage -
                                    1) /* callbacks of other workers may write to the batch */
        o->now.slot->result = (struct oracle_result){b->loss, b->targets, b->targets};
    return device_failed(o->dev);
}

static enum sotto_status forward_now(void *arg)
{
    return run_stage(arg, false);
}

static enum sotto_status backward_now(void *arg)
{
    return run_stage(arg, true);
}

static enum sotto_status compute_stage(struct problem_oracle *o, lane_job *work, double part)
{
    struct worker *w = o->worker;
    double start = clock_now(w->clock);
    w->computing = o->now.slot->number;
    TRY(w->ops->compute(w, work, o, o->seconds * o->share[o->now.k] * part));
    o->base.seconds += clock_now(w->clock) - start;
    return SOTTO_OK;
}

/* A problem with a gradient callback has no forward; else backward is twice the work of forward. */
static enum sotto_status forward(struct oracle *oracle, int slot, int k, const struct view *theta)
{
    struct problem_oracle *o = (struct problem_oracle *)oracle;
    if (o->problem.gradient)
        return SOTTO_OK;
    o->now.slot = &o->slot[slot];
    o->now.k = k;
    o->now.theta = theta;
    o->now.grad = NULL;
    return compute_stage(o, forward_now, 1. / 3);
}

static enum sotto_status backward(struct oracle *oracle, int slot, int k, const struct view *theta,
                                  const struct view *grad)
{
    struct problem_oracle *o = (struct problem_oracle *)oracle;
    o->now.slot = &o->slot[slot];
    o->now.k = k;
    o->now.theta = theta;
    o->now.grad = grad;
    return compute_stage(o, backward_now, o->problem.gradient ? 1 : 2. / 3);
}

static enum sotto_status result(struct oracle *oracle, int slot, struct device *dev,
                                struct oracle_result *out)
{
    (void)dev;
    *out = ((const struct problem_oracle *)oracle)->slot[slot].result;
    return SOTTO_OK;
}

static void needs(struct oracle *oracle, int k, bool *out)
{
    const struct problem_oracle *o = (const struct problem_oracle *)oracle;
    for (int j = 0; j < o->base.table->n_stage; j++)
        out[j] = needs_stage(o, k, j);
}

static enum sotto_status edge(struct oracle *oracle, int slot, int k, bool gradient,
                              struct view *out, size_t *count)
{
    const struct problem_oracle *o = (const struct problem_oracle *)oracle;
    if (!o->problem.edges)
        return fail(SOTTO_EINVAL, "the problem does not say what passes between stages (edges)");
    *out = (struct view){o->slot[slot].edge[gradient][k], DTYPE_F32, PLACE_HOST};
    *count = o->problem.edges[k];
    return SOTTO_OK;
}

static const struct oracle_ops problem_oracle_ops = {.begin = begin,
                                                     .forward = forward,
                                                     .backward = backward,
                                                     .needs = needs,
                                                     .edge = edge,
                                                     .result = result};

/* Calls worker_open where callbacks run, with the whole stack of a thread. */
static enum sotto_status open_user(void *arg)
{
    struct problem_oracle *o = arg;
    const struct sotto_problem *p = &o->problem;
    forget_message();
    if (p->worker_open)
        TRY(explain_failure(p->worker_open(p->user, o->worker->rank, o->worker->size, &o->user),
                            "worker_open"));
    o->open = p->worker_open;
    if (p->worker_slots)
        return explain_failure(p->worker_slots(o->user, o->base.slots), "worker_slots");
    return SOTTO_OK;
}

static void set_stages(struct problem_oracle *o)
{
    const struct table *table = o->base.table;
    const struct sotto_problem *p = &o->problem;
    const int n = table->n_stage;
    double all = 0;
    for (int k = 0; k < n; k++)
        all += o->share[k] = p->work ? p->work[k] : (double)table_stage_count(table, k);
    for (int k = 0; k < n; k++) {
        o->share[k] /= all;
        for (int j = 0; j < n; j++)
            o->needs[k * n + j] = k == j || (p->needs && p->needs[k * n + j]);
    }
}

enum sotto_status problem_oracle_init(struct problem_oracle *o,
                                      const struct problem_oracle_setup *setup)
{
    const size_t n = (size_t)setup->table->n_stage, tensors = (size_t)setup->table->n;
    struct worker *w = setup->worker;
    *o = (struct problem_oracle){.base = {.ops = &problem_oracle_ops,
                                          .table = setup->table,
                                          .slots = setup->slots ? setup->slots : 1,
                                          .rank = w->rank},
                                 .problem = *setup->problem,
                                 .worker = w,
                                 .dev = setup->dev,
                                 .user = setup->problem->user,
                                 .seconds = setup->seconds};
    enum sotto_status st = SOTTO_OK;
    o->share = calloc(n, sizeof *o->share);
    o->needs = calloc(n * n, sizeof *o->needs);
    o->theta = calloc(tensors, sizeof *o->theta);
    o->grad = calloc(tensors, sizeof *o->grad);
    if (!o->share || !o->needs || !o->theta || !o->grad)
        st = fail(SOTTO_ENOMEM, "no memory for %zu stages of %zu tensors", n, tensors);
    if (st == SOTTO_OK)
        set_stages(o);
    if (st == SOTTO_OK)
        st = problem_memory_init(o, setup->mixed, setup->seed);
    if (st == SOTTO_OK && (o->problem.worker_open || o->problem.worker_slots))
        st = w->ops->compute(w, open_user, o, 0);
    if (st != SOTTO_OK)
        problem_oracle_free(o);
    return st;
}

void problem_oracle_free(struct problem_oracle *o)
{
    if (o->open && o->problem.worker_close)
        o->problem.worker_close(o->user);
    problem_memory_free(o);
    free(o->share);
    free(o->needs);
    free(o->theta);
    free(o->grad);
    *o = (struct problem_oracle){0};
}

struct measuring {
    struct problem_oracle *o;
    struct view *stages; /* (2 n_stage): theta, grad */
    double seconds;
};

static enum sotto_status measure_now(void *arg)
{
    enum { TRIES = 3 };
    struct measuring *m = arg;
    struct problem_oracle *o = m->o;
    const int n = o->base.table->n_stage;
    o->now.slot = &o->slot[0];
    o->now.theta = m->stages;
    for (int i = 0; i < TRIES; i++) {
        double before = clock_now(&clock_real);
        TRY(begin(&o->base, 0, 0, o->base.rank, false));
        o->now.grad = NULL;
        for (o->now.k = 0; o->now.k < n && !o->problem.gradient; o->now.k++)
            TRY(run_stage(o, false));
        o->now.grad = m->stages + n;
        for (o->now.k = n - 1; o->now.k >= 0; o->now.k--)
            TRY(run_stage(o, true));
        double took = clock_now(&clock_real) - before;
        if (i == 0 || took < m->seconds) /* the shortest is the least disturbed */
            m->seconds = took;
    }
    return SOTTO_OK;
}

enum sotto_status problem_oracle_measure(struct problem_oracle *o, float *padded, double *seconds)
{
    const struct table *table = o->base.table;
    struct worker *w = o->worker;
    struct measuring m = {.o = o};
    float *grad = calloc(table_count(table), sizeof *grad);
    m.stages = calloc(2 * (size_t)table->n_stage, sizeof *m.stages);
    enum sotto_status st = SOTTO_OK;
    if (!grad || !m.stages) {
        st = fail(SOTTO_ENOMEM, "no memory for a gradient of %zu elements", table_count(table));
    } else {
        table_stages(table, view_of(padded, DTYPE_F32), m.stages);
        table_stages(table, view_of(grad, DTYPE_F32), m.stages + table->n_stage);
        st = w->ops->compute(w, measure_now, &m, 0);
    }
    free(grad);
    free(m.stages);
    *seconds = m.seconds;
    return st;
}
