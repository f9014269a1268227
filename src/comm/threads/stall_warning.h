/* Warns of workers of this process that keep all other workers waiting: a stuck worker would look
 * like a slow run. (Over MPI, ranks ask each other: mpi/liveness.c.) */
#ifndef SOTTO_COMM_THREADS_STALL_WARNING_H
#define SOTTO_COMM_THREADS_STALL_WARNING_H

#include <stdbool.h>

/* Shared by all communicators of a run in this process. */
struct stall_watch {
    double patience;       /* seconds until the first warning; set before any wait */
    _Atomic double longer; /* twice the longest wait in a warning; 0: none yet */
};

#define STALL_PATIENCE 60.0 /* seconds; tests set less */

/* Returns the seconds of waiting from which a warning is due. */
double stall_limit(const struct stall_watch *a);

/* Ranks of the world, collected for one line of the log. */
struct stalled_ranks {
    char text[160];
    int count;
};
void stall_add_rank(struct stalled_ranks *a, int rank);

/* Warns of stalled ranks if the wait is long enough. The next warning needs a wait twice as long,
 * so that a wait is not reported by every waiting rank. */
void stall_warn(struct stall_watch *a, const struct stalled_ranks *who, double waited);

#endif
