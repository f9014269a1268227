/* How alike the directions are that groups have moved in: a metric, which moves nothing. Vectors
 * are what workers own: norms and products are sums over a group's slices. */
#ifndef SOTTO_STRATEGY_REPLICATE_COSINE_H
#define SOTTO_STRATEGY_REPLICATE_COSINE_H

#include "strategy/replicate/replicate.h"

/* The mean of cos(delta_i, delta_j) over all pairs of groups, the same on all workers:
 * (|sum u|^2 - K) / (K (K - 1)) of the K unit vectors u = delta/|delta|, by one all-reduce. Groups
 * that do not `take_part`, or have not moved, are none of the K. *pairs 0: there are none, and no
 * mean. `delta` is overwritten. */
enum sotto_status cosine_of_groups(struct replicate *r, struct view delta, bool take_part,
                                   double *mean, int64_t *pairs);

/* Of each push to the one before it. */
struct cosine_last {
    struct buffer last; /* that push; dev NULL: nobody asked */
    double square;      /* |last|^2, 0: there is none, or it has not moved */
};

/* cos(g, last), in [-1, 1], and g is the last from now on; NAN: one of them is 0. `within`: the
 * workers that have the other slices, NULL: g is whole. */
enum sotto_status cosine_to_last(struct cosine_last *c, const struct work *on, struct comm *within,
                                 struct view g, size_t count, double *out);

/* For the states of runs that go on; one that was made without begins anew. A hash of what a run
 * has computed leaves it out. */
enum sotto_status cosine_visit(struct cosine_last *c, struct state_visitor *v,
                               const struct table *table, const struct owned *own);

/* Whether workers of a group own slices, not the whole vector each. */
bool cosine_sliced(const struct replicate *r);

#endif
