/* State of a model that is not trained, such as running statistics: every worker has its own state,
 * which its micro-batches move. An evaluation or a published model uses the mean over the workers.
 * Many models have no such state. */
#ifndef SOTTO_TRAIN_ORACLE_RUNNING_STATS_H
#define SOTTO_TRAIN_ORACLE_RUNNING_STATS_H

#include "comm/worker.h"
#include "io/state.h"
#include "nn/model.h"

struct running_stats {
    const struct model *model;
    struct device *dev;
    struct buffer own, mean; /* fp32, of the size of model->state */
};

/* `start`: initial values in host memory; NULL: the model's. */
enum sotto_status running_stats_init(struct running_stats *r, const struct model *model,
                                     struct device *dev, const float *start);
void running_stats_free(struct running_stats *r);

/* Sets r->mean to the mean over all workers. Called by all workers. */
enum sotto_status running_stats_average(struct running_stats *r, struct comm *world);

/* Visits every worker's own state and the mean, from which another number of workers continues.
 * Before a save, running_stats_average is called. */
enum sotto_status running_stats_visit(struct running_stats *r, struct state_visitor *v,
                                      const struct worker *w);

#endif
