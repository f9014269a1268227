/* tau = auto: how many steps an exchange takes, measured while both run, as they will. An exchange
 * is under way behind the first steps; now and then all workers compare what they have seen. */
#ifndef SOTTO_STRATEGY_REPLICATE_PACE_H
#define SOTTO_STRATEGY_REPLICATE_PACE_H

#include "strategy/replicate/replicate.h"

struct pace {
    double busy;             /* of the lane, before the exchange               */
    double began;            /* the step under way                             */
    double fastest, slowest; /* of the steps so far, the first one left out    */
    int64_t steps, compare;  /* so far; when to compare next; 0: not yet begun */
};

/* Before each step: `exchange` is the job to time in the lane, `pause` the plan's. *tau stays 0
 * until it is known: the smallest number of steps that hides the exchange on every worker, even if
 * one of them is as slow as the slowest was. */
enum sotto_status pace_step(struct pace *p, struct replicate *r, double pause, struct lane *lane,
                            lane_job *exchange, void *arg, int64_t *tau);

#endif
