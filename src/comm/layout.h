/* How the ranks of a communicator lie on nodes, which decides the way that sums and blocks take:
 * first inside every node, then across, each place of a node with the same place of the others. */
#ifndef SOTTO_COMM_LAYOUT_H
#define SOTTO_COMM_LAYOUT_H

#include <stddef.h>

/* `nodes` nodes of `each` ranks: rank = node*each + place. One node of all ranks stands also for
 * what is not that even: nodes with unequally many ranks, or ranks that do not follow their nodes.
 */
struct layout {
    int nodes, each;
};

/* Bytes: what ends up at a rank of an all-gather, all-reduce or broadcast that goes by doubling
 * distances (ring.h) instead of around rings: log2 N latencies, but up to N/2 times the bytes. For
 * 8 ranks on links from 2 us and 25 GB/s to 5 ms and 100 Mbit/s that pays up to 100 kB and more. */
enum { COMM_SMALL = 64 << 10 };

/* node[r]: where rank r of `size` runs. */
struct layout layout_of(const int *node, int size);

/* Elements [begin, end) of a vector of `count` that are rank's block: as equal as they can be,
 * longer ones first. */
struct comm_block {
    size_t begin, end;
};
struct comm_block comm_block(size_t count, int size, int rank);

/* Elements of the blocks of ranks first, first+1, ..., n of them, counted around. */
size_t comm_blocks(size_t count, int size, int first, int n);

#endif
