/* How far the tensors of a model have moved: a number a tensor, where only such numbers travel
 * (co2, penalty = norm). What a worker measures is of the part of a tensor that it owns; sums of
 * squares over the workers make the whole. */
#ifndef SOTTO_STRATEGY_REPLICATE_NORMS_H
#define SOTTO_STRATEGY_REPLICATE_NORMS_H

#include "strategy/replicate/replicate.h"

struct vector_pair;

struct norms {
    const struct table *table; /* NULL: they are not wanted */
    const struct owned *own;
    float *moved;             /* (tensors) squares of |x_{t,0} - x_{t-1,0}|             */
    float *first, *last;      /* (tensors) of |d_t|, |d_{t-1}|, summed over groups      */
    struct vector_pair *pair; /* (pieces of tensors) what is measured, and ...          */
    double *square;           /* ... how long it is                                     */
};

enum sotto_status norms_open(struct norms *n, const struct table *table, const struct owned *own);
void norms_free(struct norms *n);

/* squares <- of |x - y|, own vectors, tensor by tensor. */
enum sotto_status norms_measure(struct norms *n, const struct work *on, struct view x,
                                struct view y, float *squares);

/* squares <- their sums over the ranks. */
enum sotto_status norms_sum(const struct norms *n, struct comm *comm, float *squares);

/* Lambda of tensor i. Only scalars travel, so |d| is the root mean square of the groups' |d|, not
 * the norm of their mean. */
double norms_lambda(const struct norms *n, int i, int64_t tau, int groups);

/* `first`: with those of a round under way. */
enum sotto_status norms_visit(struct norms *n, const struct replicate *r, struct state_visitor *v,
                              bool first);

#endif
