/* How the ranks of a communicator are placed on nodes. The layout decides how sums and blocks
 * travel: first inside every node, then across, each place of a node with the same place of the
 * other nodes. */
#ifndef SOTTO_COMM_LAYOUT_H
#define SOTTO_COMM_LAYOUT_H

#include <stddef.h>

/* `nodes` nodes of `each` ranks: rank = node*each + place. Every uneven placement counts as one
 * node of all ranks: nodes with different numbers of ranks, or ranks that do not follow their
 * nodes. */
struct layout {
    int nodes, each;
};

/* Bytes that a rank has in the end of an all-gather, all-reduce or broadcast, up to which distances
 * are doubled (ring.h) instead of passing blocks around rings: log2 N latencies, but up to N/2
 * times the bytes. For 8 ranks on links from 2 us and 25 GB/s to 5 ms and 100 Mbit/s, doubling is
 * faster up to 100 kB and more. */
enum { COMM_SMALL = 64 << 10 };

/* Returns the layout of `size` ranks; node[r] is the node of rank r. */
struct layout layout_of(const int *node, int size);

/* Elements [begin, end) of a vector of `count` elements that are the block of `rank`. Lengths of
 * blocks are equal, or the first blocks have one element more. */
struct comm_block {
    size_t begin, end;
};
struct comm_block comm_block(size_t count, int size, int rank);

/* Returns the number of elements in the blocks of ranks first, first+1, ..., `n` ranks, wrapping
 * around. */
size_t comm_blocks(size_t count, int size, int first, int n);

#endif
