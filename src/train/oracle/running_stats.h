/* What a model keeps beside its parameters and does not train, such as running statistics: each
 * worker's own, which its micro-batches move. Who asks for the one model of all workers (an
 * evaluation, a published model) gets their mean. Models without such state have none of it. */
#ifndef SOTTO_TRAIN_ORACLE_RUNNING_STATS_H
#define SOTTO_TRAIN_ORACLE_RUNNING_STATS_H

#include "comm/worker.h"
#include "io/state.h"
#include "nn/model.h"

struct running {
    const struct model *model;
    struct device *dev;
    struct buffer own, mean; /* fp32, as model->state says */
};

/* `start` (host memory): where it begins; NULL: as the model says. */
enum sotto_status running_init(struct running *r, const struct model *model, struct device *dev,
                               const float *start);
void running_free(struct running *r);

/* Makes r->mean that of all workers; called by all of them. */
enum sotto_status running_average(struct running *r, struct comm *world);

/* Everybody's own, and the mean, which another number of workers go on from; behind
 * running_average, unless it loads. */
enum sotto_status running_visit(struct running *r, struct state_visitor *v, const struct worker *w);

#endif
