/* How long a micro-batch takes and how fast memory is, where time is modelled. */
#ifndef SOTTO_TRAIN_PLAN_CALIBRATE_H
#define SOTTO_TRAIN_PLAN_CALIBRATE_H

#include "train/run/run.h"

struct calibration {
    double step;   /* seconds of a whole micro-batch          */
    double memory; /* bytes a second; 0: infinitely fast      */
};

/* Sets run->microbatch_seconds and the cluster's memory: what worker.step and worker.memory say,
 * else what the checkpoint to go on from says, else what was measured for run->watch.calibration,
 * else what this machine needs on one core. What was measured is written into the configuration,
 * and into that file, for runs of the same model, batch and precision to have the same times. */
enum sotto_status run_calibrate(struct run *run);

/* The bandwidth of an adamw step over `count` parameters on one core of this machine, or over as
 * many as tell. */
enum sotto_status calibrate_memory(const char *device, size_t count, bool mixed, double *memory);

/* A file of what was measured, by what it was measured of. */
enum sotto_status calibration_read(const char *path, const char *key, struct calibration *c,
                                   bool *found);
enum sotto_status calibration_write(const char *path, const char *key, const struct calibration *c);

#endif
