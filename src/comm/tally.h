/* The bytes that a rank sends in a call, counted from where it stands, without a look at the whole
 * communicator: ring.h's ways, whatever the backend does. */
#ifndef SOTTO_COMM_TALLY_H
#define SOTTO_COMM_TALLY_H

#include "comm/comm.h"

void tally_message(struct comm *c, enum comm_call call, size_t bytes, int to);
void tally_allreduce(struct comm *c, enum dtype type, size_t count);
void tally_reduce_scatter(struct comm *c, enum dtype type, size_t count);
void tally_allgather(struct comm *c, size_t count, size_t unit);
void tally_broadcast(struct comm *c, size_t bytes, int root);

#endif
