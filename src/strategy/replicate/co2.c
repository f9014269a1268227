/* CO2 (Sun et al. 2024, algorithm 1): local steps, with the average of the parameters under way
 * while the next tau steps are made, so it is used one outer round late. The staleness that this
 * brings is penalized, and the outer momentum is clipped.
 *
 * The displacement of the first inner step rides in the same all-reduce, so that all groups divide
 * by the same penalty and x_{t,0} is the same everywhere. */
#include <math.h>
#include <stdlib.h>

#include "strategy/replicate/pace.h"
#include "tensor/ops.h"

struct co2 {
    struct replicate base;
    struct buffer now, old; /* x_{t,0}, x_{t-1,0}                               */
    struct buffer m;        /* outer momentum, not clipped                      */
    struct buffer xbar;     /* x_{t-1,tau}: sent, then averaged                 */
    struct buffer d;        /* this round's first displacement, own             */
    struct buffer dbar;     /* the last round's: sent, then averaged; elementwise only */
    float *norm; /* (2, tensors) squares of |x_{t,0} - x_{t-1,0}| and of |d|; norm only */
    struct lane *lane;
    struct comm *across, *within;
    bool under_way;
    struct tally sent; /* travels with xbar */
    int64_t tau;       /* 0: still to be measured */
    struct pace pace;
};

static void anchor(struct replicate *r)
{
    struct co2 *c = (struct co2 *)r;
    r->is.dev->ops->copy(r->is.dev, c->now.view, r->x, r->count);
    r->is.dev->ops->copy(r->is.dev, c->old.view, r->x, r->count);
    c->under_way = false;
}

static enum sotto_status allreduce(void *arg)
{
    struct co2 *c = arg;
    struct replicate *r = &c->base;
    TRY(comm_allreduce(c->across, c->xbar.view, c->xbar.view, r->count));
    if (c->dbar.dev)
        TRY(comm_allreduce(c->across, c->dbar.view, c->dbar.view, r->count));
    if (c->norm) {
        const size_t n = (size_t)r->is.table->n;
        struct view all = {c->norm, DTYPE_F32}, d = {c->norm + n, DTYPE_F32};
        TRY(comm_allreduce(c->within, all, all, 2 * n)); /* tensors are spread over the group */
        TRY(comm_allreduce(c->across, d, d, n));
    }
    return tally_sum(&c->sent, c->across);
}

/* Squared norms of every tensor's own part: of d_t, and of x_{t+1,0} - x_{t,0}, for which d gives
 * its room. */
static void measure_tensors(struct co2 *c)
{
    struct replicate *r = &c->base;
    struct device *dev = r->is.dev;
    const struct table *table = r->is.table;
    for (int which = 1; which >= 0; which--) {
        for (int i = 0; i < table->n; i++) {
            struct span s = table_span(table, i, r->is.index, r->is.parts);
            c->norm[which * table->n + i] =
                (float)dev->ops->sum_squares(dev, view_at(c->d.view, s.begin), s.count);
        }
        dev->ops->copy(dev, c->d.view, c->now.view, r->count);
        dev->ops->axpy(dev, c->d.view, -1, c->old.view, r->count);
    }
}

/* The outer iterate of one run of elements; lambda 0: elementwise, from dbar. */
static void outer(struct co2 *c, size_t begin, size_t count, float lambda)
{
    struct replicate *r = &c->base;
    const struct strategy_config *config = r->is.config;
    const struct co2_step p = {
        .mean = 1 / (float)r->is.mesh->n_r,
        .tau = (float)c->tau,
        .alpha = (float)config->alpha,
        .beta = (float)config->beta,
        .clip = config->phi > 0 ? (float)config->phi : INFINITY,
        .lambda = lambda,
    };
    r->is.dev->ops->co2(r->is.dev, &p, view_at(r->x, begin), view_at(c->now.view, begin),
                        view_at(c->old.view, begin), view_at(c->m.view, begin),
                        view_at(c->xbar.view, begin),
                        c->dbar.dev ? view_at(c->dbar.view, begin) : view_none, count);
}

/* m_t and x_{t+1,0}; on return xbar holds x_{t,tau}, to be sent. Of norms only scalars travel, so
 * |d| is the root mean square of the groups' |d|, not the norm of their mean. */
static void outer_update(struct co2 *c)
{
    struct replicate *r = &c->base;
    const struct table *table = r->is.table;
    if (!c->norm) {
        outer(c, 0, r->count, c->dbar.dev ? 0 : 1);
        return;
    }
    for (int i = 0; i < table->n; i++) {
        struct span s = table_span(table, i, r->is.index, r->is.parts);
        double moved = sqrt(c->norm[i]);
        double first = sqrt(c->norm[table->n + i] / (double)r->is.mesh->n_r);
        outer(c, s.begin, s.count, (float)(moved / ((double)c->tau * first + 1e-12) + 1));
    }
}

/* Everything is sent: x_{t,tau} and what the penalty needs of this round. */
static enum sotto_status launch(struct co2 *c)
{
    struct replicate *r = &c->base;
    struct device *dev = r->is.dev;
    if (c->dbar.dev)
        dev->ops->copy(dev, c->dbar.view, c->d.view, r->count);
    if (c->norm)
        measure_tensors(c);
    TRY(device_check(dev));
    c->under_way = true;
    tally_take(&c->sent, r);
    return lane_start(c->lane, allreduce, c);
}

static enum sotto_status boundary(struct co2 *c)
{
    struct replicate *r = &c->base;
    struct device *dev = r->is.dev;
    const bool first = !c->under_way;
    TRY(lane_wait(c->lane)); /* xbar_{t-1,tau}; nothing to wait for in round 0 */
    if (first) {             /* x_{1,0} = x_{0,0} */
        dev->ops->copy(dev, c->xbar.view, r->x, r->count);
        dev->ops->copy(dev, r->x, c->now.view, r->count);
    } else {
        outer_update(c);
        tally_tell(&c->sent, r);
    }
    r->apart = false;
    replicate_publish(r);
    return SOTTO_OK;
}

static enum sotto_status step(struct replicate *r, const struct plan *plan, double scale)
{
    struct co2 *c = (struct co2 *)r;
    struct device *dev = r->is.dev;
    if (!c->tau)
        TRY(pace_step(&c->pace, r, plan->pause, c->lane, allreduce, c, &c->tau));
    TRY(replicate_local_step(r, plan->lr, scale)); /* x_{t,k+1} = x_{t,k} - ...           */
    if (r->steps == 0 && c->d.dev) {
        dev->ops->copy(dev, c->d.view, r->x, r->count);
        dev->ops->axpy(dev, c->d.view, -1, c->now.view, r->count); /* d_t = x_{t,1} - x_{t,0} */
    }
    if (!replicate_boundary(r, c->tau ? c->tau : INT64_MAX))
        return SOTTO_OK;
    TRY(boundary(c));
    return launch(c);
}

static enum sotto_status visit(struct replicate *r, struct state_visitor *v)
{
    struct co2 *c = (struct co2 *)r;
    int64_t under_way = c->under_way, tau = c->tau;
    if (!state_loading(v))
        TRY(lane_wait(c->lane)); /* what is saved is the same on all */
    TRY(replicate_visit(r, v));
    if (!r->from.same)
        return SOTTO_OK;
    TRY(state_count(v, "outer.tau", &tau, STATE_STEPS));
    TRY(state_count(v, "outer.under_way", &under_way, 1));
    if (r->is.config->tau_steps == 0) /* what was measured */
        c->tau = tau;
    c->under_way = under_way;
    TRY(replicate_visit_vector(r, v, "outer.now", &c->now));
    TRY(replicate_visit_vector(r, v, "outer.old", &c->old));
    TRY(replicate_visit_vector(r, v, "outer.m", &c->m));
    TRY(replicate_visit_sum(r, v, "outer.xbar", &c->xbar));
    if (c->dbar.dev)
        TRY(replicate_visit_sum(r, v, "outer.dbar", &c->dbar));
    if (c->norm)
        TRY(state_tensor(v, "outer.norm", MEMORY_OUTER, NULL, (struct view){c->norm, DTYPE_F32},
                         2 * (size_t)r->is.table->n));
    for (int i = 0; c->norm && state_loading(v) && i < r->is.table->n; i++) /* sums, as above */
        c->norm[r->is.table->n + i] *= (float)r->is.mesh->n_r / (float)r->from.groups;
    if (!c->d.dev || (!state_loading(v) && r->is.parts == 1 && r->is.mesh->s > 0))
        return SOTTO_OK;
    return replicate_visit_own(r, v, "displacement", "d", &c->d);
}

static void free_co2(struct replicate *r)
{
    struct co2 *c = (struct co2 *)r;
    if (c->lane)
        lane_wait(c->lane);
    buffer_free(&c->now);
    buffer_free(&c->old);
    buffer_free(&c->m);
    buffer_free(&c->xbar);
    buffer_free(&c->d);
    buffer_free(&c->dbar);
    free(c->norm);
    replicate_free(r);
    free(c);
}

static enum sotto_status open(struct replicate **out, const struct replicate_setup *setup)
{
    const int penalty = setup->config->penalty;
    struct co2 *c = calloc(1, sizeof *c);
    if (!c)
        return fail(SOTTO_ENOMEM, "no memory for the replicate method");
    c->tau = setup->config->tau_steps;
    enum sotto_status st;
    TRY_DONE(replicate_init(&c->base, &replicate_co2, setup));
    TRY_DONE(replicate_buffer(&c->base, &c->now, MEMORY_OUTER));
    TRY_DONE(replicate_buffer(&c->base, &c->old, MEMORY_OUTER));
    TRY_DONE(replicate_buffer(&c->base, &c->m, MEMORY_OUTER));
    TRY_DONE(replicate_buffer(&c->base, &c->xbar, MEMORY_COMMUNICATION));
    if (penalty != PENALTY_OFF)
        TRY_DONE(replicate_buffer(&c->base, &c->d, MEMORY_OUTER));
    if (penalty == PENALTY_ELEMENTWISE)
        TRY_DONE(replicate_buffer(&c->base, &c->dbar, MEMORY_COMMUNICATION));
    if (penalty == PENALTY_NORM &&
        !(c->norm = calloc(2 * (size_t)setup->table->n, sizeof *c->norm))) {
        st = fail(SOTTO_ENOMEM, "no memory for the norms of %d tensors", setup->table->n);
        goto done;
    }
    TRY_DONE(mesh_lane(setup->mesh, setup->across, &c->lane));
    TRY_DONE(mesh_duplicate(setup->mesh, setup->mesh->replicate, &c->across));
    TRY_DONE(mesh_duplicate(setup->mesh, setup->mesh->shard, &c->within));
    *out = &c->base;
done:
    if (st != SOTTO_OK)
        free_co2(&c->base);
    return st;
}

const struct replicate_ops replicate_co2 = {
    .name = "co2",
    .open = open,
    .anchor = anchor,
    .step = step,
    .visit = visit,
    .free = free_co2,
};
