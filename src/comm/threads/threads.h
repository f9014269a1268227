/* Workers as threads of one process: nothing is copied that need not be, sums are read where they
 * lie. With a link model every call takes as long as it would on such links, in real time. */
#ifndef SOTTO_COMM_THREADS_THREADS_H
#define SOTTO_COMM_THREADS_THREADS_H

#include "comm/comm.h"
#include "comm/links/link.h"

struct threads_config {
    int size;
    const int *node;                /* (size), NULL: all on one          */
    const struct link_model *links; /* NULL: as fast as memory; not owned */
    double patience; /* seconds after which ranks that all others wait for are named; 0: 60 */
};

/* Whether so many workers may be threads: more than THREADS_MOST are a mistake, since each has a
 * thread for every lane beside its own, all take turns on this machine's cores, and what a world
 * keeps grows with the square of them. */
enum { THREADS_MOST = 1024 };
enum sotto_status threads_check(int size);

/* Communicators of all ranks of a new world, into out[0 .. size-1]; each is used by one thread and
 * freed by comm_free. */
enum sotto_status threads_world(const struct threads_config *config, struct comm **out);

/* This rank sends nothing on c any more, which ends the waits of those that could only wait for it.
 * Freeing c says so too. */
void threads_end(struct comm *c);

/* The status and message that the world was aborted with, "worker R: " in front; SOTTO_OK if it was
 * not. */
enum sotto_status threads_aborted(struct comm *c);

#endif
