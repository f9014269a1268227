/* The time of a micro-batch and the bandwidth of memory, for modelled time. */
#ifndef SOTTO_TRAIN_PLAN_CALIBRATE_H
#define SOTTO_TRAIN_PLAN_CALIBRATE_H

#include "train/run/run.h"

struct calibration {
    double step;   /* seconds of a whole micro-batch          */
    double memory; /* bytes a second; 0: infinitely fast      */
};

/* Sets run->microbatch_seconds and the cluster's memory bandwidth. The first source wins:
 * worker.step and worker.memory, the checkpoint to resume, the file run->watch.calibration, a
 * measurement on one core of this machine. A measurement is written into the configuration and into
 * the file, so that runs of the same model, batch and precision have the same times. */
enum sotto_status run_calibrate(struct run *run);

/* Measures the bandwidth of an adamw step over `count` parameters, at most 8 million, on one core
 * of this machine. */
enum sotto_status calibrate_memory(const char *device, size_t count, bool mixed, double *memory);

/* The file of measurements, by `key`: the device, batch and model. */
enum sotto_status calibration_read(const char *path, const char *key, struct calibration *c,
                                   bool *found);
enum sotto_status calibration_write(const char *path, const char *key, const struct calibration *c);

#endif
