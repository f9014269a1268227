/* Bytes that the workers of a run will send, before the run: the method makes rounds on the null
 * device (dry_run.h), and comm counts. */
#ifndef SOTTO_TRAIN_PLAN_TRAFFIC_H
#define SOTTO_TRAIN_PLAN_TRAFFIC_H

#include "train/run/run.h"

/* Bytes, means over the workers. */
struct traffic {
    double inside, between; /* of an average step: to workers on the same node, on other nodes */
    double meeting; /* added to a step by a meeting of the groups, if groups train independently */
    int64_t every;  /* steps between two meetings; 0: groups are in step, or not known           */
    bool about;     /* true if bytes depend on the values sent, or on timing                     */
};

/* Returns the traffic of a run. *known: false if the interval between meetings is measured when the
 * run begins, or depends on the groups' speeds. */
enum sotto_status traffic_of(const struct run *run, struct traffic *out, bool *known);

#endif
