/* How long a run would take to stop, estimated from its rounds so far. One slow round, as while a
 * cable is out, is no reason to expect another. */
#ifndef SOTTO_CLI_STOP_TIME_H
#define SOTTO_CLI_STOP_TIME_H

#include "train/loop/pace.h"

struct stop_time {
    double rounds;              /* until all workers can stop; less than one: a part of a round */
    struct pace round, stretch; /* of rounds, and of stretches of as many as that */
};

/* The round after `step` begins at `now`. */
void stop_time_start(struct stop_time *t, double rounds, int64_t step, double now);

/* Behind `step`: seconds until all workers can stop, of a run with `left` rounds to go; 0 before
 * there are two measures, the lower of which counts. */
double stop_time_expect(struct stop_time *t, int64_t step, double now, double left);

#endif
