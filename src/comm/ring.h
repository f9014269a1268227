/* Collectives made of messages. What is added, and in which order, is comm.h's. On N = `nodes` x
 * `each` ranks (layout.h), of a vector of B bytes that is cut into N blocks, each rank sends
 *
 *     reduce-scatter   inside, around the ring of its node: each-1 steps with a slice, the blocks
 *                      of one place on all nodes, B/each; then across, around the ring of its place
 *                      on all nodes: nodes-1 steps with a block, B/N
 *     all-gather       the same the other way: across, then inside
 *     all-reduce       one after the other
 *
 * so all ranks of a node use the links between nodes at once, each for its slice, and what crosses
 * them is the least there is: 2 (nodes-1)/nodes B a node for an all-reduce. One node, or one rank
 * on each, is one ring.
 *
 * Partial sums in bf16 would be rounded at every step, so a bf16 reduce-scatter sends slices and
 * blocks straight to the rank that sums them, in fp32: as many steps and bytes.
 *
 * A small all-gather goes by doubling distances: in round i = 0, 1, ... a rank has the parts of 2^i
 * ranks, its own and those behind it, and sends as many as are wanted, min(2^i, N - 2^i), to the
 * rank 2^i before it; log2 N rounds. A small all-reduce gathers whole vectors so, and every rank
 * adds them in the order of all sums. Small is what amounts to COMM_SMALL bytes in the end. */
#ifndef SOTTO_COMM_RING_H
#define SOTTO_COMM_RING_H

#include "comm/block_stream.h"

/* As the functions of comm_ops; size > 1. */
enum sotto_status ring_allreduce(const struct ring *r, struct view y, struct view x, size_t count);
enum sotto_status ring_reduce_scatter(const struct ring *r, struct view y, struct view x,
                                      size_t count);
enum sotto_status ring_allgather(const struct ring *r, void *y, const void *x, size_t count,
                                 size_t unit);

#endif
