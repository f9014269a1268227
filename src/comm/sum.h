/* Sums of a block over all ranks, in the one order of all backends (comm.h). */
#ifndef SOTTO_COMM_SUM_H
#define SOTTO_COMM_SUM_H

#include <stddef.h>

#include "comm/layout.h"
#include "tensor/ranks.h"

/* Returns the sum's order for elements [begin, end) of rank b's block. */
static inline struct rank_sum sum_of(struct layout l, int b, size_t begin, size_t end)
{
    return (struct rank_sum){l.nodes, l.each, b / l.each, b % l.each, begin, end};
}

/* Sums elements [begin, end) of x[0] ... x[l.nodes*l.each - 1], in the order of rank b's block,
 * into every out[i] (n_out vectors of the full length). An out may be one of the x. */
static inline void sum_block(const struct view *out, int n_out, const struct view *x,
                             struct layout l, int b, size_t begin, size_t end)
{
    const struct rank_sum p = sum_of(l, b, begin, end);
    sum_ranks(&p, out, n_out, x);
}

#endif
