/* The progress of a run on a terminal (one line, rewritten) or elsewhere (a line a report). */
#ifndef SOTTO_CLI_PROGRESS_H
#define SOTTO_CLI_PROGRESS_H

#include "cli/stop_time.h"
#include "train/run/run.h"

struct progress {
    FILE *out;
    struct stop_time stop_time;
    int64_t step; /* of the last call; 0: none */
    bool warned;  /* of a launcher that leaves too little time */
    bool terminal;
    bool pending; /* the cursor stands behind a progress line */
};

void progress_init(struct progress *p, FILE *out);
struct run_watch progress_watch(struct progress *p);
/* A line of a round, after the words `before`. `all`: seconds left to all runs of a comparison;
 * negative: not said. */
void progress_step(struct progress *p, const struct run_step *s, const char *before, double all);
/* A line of another kind of work, with the seconds that are left to it. */
void progress_line(struct progress *p, double left, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void progress_end(struct progress *p); /* moves to a fresh line */

#endif
