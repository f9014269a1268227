/* Communicators in virtual time. Ranks wait in a collective until the last rank has arrived, whose
 * process combines the data in the ranks' memory; all ranks continue together when the collective
 * has crossed the network (links/route.h). Without data (NULL) only time passes. */
#ifndef SOTTO_COMM_VIRTUAL_WORLD_H
#define SOTTO_COMM_VIRTUAL_WORLD_H

#include "comm/comm.h"
#include "comm/virtual/sim.h"

/* Makes the world's communicators, one per worker, in out[]; node (workers) is the node of each. */
enum sotto_status virtual_world(struct virtual_sim *sim, const int *node, int workers,
                                struct comm **out);

/* Ends a worker's sending in the world, after the worker's job. */
void virtual_world_leave(struct comm *world);

#endif
