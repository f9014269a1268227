/* The sum of a block over all ranks, in the one order that every backend uses (comm.h). */
#ifndef SOTTO_COMM_SUM_H
#define SOTTO_COMM_SUM_H

#include <stddef.h>

#include "comm/layout.h"
#include "tensor/dtype.h"

/* Elements [begin, end) of x[0] ... x[l.nodes*l.each - 1] summed as those of rank b's block, into
 * every out[i] (n_out places of the same length as the vector). An out may be one of the x. */
void sum_block(struct view *const out, int n_out, const struct view *x, struct layout l, int b,
               size_t begin, size_t end);

#endif
