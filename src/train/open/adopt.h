/* Continues from a checkpoint in another folder than the run's: copies the checkpoint into the
 * run's folder before training begins. */
#ifndef SOTTO_TRAIN_OPEN_ADOPT_H
#define SOTTO_TRAIN_OPEN_ADOPT_H

#include "train/run/run.h"

/* Holds the checkpoint run->watch.from; fails if the run's folder has a checkpoint. On rank 0. */
enum sotto_status adopt_begin(struct run *run);

/* Publishes the checkpoint to continue from. A checkpoint of another folder is copied first, by
 * hard links if the disks allow links, with the metrics up to its step, if the run has no metrics,
 * and the best checkpoint up to the step. On rank 0, which has the lock of run->dir. */
enum sotto_status adopt_end(struct run *run);

#endif
