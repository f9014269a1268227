/* Checkpoints of groups without common rounds: each worker copies its state into host memory and
 * goes on; the copies travel to rank 0 and are written there beside the training. In virtual time,
 * where that takes none, they are written at once. */
#ifndef SOTTO_TRAIN_SNAPSHOT_H
#define SOTTO_TRAIN_SNAPSHOT_H

#include "train/trainer.h"

struct snapshots;

/* Called by all workers. */
enum sotto_status snapshots_open(struct snapshots **out, struct trainer *t);
void snapshots_close(struct snapshots *s); /* NULL is fine; waits for what is under way */

/* Takes one of t->step; waits for the one before it, if that is still under way. By all workers,
 * each between two rounds. */
enum sotto_status snapshots_take(struct snapshots *s);

/* Rank 0 tells the watcher of the one that is complete; `wait`: of the last one, by all workers. */
enum sotto_status snapshots_look(struct snapshots *s, bool wait);

#endif
