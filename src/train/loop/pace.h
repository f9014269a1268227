/* The seconds of a step, for the estimate of the time left. Single long steps do not count, such as
 * a network that is down for minutes. */
#ifndef SOTTO_TRAIN_LOOP_PACE_H
#define SOTTO_TRAIN_LOOP_PACE_H

#include <stdint.h>

enum { PACE_BLOCKS = 9 };

/* Steps are timed in blocks of at least `every` steps, so that a block has an exchange, and of at
 * least a second. */
struct pace {
    double each[PACE_BLOCKS]; /* seconds a step in the last blocks; a ring */
    int64_t blocks;           /* so far */
    int64_t every;
    int64_t step; /* the present block began after this step */
    double at;    /* real time at which the present block began */
};

void pace_start(struct pace *p, int64_t step, double now, int64_t every);

/* Takes out `seconds` that belong to no step. */
void pace_skip(struct pace *p, double seconds);

/* Returns the seconds of a step after `step` steps, at real time `now`: the median of the last
 * blocks, or the mean of all steps before the first block is complete. */
double pace_seconds(struct pace *p, int64_t step, double now);

#endif
