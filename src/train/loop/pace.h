/* How long a step takes, for the time that is left: without what happens once, such as a cable that
 * is out for minutes. */
#ifndef SOTTO_TRAIN_LOOP_PACE_H
#define SOTTO_TRAIN_LOOP_PACE_H

#include <stdint.h>

enum { PACE_BLOCKS = 9 };

/* Steps are taken in blocks of `every` at least, so that each holds an exchange, and of a second at
 * least. */
struct pace {
    double each[PACE_BLOCKS]; /* seconds a step in the last blocks, the oldest written over */
    int64_t blocks;           /* that there were            */
    int64_t every, step;      /* the current block began after this step ...    */
    double at;                /* ... and at this time       */
};

void pace_start(struct pace *p, int64_t step, double now, int64_t every);

/* Takes so many seconds out that are not a step's. */
void pace_skip(struct pace *p, double seconds);

/* So many steps are done by now. Returns the seconds that a step takes: the median of the last
 * blocks, or the mean of the steps so far until there is one. */
double pace_seconds(struct pace *p, int64_t step, double now);

#endif
