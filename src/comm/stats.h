/* Counts the bytes that a rank sends in a call, from its own position alone, without a look at all
 * ranks. Every backend is counted as ring.h sends. */
#ifndef SOTTO_COMM_STATS_H
#define SOTTO_COMM_STATS_H

#include "comm/comm.h"

void stats_count_message(struct comm *c, enum comm_call call, size_t bytes, int to);
void stats_count_allreduce(struct comm *c, enum dtype type, size_t count);
void stats_count_reduce_scatter(struct comm *c, enum dtype type, size_t count);
void stats_count_allgather(struct comm *c, size_t count, size_t unit);
void stats_count_broadcast(struct comm *c, size_t bytes, int root);

#endif
