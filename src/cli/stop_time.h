/* Estimates the time that a run takes to stop, from its rounds so far. One slow round, as during a
 * network failure, does not raise the estimate. */
#ifndef SOTTO_CLI_STOP_TIME_H
#define SOTTO_CLI_STOP_TIME_H

#include "train/loop/pace.h"

struct stop_time {
    double rounds;              /* until all workers can stop; less than 1: a part of a round */
    struct pace round, stretch; /* of single rounds, and of stretches of `rounds` rounds */
};

/* Starts the measurement; the round after `step` begins at `now`. */
void stop_time_start(struct stop_time *t, double rounds, int64_t step, double now);

/* Returns the seconds after `step` until all workers can stop, for a run with `left` more rounds:
 * the lower of two measures, 0 before there are enough rounds. */
double stop_time_expect(struct stop_time *t, int64_t step, double now, double left);

#endif
