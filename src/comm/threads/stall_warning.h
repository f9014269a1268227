/* Workers of one process that keep all others waiting are named, once in a while: one that is stuck
 * would look like a slow run. (MPI's ranks ask each other: mpi/liveness.c.) */
#ifndef SOTTO_COMM_THREADS_STALL_WARNING_H
#define SOTTO_COMM_THREADS_STALL_WARNING_H

#include <stdbool.h>

/* Shared by all communicators of a run, of this process. */
struct stall_watch {
    double patience;       /* seconds; before anything waits         */
    _Atomic double longer; /* twice the longest wait that was told of */
};

#define STALL_PATIENCE 60.0 /* unless a test has less */

/* How long a wait must be to be told of. */
double stall_limit(const struct stall_watch *a);

/* Collects ranks of the world, for one line. */
struct stalled_ranks {
    char text[160];
    int count;
};
void stall_add_rank(struct stalled_ranks *a, int rank);

/* Logs who is absent, if the wait is long enough; the next must be twice as long, so that neither
 * others that wait too nor waits of this length are told of again. */
void stall_warn(struct stall_watch *a, const struct stalled_ranks *who, double waited);

#endif
