/* What shard methods share: the micro-batches of a round, with a job in the lane as each stage's
 * gradient is complete. Members embed it first. */
#ifndef SOTTO_STRATEGY_SHARD_SHARD_H
#define SOTTO_STRATEGY_SHARD_SHARD_H

#include "strategy/strategy.h"

struct shard;

struct stage_job {
    struct shard *shard;
    int k;
};

struct shard {
    struct strategy base;
    const struct strategy_config *config;
    struct oracle *oracle;
    struct device *dev;
    struct mesh *mesh;                  /* not owned; NULL: one worker, alone */
    struct view *theta_stage, *g_stage; /* (n_stage) set by the member        */
    struct stage_job *job;              /* (n_stage)                          */
    int64_t next;                       /* micro-batch                        */
};

enum sotto_status shard_init(struct shard *s, const struct strategy_ops *ops,
                             const struct strategy_config *config, struct oracle *oracle,
                             struct device *dev, struct mesh *mesh);
void shard_free(struct shard *s);

/* g = the sum of this worker's gradients of a round; `complete` (a struct stage_job *) runs in the
 * lane for each stage behind its last backward, unless alone. All of them are done on return, and
 * `out` counts all workers. */
enum sotto_status shard_accumulate(struct shard *s, lane_job *complete, struct round *out);

/* Its parts, for methods that run their micro-batches themselves: a loss that is no number is an
 * error; a micro-batch is counted; the counts and the loss (summed over targets) of all workers
 * make the round's. */
enum sotto_status shard_finite(int64_t index, const struct oracle_result *r);
void shard_count(struct round *out, double *loss, const struct oracle_result *r);
enum sotto_status shard_sum_counts(struct shard *s, double loss, struct round *out);

/* What a round's summed gradient is multiplied by: 1 / micro-batches or target tokens. */
double shard_scale(const struct shard *s, const struct round *round);

/* Clipping, and the norm for whoever wants to see it: `squared` is that of the averaged gradient.
 */
enum sotto_status shard_norm(const struct optim_config *c, double squared, struct round *out,
                             double *scale);

/* A round's end: a failure ends the other workers' waiting too. */
enum sotto_status shard_finish(struct shard *s, enum sotto_status st);

/* All that must survive but the parameters: the place in the data, and the optimizer of slice
 * `index` of `parts`. */
enum sotto_status shard_visit(struct shard *s, struct optim *optim, int index, int parts,
                              struct state_visitor *v);

/* For methods that own a slice of every stage: where the slice lies in its stage, and where among
 * the own slices, which are kept side by side. */
struct slice {
    size_t count, in_stage, in_own;
};
struct slice shard_slice(const struct shard *s, int k);

/* Whether every stage can be cut into |S| equal slices. */
enum sotto_status shard_check(const struct table *table, const struct mesh *mesh);

/* The whole fp32 vector, in host memory, from and to the own slices `x`; the first is called by all
 * workers. */
enum sotto_status shard_export(const struct shard *s, struct view x, float *flat);
void shard_import(const struct shard *s, struct view x, const float *flat);

#endif
