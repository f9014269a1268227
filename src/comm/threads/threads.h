/* Workers as threads of one process: sums are read from the workers' own memory, and only what must
 * be copied is copied. With a link model every call takes as long as on such links, in real time.
 */
#ifndef SOTTO_COMM_THREADS_THREADS_H
#define SOTTO_COMM_THREADS_THREADS_H

#include "comm/comm.h"
#include "comm/links/link.h"

struct threads_config {
    int size;
    const int *node;                /* (size) node of each worker; NULL: all on one node */
    const struct link_model *links; /* not owned; NULL: as fast as memory */
    double patience; /* seconds of waiting before a warning names the missing ranks; 0: 60 */
};

/* Fails if `size` is more than THREADS_MOST, which is a mistake: each worker has one thread for
 * itself and one per lane, all share the cores of this machine, and the memory of a world grows
 * with the square of its size. */
enum { THREADS_MOST = 1024 };
enum sotto_status threads_check(int size);

/* Makes the communicators of all ranks of a new world in out[0 .. size-1]. Each is used by one
 * thread and freed by comm_free. */
enum sotto_status threads_world(const struct threads_config *config, struct comm **out);

/* Ends this rank's sending on c, and all waits for messages that only this rank could send. Freeing
 * c does the same. */
void threads_end(struct comm *c);

/* Returns the status and message of the abort, "worker R: " in front; SOTTO_OK if the world was not
 * aborted. */
enum sotto_status threads_aborted(struct comm *c);

#endif
