/* Cosine between the groups' displacements, a metric. Vectors are the workers' slices: norms and
 * products are summed over a group's slices. */
#ifndef SOTTO_STRATEGY_REPLICATE_COSINE_H
#define SOTTO_STRATEGY_REPLICATE_COSINE_H

#include "strategy/replicate/replicate.h"

/* Returns the mean of cos(delta_i, delta_j) over all pairs of groups, equal on all workers:
 * (|sum u|^2 - K) / (K (K - 1)) of the K unit vectors u = delta/|delta|, by one all-reduce. The K
 * exclude groups without `take_part` and groups with delta = 0. *pairs 0: no pair, and *mean is 0.
 * Overwrites `delta`. */
enum sotto_status cosine_of_groups(struct replicate *r, struct view delta, bool take_part,
                                   double *mean, int64_t *pairs);

/* The last push of a group, for the cosine to the next push. */
struct cosine_last {
    struct buffer last; /* dev NULL: the metric is off             */
    double square;      /* |last|^2; 0: no push yet, or a zero push */
};

/* Returns cos(g, last) in [-1, 1] in *out, NAN if g or last is 0, and sets last to g. `within`: the
 * workers with the other slices of g; NULL: g is the whole vector. */
enum sotto_status cosine_to_last(struct cosine_last *c, const struct work *on, struct comm *within,
                                 struct view g, size_t count, double *out);

/* Visits the last push, for resumed runs. A state without the metric starts from zero. Hashes of a
 * run's results leave the metric out. */
enum sotto_status cosine_visit(struct cosine_last *c, struct state_visitor *v,
                               const struct table *table, const struct owned *own);

/* True if workers of a group own slices of the vector, false if each owns the whole vector. */
bool cosine_sliced(const struct replicate *r);

#endif
