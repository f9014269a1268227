/* The real time that a comparison has left: of the run at hand what is left by its own pace, of
 * each run that has not begun the mean of the others. */
#ifndef SOTTO_TRAIN_COMPARE_LEFT_H
#define SOTTO_TRAIN_COMPARE_LEFT_H

#include "train/run/run.h"

struct time_left {
    double start, said; /* times of the first begin and of the last line; 0: none yet */
    int waiting;        /* runs that have not begun                */
    double sum;         /* seconds of the `ended` runs             */
    int ended;          /* runs that ended well since the start    */
    bool running;       /* a run is at hand, and these are of it:  */
    double began;       /* time when it was opened                 */
    double first;       /* time of its first round of this start ... */
    int64_t step;       /* ... and its number; 0: there is none yet */
    double whole;       /* seconds from its beginning to its end, as expected; 0: not known */
    double remain;      /* seconds until its end                   */
};

/* `now`: by the real clock. */
void left_begin(struct time_left *l, int waiting, double now);
void left_step(struct time_left *l, const struct run_step *s, double now);

/* The run at hand has ended. `fresh`: it was begun by this start, so that its seconds are those of
 * a whole run. `well`: it did not fail. */
void left_end(struct time_left *l, bool fresh, bool well, double now);

/* True if a line should say so where lines are not rewritten: after ten seconds, in a long
 * comparison after a fiftieth of its time so far, which makes some 300 lines a day. */
bool left_line_due(struct time_left *l, double now);

/* Returns the seconds that are left to all runs; negative: not known yet. */
double left_seconds(const struct time_left *l);

#endif
