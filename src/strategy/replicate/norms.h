/* Displacements of a model's tensors as norms, one number per tensor, for a penalty that sends only
 * norms (co2, penalty = norm). A worker measures the part of a tensor that the worker owns; sums of
 * squares over the workers are the squares of whole tensors. */
#ifndef SOTTO_STRATEGY_REPLICATE_NORMS_H
#define SOTTO_STRATEGY_REPLICATE_NORMS_H

#include "strategy/replicate/replicate.h"

struct vector_pair;

struct norms {
    const struct table *table; /* NULL: norms are not used  */
    const struct owned *own;
    float *moved;             /* (tensors) |x_{t,0} - x_{t-1,0}|^2                      */
    float *first, *last;      /* (tensors) |d_t|^2 and |d_{t-1}|^2, summed over groups  */
    struct vector_pair *pair; /* (pieces of tensors) vectors to measure                 */
    double *square;           /* (pieces of tensors) squared distances of the pairs     */
};

enum sotto_status norms_open(struct norms *n, const struct table *table, const struct owned *own);
void norms_free(struct norms *n);

/* squares[i] <- |x - y|^2 of the own part of tensor i. */
enum sotto_status norms_measure(struct norms *n, const struct work *on, struct view x,
                                struct view y, float *squares);

/* squares <- sum of squares over the ranks of `comm`. */
enum sotto_status norms_sum(const struct norms *n, struct comm *comm, float *squares);

/* Returns Lambda of tensor i. Only scalars are sent, so |d| is the root mean square of the groups'
 * |d|, not the norm of the mean d. */
double norms_lambda(const struct norms *n, int i, int64_t tau, int groups);

/* Visits the norms. `first`: includes `first`, of the current round. */
enum sotto_status norms_visit(struct norms *n, const struct replicate *r, struct state_visitor *v,
                              bool first);

#endif
