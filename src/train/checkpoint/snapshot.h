/* Checkpoints of groups without common rounds: each worker copies its state into host memory and
 * goes on; the copies travel to rank 0 and are written there beside the training. It does so when
 * it comes to the moment of the checkpoint (async_round.snapshot), or where all meet: in virtual
 * time, which knows nothing of it, or where the checkpoint has something that workers make
 * together. */
#ifndef SOTTO_TRAIN_CHECKPOINT_SNAPSHOT_H
#define SOTTO_TRAIN_CHECKPOINT_SNAPSHOT_H

#include "train/run/run_worker.h"

struct snapshots;

/* Called by all workers, before the first round; sets w->snapshot_hook where they need not meet.
 * The trainer frees it, when the strategy is gone, and waits for what is under way. */
enum sotto_status snapshots_open(struct run_worker *w);

/* Takes one of a step; waits for the one before it, if that is still under way. By all workers,
 * each between two rounds. */
enum sotto_status snapshots_take(struct snapshots *s, int64_t step);

/* Rank 0 tells the watcher of the one that is complete; `wait`: of the last one, by all workers. */
enum sotto_status snapshots_look(struct snapshots *s, bool wait);

#endif
