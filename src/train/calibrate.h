/* How long a micro-batch takes, where time is modelled. */
#ifndef SOTTO_TRAIN_CALIBRATE_H
#define SOTTO_TRAIN_CALIBRATE_H

#include "train/run.h"

/* Sets run->microbatch_seconds: what worker.step says, else what the checkpoint to go on from says,
 * else what this machine needs on one core, which is then written into the configuration. */
enum sotto_status run_calibrate(struct run *run);

#endif
