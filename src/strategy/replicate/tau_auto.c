#include "strategy/replicate/tau_auto.h"

#include <math.h>
#include <stdlib.h>

#include "base/log.h"

enum { FIRST_COMPARED = 8 }; /* steps; doubled until the exchange is done */

static enum sotto_status start_timing(struct tau_auto *p, struct replicate *r,
                                      const struct plan *plan, struct lane *lane,
                                      lane_job *exchange, void *arg)
{
    const double now = clock_now(lane->clock);
    TRY(comm_barrier(r->is.across)); /* a late rank would look like a slow link */
    p->busy = lane->busy;
    p->compare = FIRST_COMPARED;
    TRY(lane_start(lane, exchange, arg));
    p->began = plan->seconds + (clock_now(lane->clock) - now);
    return SOTTO_OK;
}

static enum sotto_status reduce_largest(struct comm *c, double *x)
{
    double *all = malloc((size_t)c->size * sizeof *all);
    if (!all)
        return fail(SOTTO_ENOMEM, "no memory for %d measurements", c->size);
    enum sotto_status st = comm_gather_bytes(c, all, x, sizeof *x);
    for (int i = 0; i < c->size && st == SOTTO_OK; i++)
        *x = fmax(*x, all[i]);
    free(all);
    return st;
}

enum sotto_status tau_auto_step(struct tau_auto *p, struct replicate *r, const struct plan *plan,
                                struct lane *lane, lane_job *exchange, void *arg, int64_t *tau)
{
    if (!p->compare)
        return start_timing(p, r, plan, lane, exchange, arg);
    const double now = clock_now(lane->clock);
    const double step = fmax(plan->seconds - p->began - plan->between, 1e-12);
    p->began = plan->seconds;
    if (++p->steps > 1) { /* the first step is slow: caches and pools are empty */
        p->fastest = p->fastest > 0 ? fmin(p->fastest, step) : step;
        p->slowest = fmax(p->slowest, step);
    }
    if (p->steps < p->compare)
        return SOTTO_OK;
    p->compare *= 2;
    bool done;
    TRY(lane_done(lane, &done));
    double wanted = INFINITY; /* steps */
    if (done)
        wanted = (lane->busy - p->busy + p->slowest - p->fastest) / p->fastest;
    TRY(reduce_largest(r->is.across, &wanted));
    TRY(reduce_largest(r->is.within, &wanted));
    if (isfinite(wanted)) {
        *tau = (int64_t)fmin(fmax(1, ceil(wanted - 1e-6)), 1e6);
        if (r->is.across->rank == 0 && r->is.within->rank == 0)
            log_info("tau = auto: %lld steps hide an exchange (here %.3g s, a step %.3g s)",
                     (long long)*tau, lane->busy - p->busy, p->fastest);
    }
    p->began += clock_now(lane->clock) - now;
    return SOTTO_OK;
}

enum sotto_status tau_auto_visit(struct tau_auto *p, struct replicate *r, struct state_visitor *v,
                                 const struct lane *lane)
{
    const struct worker *w = r->is.mesh->worker;
    const bool loads = state_loading(v);
    double busy = lane->busy - p->busy;
    if (state_hashing(v) || (!loads && !p->compare))
        return SOTTO_OK;
    if (loads && state_owners(v, "pace", "steps") != w->size)
        return state_ignore(v, "pace.");
    TRY(state_enter_own(v, "pace", w->rank, w->size));
    TRY(state_count(v, "steps", &p->steps, STATE_STEPS));
    TRY(state_count(v, "compare", &p->compare, STATE_STEPS));
    TRY(state_within(v, "began", &p->began, 0, 1e9));
    TRY(state_within(v, "fastest", &p->fastest, 0, 1e9));
    TRY(state_within(v, "slowest", &p->slowest, 0, 1e9));
    TRY(state_within(v, "busy", &busy, 0, 1e9));
    state_leave(v);
    p->busy = lane->busy - busy;
    return loads ? state_ignore(v, "pace.") : SOTTO_OK;
}
