/* A line for the title of a comparison: the setup that all runs share. */
#ifndef SOTTO_TRAIN_COMPARE_SETUP_H
#define SOTTO_TRAIN_COMPARE_SETUP_H

#include "train/compare/jobs.h"

enum { SETUP_ROOM = 512 };

/* Writes "nano, 0.36 million parameters; cluster: 4 nodes x 1 worker; ...; 10ms a micro-batch": the
 * model and the micro-batch where equal for all runs, and the cluster or the keys in which the
 * runs' clusters differ. Cut to SETUP_ROOM. */
enum sotto_status setup_describe(const struct jobs *jobs, const struct results *results,
                                 char out[SETUP_ROOM]);

#endif
