/* tau = auto: measures the duration of an exchange in steps, with both in progress at the same
 * time, as later in the run. An exchange is in flight during the first steps; after 8, 16, 32 ...
 * steps all workers compare their measurements. */
#ifndef SOTTO_STRATEGY_REPLICATE_TAU_AUTO_H
#define SOTTO_STRATEGY_REPLICATE_TAU_AUTO_H

#include "strategy/replicate/replicate.h"

struct tau_auto {
    double busy;             /* busy seconds of the lane before the exchange   */
    double began;            /* seconds of training before the current step    */
    double fastest, slowest; /* seconds of a step so far, without the first    */
    int64_t steps;           /* steps so far                                   */
    int64_t compare;         /* step of the next comparison; 0: not begun      */
};

/* Called before each step. Starts `exchange`, the job to time, in the lane at the first call. Sets
 * *tau once known: the smallest number of steps that hides the exchange on every worker, even if
 * one step is as slow as the slowest so far. */
enum sotto_status tau_auto_step(struct tau_auto *p, struct replicate *r, const struct plan *plan,
                                struct lane *lane, lane_job *exchange, void *arg, int64_t *tau);

/* Visits the measurements so far, with an idle lane. A run with another number of workers starts
 * measuring again. */
enum sotto_status tau_auto_visit(struct tau_auto *p, struct replicate *r, struct state_visitor *v,
                                 const struct lane *lane);

#endif
