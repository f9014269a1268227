/* The progress of a run on a terminal (one line, rewritten) or elsewhere (a line a report). */
#ifndef SOTTO_CLI_PROGRESS_H
#define SOTTO_CLI_PROGRESS_H

#include "train/loop/pace.h"
#include "train/run/run.h"

/* Estimates the time that a run takes to stop, from its rounds so far. One slow round, as during a
 * network failure, does not raise the estimate. */
struct stop_time {
    double rounds;              /* until all workers can stop; less than 1: a part of a round */
    struct pace round, stretch; /* of single rounds, and of stretches of `rounds` rounds */
};

/* Starts the measurement; the round after `step` begins at `now`. */
void stop_time_start(struct stop_time *t, double rounds, int64_t step, double now);

/* Returns the seconds after `step` until all workers can stop, for a run with `left` more rounds:
 * the lower of two measures, 0 before there are enough rounds. */
double stop_time_expect(struct stop_time *t, int64_t step, double now, double left);

struct progress {
    FILE *out;
    struct stop_time stop_time;
    int64_t step; /* of the last call; 0: none */
    bool warned;  /* warned of a launcher's short grace period */
    bool terminal;
    bool pending; /* the cursor is after a progress line */
};

void progress_init(struct progress *p, FILE *out);
struct run_watch progress_watch(struct progress *p);
/* Prints a line for a round, after the words `before`. `all`: seconds left for all runs of a
 * comparison; negative: unknown. */
void progress_step(struct progress *p, const struct run_step *s, const char *before, double all);
/* Prints a line for other work, with `left` seconds left. */
void progress_line(struct progress *p, double left, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void progress_end(struct progress *p); /* moves to a fresh line */

#endif
