/* Estimate of the real time until a comparison ends: the rest of the current run at the speed of
 * its rounds so far, plus the mean duration of the known runs for each run that has not begun. */
#ifndef SOTTO_TRAIN_COMPARE_LEFT_H
#define SOTTO_TRAIN_COMPARE_LEFT_H

#include "train/run/run.h"

struct time_left {
    double start;     /* time when the first run was opened; 0: no run yet */
    double last_line; /* time of the last progress line; at first `start`  */
    int waiting;      /* runs that have not begun                          */
    double sum;       /* seconds of the `ended` runs                       */
    int ended;        /* runs that succeeded since the start               */
    bool running;     /* a run is open; the fields below describe that run */
    double began;     /* time when the run was opened                      */
    double first;     /* time of the first round since the run was opened  */
    int64_t step;     /* number of that round; 0: no round yet             */
    double whole;     /* expected seconds of the whole run; 0: unknown     */
    double remain;    /* expected seconds until the run's end              */
};

/* Notes that a run was opened, with `waiting` further runs to make. `now`: by the real clock, as
 * below. */
void left_begin(struct time_left *l, int waiting, double now);
void left_step(struct time_left *l, const struct run_step *s, double now);

/* Notes the end of the current run. `fresh`: the run was opened at step 0, so its seconds are those
 * of a whole run. `well`: the run succeeded. */
void left_end(struct time_left *l, bool fresh, bool well, double now);

/* True if a progress line is due on an output that is no terminal: ten seconds after the last line,
 * or a fiftieth of the comparison's time so far if longer, which makes some 300 lines a day. */
bool left_line_due(struct time_left *l, double now);

/* Returns the expected seconds until the last run ends; negative: unknown. */
double left_seconds(const struct time_left *l);

#endif
