/* The sum of a block of vectors over the ranks that hold them, in the order of all sums
 * (comm/comm.h). */
#ifndef SOTTO_TENSOR_RANKS_H
#define SOTTO_TENSOR_RANKS_H

#include "tensor/dtype.h"

/* Ranks: `nodes` nodes of `each`. Elements [begin, end) are in the block of the rank at `place`
 * of `node`. */
struct rank_sum {
    int nodes, each, node, place;
    size_t begin, end;
};

/* Returns the rank whose elements are added i-th, 0 <= i < nodes * each. */
static inline int rank_sum_turn(const struct rank_sum *p, int i)
{
    const int node = (p->node + 1 + i / p->each) % p->nodes;
    return node * p->each + (p->place + 1 + i % p->each) % p->each;
}

/* Sums the elements of x[0] ... x[nodes * each - 1] into each of `n_out` vectors. All are in
 * host memory and have the length of the whole vector; an out may be one of the x. */
void sum_ranks(const struct rank_sum *p, const struct view *out, int n_out, const struct view *x);

#endif
