/* Checkpoints of asynchronous groups: each worker copies its state into host memory and continues
 * to train, while lanes bring the copies to rank 0, which writes the checkpoint. A worker copies
 * when its round says so (async_round.snapshot). In virtual time, or if workers make a part of the
 * checkpoint together, all workers meet to copy. */
#ifndef SOTTO_TRAIN_CHECKPOINT_SNAPSHOT_H
#define SOTTO_TRAIN_CHECKPOINT_SNAPSHOT_H

#include "train/run/run_worker.h"

struct snapshots;

/* Opens w->snapshots before the first round; called by all workers. Sets w->snapshot_hook if
 * workers need not meet. run_worker_close waits for the snapshot in progress, and frees. */
enum sotto_status snapshots_open(struct run_worker *w);

/* Takes a snapshot of `step`, after waiting for the last snapshot. Called by all workers, each
 * between two rounds of its own. */
enum sotto_status snapshots_take(struct snapshots *s, int64_t step);

/* Reports a snapshot that is complete to the watcher, on rank 0; `wait`: waits for the last
 * snapshot, and all workers call the function. */
enum sotto_status snapshots_look(struct snapshots *s, bool wait);

#endif
