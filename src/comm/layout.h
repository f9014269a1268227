/* How the ranks of a communicator lie on nodes, which decides the way that sums and blocks take:
 * first inside every node, then across, each place of a node with the same place of the others. */
#ifndef SOTTO_COMM_LAYOUT_H
#define SOTTO_COMM_LAYOUT_H

/* `nodes` nodes of `each` ranks: rank = node*each + place. One node of all ranks stands also for
 * what is not that even: nodes with unequally many ranks, or ranks that do not follow their nodes.
 */
struct layout {
    int nodes, each;
};

/* Bytes: what ends up at a rank of a collective that goes in rounds of doubling distance instead of
 * around a ring. Latency is all it costs over slow links, and there are few rounds. */
enum { COMM_SMALL = 64 << 10 };

/* node[r]: where rank r of `size` runs. */
struct layout layout_of(const int *node, int size);

#endif
