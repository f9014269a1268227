/* Collectives made of messages; comm.h defines the sums and their order. On N = `nodes` x `each`
 * ranks (layout.h), with a vector of B bytes cut into N blocks, each rank sends
 *
 *     reduce-scatter   inside, around the ring of its node: each-1 steps with a slice, which is the
 *                      blocks of one place on all nodes, B/each; then across, around the ring of
 *                      its place on all nodes: nodes-1 steps with a block, B/N
 *     all-gather       the reverse: across, then inside
 *     all-reduce       a reduce-scatter, then an all-gather
 *
 * All ranks of a node use the links between nodes at the same time, each for its slice, and the
 * bytes that cross these links are the minimum: 2 (nodes-1)/nodes B per node for an all-reduce. One
 * node, or one rank on each node, makes a single ring.
 *
 * Partial sums in bf16 would be rounded at every step. A bf16 reduce-scatter therefore sends slices
 * and blocks straight to the rank that sums them, in fp32, in the same number of steps and bytes.
 *
 * A small all-gather doubles distances. In round i = 0, 1, ... a rank has the parts of 2^i ranks,
 * its own and the parts of the ranks after it; it sends min(2^i, N - 2^i) of them, the number that
 * the receiver lacks, to the rank 2^i before it; log2 N rounds. A small all-reduce gathers whole
 * vectors in this way, and every rank adds them in the order of all sums. Small means: at most
 * COMM_SMALL bytes in the end. */
#ifndef SOTTO_COMM_RING_H
#define SOTTO_COMM_RING_H

#include "comm/block_stream.h"

/* As the members of comm_ops; size > 1. */
enum sotto_status ring_allreduce(const struct ring *r, struct view y, struct view x, size_t count);
enum sotto_status ring_reduce_scatter(const struct ring *r, struct view y, struct view x,
                                      size_t count);
enum sotto_status ring_allgather(const struct ring *r, void *y, const void *x, size_t count,
                                 size_t unit);

#endif
