/* Going on from a checkpoint that lies in another folder than the run: it becomes the run's own
 * before training begins, and stays where it is. */
#ifndef SOTTO_TRAIN_OPEN_ADOPT_H
#define SOTTO_TRAIN_OPEN_ADOPT_H

#include "train/run/run.h"

/* Holds run->watch.from, which a run in a folder without one goes on from. On rank 0. */
enum sotto_status take_begin(struct run *run);

/* Publishes the checkpoint to go on from. One of another folder is copied first, by hard links
 * where there can be some: with the metrics up to its step, where the run has none, and with the
 * best checkpoint up to it. On rank 0, which has the lock of run->dir. */
enum sotto_status take_end(struct run *run);

#endif
