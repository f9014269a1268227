/* The sum of a block of vectors over the ranks that hold them, in the one order of all sums
 * (comm/comm.h). */
#ifndef SOTTO_TENSOR_RANKS_H
#define SOTTO_TENSOR_RANKS_H

#include "tensor/dtype.h"

/* Ranks on `nodes` nodes of `each`; elements [begin, end), which are of the block of the rank at
 * `place` of `node`. */
struct rank_sum {
    int nodes, each, node, place;
    size_t begin, end;
};

/* The rank whose elements are the i-th to be added, 0 <= i < nodes * each. */
static inline int rank_sum_turn(const struct rank_sum *p, int i)
{
    const int node = (p->node + 1 + i / p->each) % p->nodes;
    return node * p->each + (p->place + 1 + i % p->each) % p->each;
}

/* In the host's memory: the elements of x[0] ... x[nodes * each - 1] summed into every out[i]
 * (n_out places of the same length as the vector). An out may be one of the x. */
void sum_ranks(const struct rank_sum *p, const struct view *out, int n_out, const struct view *x);

#endif
