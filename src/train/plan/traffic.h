/* What the workers of a run will send, before they do: the method goes through its rounds on the
 * null device (dry_run.h), and comm counts. */
#ifndef SOTTO_TRAIN_PLAN_TRAFFIC_H
#define SOTTO_TRAIN_PLAN_TRAFFIC_H

#include "train/run/run.h"

/* Bytes, means over the workers. */
struct traffic {
    double inside, between; /* of a step, to workers on the same node and on others, on average */
    /* Where groups train apart and meet: what a meeting adds to a step, and steps between two; 0:
     * they are in step, or it is not known. */
    double meeting;
    int64_t every;
    bool about; /* it depends on what is sent, or on timing */
};

/* *known: false: how often groups meet is measured when the run begins, or up to their pace. */
enum sotto_status traffic_of(const struct run *run, struct traffic *out, bool *known);

#endif
