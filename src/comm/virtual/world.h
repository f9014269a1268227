/* Communicators in virtual time. Ranks wait in a collective until the last has come, which combines
 * the data where they lie; all go on together when the collective has made its way through the
 * network (links/route.h). Without data (NULL) only time passes. */
#ifndef SOTTO_COMM_VIRTUAL_WORLD_H
#define SOTTO_COMM_VIRTUAL_WORLD_H

#include "comm/comm.h"
#include "comm/virtual/sim.h"

/* The world's communicators, one a worker, into out[]; node (workers) says where each runs. */
enum sotto_status virtual_world(struct virtual_sim *sim, const int *node, int workers,
                                struct comm **out);

/* A worker has ended: it sends nothing more there. */
void virtual_world_leave(struct comm *world);

#endif
