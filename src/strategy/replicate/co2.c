/* CO2 (Sun et al. 2024, algorithm 1): local steps; the average of the parameters is in flight
 * during the next tau steps and is applied one outer round late. The staleness of the average is
 * penalized, and the outer momentum is clipped.
 *
 * A group sends its displacement x_{t,0} - x_{t,tau}: x_{t,0} is equal in all groups, so no group
 * keeps x_{t,0} until the average arrives. The displacement d_t of the first inner step is averaged
 * during round t. At the end of round t all groups know Lambda_{t+1}, the divisor of x_{t,0} -
 * xbar_{t,tau}, and divide before sending: x_{t-1,0} and d_{t-1} need no memory in addition to
 * x_{t,0} and d_t. Round 0 has no staleness and no penalty: x_{1,0} = x_{0,0}. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "optim/optim.h"
#include "strategy/method.h"
#include "strategy/replicate/replicate.h"
#include "strategy/replicate/norms.h"
#include "strategy/replicate/tau_auto.h"
#include "tensor/ops.h"

enum penalty { PENALTY_ELEMENTWISE, PENALTY_NORM, PENALTY_OFF };
static const char *const penalty_names[] = {"elementwise", "norm", "off", NULL};

struct co2_config {
    char tau[OPTION_ROOM];
    double alpha, beta, phi;
    int penalty;   /* enum penalty                */
    int64_t steps; /* tau, set by resolve; 0: auto */
};

#define S struct co2_config
static const struct option options[] = {
    OPTION_TEXT(S, tau, "12",
                "steps between averages; auto: the fewest steps that hide an average"),
    OPTION_REAL(S, alpha, "1", 0, 100, "outer learning rate"),
    OPTION_REAL(S, beta, "0.5", 0, 1, "outer momentum"),
    OPTION_REAL(S, phi, "0", 0, 1e30, "largest value of the outer momentum; 0: not clipped"),
    OPTION_ENUM(S, penalty, "elementwise", penalty_names, "penalty for staleness"),
};
#undef S

static const struct co2_config *co2_options(const struct replicate *r)
{
    return replicate_options(r);
}

static int64_t every(const void *own)
{
    return ((const struct co2_config *)own)->steps;
}

static enum sotto_status resolve(void *config, const struct strategy_config *strategy)
{
    static const struct option number[] = {{.key = "tau",
                                            .type = OPTION_TYPE_LONG,
                                            .offset = offsetof(struct co2_config, steps),
                                            .min = 1,
                                            .max = 1e9}};
    struct co2_config *c = config;
    const struct option_section section = OPTION_SECTION("co2", "", number, c);
    (void)strategy;
    c->steps = 0;
    if (strcmp(c->tau, "auto") == 0 || option_set(&section, 1, "co2.tau", c->tau) == SOTTO_OK)
        return SOTTO_OK;
    return fail(SOTTO_EINVAL, "co2.tau = %.80s: want a number of steps, 1 to 1e9, or auto", c->tau);
}

/* Warns if the inner optimizer is AdamW with much momentum: displacements are applied a round late,
 * while the momentum continues in their direction. experiments/co2/stability.py computes the limit
 * of stability. */
static void warn(const void *config, const struct optim_config *optim, size_t elements)
{
    const double most = 0.5;
    (void)config;
    (void)elements;
    if (!optim || optim->kind != OPTIM_ADAMW || optim->beta1 <= most)
        return;
    log_warn("co2 with adamw and optim.beta1 = %g: averages are applied a round late, which is "
             "unstable with that much momentum at rates that suit adamw alone, and the loss stays "
             "higher: set optim.beta1 = 0, lower co2.tau, or take slowmo or local, which wait for "
             "their averages",
             optim->beta1);
}

struct co2 {
    struct replicate base;
    struct buffer now;  /* x_{t,0}                                                       */
    struct buffer m;    /* outer momentum, not clipped                                   */
    struct buffer sent; /* displacement of the last round, penalized; sum over groups    */
    struct buffer d;    /* penalty elementwise: d_t of this round; sum over groups       */
    struct norms norms; /* penalty norm                                                  */
    struct lane *lane;
    struct comm *across, *within;
    bool in_flight;                  /* the last boundary started an average */
    bool knows_d;                    /* d or norms.first is of this round     */
    struct group_totals sent_totals; /* summed with `sent`      */
    int64_t tau;                     /* 0: not measured yet     */
    struct tau_auto timing;
};

static void anchor(struct replicate *r)
{
    struct co2 *c = (struct co2 *)r;
    const struct ops *ops = r->is.dev->ops;
    ops->copy(r->is.dev, c->now.view, r->x, r->count);
    ops->fill(r->is.dev, c->m.view, r->count, 0);
    ops->fill(r->is.dev, c->sent.view, r->count, 0);
    c->in_flight = c->knows_d = false;
}

static enum sotto_status average_displacement(void *arg)
{
    struct co2 *c = arg;
    TRY(comm_allreduce(c->across, c->sent.view, c->sent.view, c->base.count));
    if (c->norms.table)
        TRY(norms_sum(&c->norms, c->within, c->norms.moved)); /* tensors are sharded */
    return group_totals_sum(&c->sent_totals, c->across);
}

static enum sotto_status average_first(void *arg)
{
    struct co2 *c = arg;
    if (c->d.dev)
        return comm_allreduce(c->across, c->d.view, c->d.view, c->base.count);
    TRY(norms_sum(&c->norms, c->within, c->norms.first));
    return norms_sum(&c->norms, c->across, c->norms.first);
}

/* Sends the bytes of a whole round, to be timed in round 0, when the lane is idle otherwise. */
static enum sotto_status time_round(void *arg)
{
    struct co2 *c = arg;
    if (c->d.dev)
        TRY(comm_allreduce(c->across, c->sent.view, c->sent.view, c->base.count));
    return average_displacement(c);
}

/* Starts the average of d_t = x_{t,1} - x_{t,0}. */
static enum sotto_status send_first(struct co2 *c)
{
    struct replicate *r = &c->base;
    if (c->norms.table) {
        TRY(norms_measure(&c->norms, &r->on, r->x, c->now.view, c->norms.first));
    } else {
        TRY(work_copy(&r->on, c->d.view, r->x, r->count));
        TRY(work_axpy(&r->on, c->d.view, -1, c->now.view, r->count));
    }
    c->knows_d = true;
    return lane_start(c->lane, average_first, c);
}

/* Makes the outer step of `count` elements from `begin`; the received average is divided by
 * `lambda`. */
static void co2_update_range(struct co2 *c, size_t begin, size_t count, double lambda)
{
    struct replicate *r = &c->base;
    const struct co2_config *config = co2_options(r);
    const struct co2_step p = {
        .mean = 1 / (float)r->is.mesh->n_r,
        .tau = (float)c->tau,
        .alpha = (float)config->alpha,
        .beta = (float)config->beta,
        .clip = config->phi > 0 ? (float)config->phi : INFINITY,
        .lambda = (float)lambda,
    };
    const struct view d = c->d.dev && c->knows_d ? view_at(c->d.view, begin) : view_none;
    r->is.dev->ops->co2(r->is.dev, &p, view_at(r->x, begin), view_at(c->now.view, begin),
                        view_at(c->m.view, begin), view_at(c->sent.view, begin), d, count);
}

/* Computes m_t, x_{t+1,0} and the displacement to send; x is set to x_{t,0}. */
static enum sotto_status outer_update(void *arg)
{
    struct co2 *c = arg;
    struct replicate *r = &c->base;
    const struct table *table = r->is.table;
    if (!c->norms.table)
        co2_update_range(c, 0, r->count, 1);
    for (int i = 0; i < table->n && c->norms.table; i++) {
        const double lambda = norms_lambda(&c->norms, i, c->tau, r->is.mesh->n_r);
        for (struct piece p = {0}; owned_next(r->is.own, table_range(table, i), &p);)
            co2_update_range(c, p.own, p.count, lambda);
        c->norms.last[i] = c->norms.first[i];
    }
    return device_failed(r->is.dev);
}

/* Returns the bytes that the outer step reads and writes: x, now, m and sent twice, d once. */
static double outer_bytes(const struct co2 *c)
{
    const int passes = 2 * 4 + (c->d.dev && c->knows_d);
    return passes * (double)sizeof(float) * (double)c->base.count;
}

static enum sotto_status co2_boundary(struct co2 *c)
{
    struct replicate *r = &c->base;
    TRY(lane_wait(c->lane)); /* xbar_{t-1,tau}, d_t */
    if (c->in_flight)
        group_totals_report(&c->sent_totals, r);
    TRY(work_run(&r->on, outer_update, c, outer_bytes(c)));
    if (c->norms.table)
        TRY(norms_measure(&c->norms, &r->on, r->x, c->now.view, c->norms.moved));
    TRY(work_copy(&r->on, r->x, c->now.view, r->count));
    r->diverged = false;
    TRY(replicate_publish(r));
    c->in_flight = true;
    c->knows_d = false;
    group_totals_take(&c->sent_totals, r);
    return lane_start(c->lane, average_displacement, c);
}

static enum sotto_status step(struct replicate *r, const struct plan *plan, double scale)
{
    struct co2 *c = (struct co2 *)r;
    if (!c->tau)
        TRY(tau_auto_step(&c->timing, r, plan, c->lane, time_round, c, &c->tau));
    if (!c->tau && plan->last && r->is.mesh->n_r > 1 && r->is.mesh->worker->rank == 0)
        log_warn(
            "co2.tau = auto was not measured before the run ended: the groups never exchanged");
    if (c->tau == 1 && co2_options(r)->steps == 0 && c->d.dev)
        c->tau = 2; /* d_t is sent after step 1: tau = 1 cannot hide d_t */
    TRY(replicate_local_step(r, plan->lr, scale)); /* x_{t,k+1} = x_{t,k} - ... */
    if (r->steps == 0 && c->in_flight && (c->d.dev || c->norms.table))
        TRY(send_first(c));
    if (!replicate_boundary(r, c->tau ? c->tau : INT64_MAX))
        return SOTTO_OK;
    return co2_boundary(c);
}

/* Visits the penalty's state. A run resumed with another penalty has one round without penalty. */
static enum sotto_status visit_penalty(struct co2 *c, struct state_visitor *v)
{
    const bool loads = state_loading(v);
    int64_t knows = c->knows_d;
    TRY(state_count(v, "outer.knows_d", &knows, 1));
    c->knows_d = knows && (!loads || (c->d.dev && state_has(v, "outer.d.")) ||
                           (c->norms.table && state_has(v, "outer.first")));
    if (c->d.dev && c->knows_d)
        TRY(replicate_visit_sum(&c->base, v, "outer.d", &c->d));
    if (c->norms.table)
        TRY(norms_visit(&c->norms, &c->base, v, c->knows_d));
    static const char *const others[] = {"outer.d.", "outer.moved", "outer.last", "outer.first"};
    for (int i = 0; i < 4 && loads; i++)
        state_ignore(v, others[i]);
    return SOTTO_OK;
}

static enum sotto_status visit(struct replicate *r, struct state_visitor *v)
{
    struct co2 *c = (struct co2 *)r;
    int64_t in_flight = c->in_flight, tau = c->tau;
    if (!state_loading(v))
        TRY(lane_wait(c->lane)); /* saved values are equal in all groups */
    TRY(replicate_visit(r, v));
    if (!r->from.same)
        return SOTTO_OK;
    TRY(state_count(v, "outer.tau", &tau, STATE_STEPS));
    TRY(state_count(v, "outer.under_way", &in_flight, 1));
    if (co2_options(r)->steps == 0) /* tau = auto: the measured value */
        c->tau = tau;
    if (c->tau == 0 || state_loading(v))
        TRY(tau_auto_visit(&c->timing, r, v, c->lane));
    c->in_flight = in_flight;
    TRY(replicate_visit_vector(r, v, "outer.now", &c->now));
    TRY(replicate_visit_vector(r, v, "outer.m", &c->m));
    TRY(replicate_visit_sum(r, v, "outer.sent", &c->sent));
    return visit_penalty(c, v);
}

static void free_co2(struct replicate *r)
{
    struct co2 *c = (struct co2 *)r;
    if (c->lane)
        lane_wait(c->lane);
    buffer_free(&c->now);
    buffer_free(&c->m);
    buffer_free(&c->sent);
    buffer_free(&c->d);
    norms_free(&c->norms);
}

static enum sotto_status init(struct replicate *r)
{
    struct co2 *c = (struct co2 *)r;
    struct mesh *mesh = r->is.mesh;
    c->tau = co2_options(r)->steps;
    TRY(replicate_buffer(r, &c->now, MEMORY_OUTER));
    TRY(replicate_buffer(r, &c->m, MEMORY_OUTER));
    TRY(replicate_buffer(r, &c->sent, MEMORY_COMMUNICATION));
    if (co2_options(r)->penalty == PENALTY_ELEMENTWISE)
        TRY(replicate_buffer(r, &c->d, MEMORY_COMMUNICATION));
    if (co2_options(r)->penalty == PENALTY_NORM)
        TRY(norms_open(&c->norms, r->is.table, r->is.own));
    TRY(mesh_lane(mesh, r->is.across, &c->lane));
    TRY(mesh_duplicate(mesh, mesh->replicate, c->lane, &c->across));
    return mesh_duplicate(mesh, mesh->shard, c->lane, &c->within);
}

static const struct replicate_ops ops = {
    .bytes = sizeof(struct co2),
    .init = init,
    .anchor = anchor,
    .step = step,
    .visit = visit,
    .free = free_co2,
};

const struct method method_co2 = {
    .name = "co2",
    .axis = METHOD_REPLICATE,
    .about =
        "CO2: local steps; their average is in flight during the next tau steps, penalized for "
        "staleness, with clipped outer momentum; adamw needs optim.beta1 = 0",
    METHOD_OPTIONS(struct co2_config, options),
    .resolve = resolve,
    .every = every,
    .every_key = "tau",
    .warn = warn,
    .replicate = &ops,
};
