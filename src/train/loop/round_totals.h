/* The numbers of a reported round from all workers, joined on rank 0 while training continues: a
 * report waits for the slowest worker, and no worker waits for a report. */
#ifndef SOTTO_TRAIN_LOOP_ROUND_TOTALS_H
#define SOTTO_TRAIN_LOOP_ROUND_TOTALS_H

#include "train/run/run.h"

struct round_totals;

/* Called by all workers, as is round_totals_add, at the same rounds. */
enum sotto_status round_totals_open(struct round_totals **out, struct worker *w);
void round_totals_close(struct round_totals *r); /* NULL is fine */

/* Adds this worker's numbers of a round: s->round, s->seconds, and s->cost since the run's
 * beginning. `speaks`: true on the one worker of a group that sends the group's loss and counts. */
enum sotto_status round_totals_add(struct round_totals *r, const struct run_step *s, bool speaks);

/* On rank 0: takes the oldest round that all workers have added, with the slowest worker's seconds,
 * mean costs and the loss over all groups; *found is false if there is none. `wait`: waits for all
 * rounds that were added; called by all workers then. */
enum sotto_status round_totals_next(struct round_totals *r, bool wait, struct run_step *s,
                                    bool *found);

#endif
