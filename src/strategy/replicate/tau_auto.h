/* tau = auto: how many steps an exchange takes, measured while both run, as they will. An exchange
 * is under way behind the first steps; now and then all workers compare what they have seen. */
#ifndef SOTTO_STRATEGY_REPLICATE_TAU_AUTO_H
#define SOTTO_STRATEGY_REPLICATE_TAU_AUTO_H

#include "strategy/replicate/replicate.h"

struct tau_auto {
    double busy;             /* of the lane, before the exchange               */
    double began;            /* seconds of training before the current step    */
    double fastest, slowest; /* of the steps so far, the first one left out    */
    int64_t steps, compare;  /* so far; when to compare next; 0: not yet begun */
};

/* Before each step: `exchange` is the job to time in the lane. *tau stays 0
 * until it is known: the smallest number of steps that hides the exchange on every worker, even if
 * one of them is as slow as the slowest was. */
enum sotto_status tau_auto_step(struct tau_auto *p, struct replicate *r, const struct plan *plan,
                                struct lane *lane, lane_job *exchange, void *arg, int64_t *tau);

/* What was measured so far, with the lane at rest; other workers than it is of measure from the
 * start. */
enum sotto_status tau_auto_visit(struct tau_auto *p, struct replicate *r, struct state_visitor *v,
                                 const struct lane *lane);

#endif
