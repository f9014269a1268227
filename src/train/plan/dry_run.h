/* A run's method tried on the null device: all that it allocates is accounted and all that it sends
 * is counted, but nothing holds data and no time passes. */
#ifndef SOTTO_TRAIN_PLAN_DRY_RUN_H
#define SOTTO_TRAIN_PLAN_DRY_RUN_H

#include "strategy/strategy.h"
#include "train/run/run.h"
#include "train/plan/call_log.h"

/* A worker of it. */
struct trial_seat {
    struct strategy *s;
    struct mesh *mesh;
    const struct memory *memory;
    struct asked *asked; /* what its oracle was asked; the body may take it over */
    const bool *notes;   /* ... and whether for what each micro-batch finds (oracle_notes) */
};

struct trial {
    const struct run *run;
    struct strategy_config strategy; /* the run's, or with fewer groups (strategy_trial) */
    const int *node;                 /* (workers) NULL: all on one */
    enum sotto_status (*body)(const struct trial_seat *seat, void *arg);
    void *arg;
    const char *about; /* "doing this: ", what errors begin with; what the method refuses is told by
                        * itself */
};

/* On strategy.workers workers. */
enum sotto_status trial_run(const struct trial *t);

#endif
