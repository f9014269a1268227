/* Dry run of a run's method on the null device: all memory is accounted and all messages are
 * counted, but buffers have no data and no time passes. */
#ifndef SOTTO_TRAIN_PLAN_DRY_RUN_H
#define SOTTO_TRAIN_PLAN_DRY_RUN_H

#include "strategy/strategy.h"
#include "train/run/run.h"
#include "train/plan/call_log.h"

/* A worker of a dry run. */
struct dry_worker {
    struct strategy *s;
    struct mesh *mesh;
    const struct memory *memory;
    struct call_log *calls; /* the calls to its oracle; the body may take them over */
    const bool *notes;      /* true after oracle_notes was called */
};

struct dry_run {
    const struct run *run;
    struct strategy_config strategy; /* the run's, or with fewer groups (strategy_dry_run) */
    const int *node;                 /* (workers) NULL: all on one node */
    enum sotto_status (*body)(const struct dry_worker *worker, void *arg);
    void *arg;
    const char *about; /* "doing this: ", prefix of errors; a refusal by the method has no prefix */
};

/* Runs `body` on strategy.workers workers. */
enum sotto_status dry_run_workers(const struct dry_run *t);

#endif
