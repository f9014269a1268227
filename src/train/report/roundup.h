/* The numbers of a reported round from all workers, brought to rank 0 by lanes of their own while
 * training goes on: a report waits for the slowest worker, and nobody waits for a report. */
#ifndef SOTTO_TRAIN_REPORT_ROUNDUP_H
#define SOTTO_TRAIN_REPORT_ROUNDUP_H

#include "train/run/run.h"

struct roundup;

/* Called by all workers, as is roundup_start, at the same rounds. */
enum sotto_status roundup_open(struct roundup **out, struct worker *w);
void roundup_close(struct roundup *r); /* NULL is fine */

/* This worker's numbers of a round: s->round, s->seconds, and s->cost since the run's beginning.
 * `speaks`: for its group, of which one worker does. */
enum sotto_status roundup_start(struct roundup *r, const struct run_step *s, bool speaks);

/* On rank 0: the next round that all have done, with the slowest worker's seconds, mean costs and
 * the loss over all groups; *found: whether there is one. `wait`: for all that were started. */
enum sotto_status roundup_next(struct roundup *r, bool wait, struct run_step *s, bool *found);

#endif
