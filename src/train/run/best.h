/* The lowest loss over the held-out data. A run may keep the checkpoint of that loss
 * (train.keep_best), and end after several evaluations without a lower loss (train.patience). */
#ifndef SOTTO_TRAIN_RUN_BEST_H
#define SOTTO_TRAIN_RUN_BEST_H

#include "comm/worker.h"
#include "io/rundir.h"
#include "io/state.h"
#include "train/config/config.h"

struct best {
    double loss;
    int64_t step;  /* of the loss; 0: no evaluation yet */
    int64_t since; /* evaluations after `step`, until the run is to end */
    int64_t ends;  /* last step of the run, set by train.patience; 0: not set */
};

/* True if a run needs the lowest loss. */
static inline bool best_wanted(const struct train_config *c)
{
    return c->keep_best || c->patience > 0;
}

/* True if train.patience is over. */
static inline bool best_over(const struct best *b, const struct train_config *c)
{
    return c->patience > 0 && b->since >= c->patience;
}

/* Refuses options without an effect. `evaluates`: the run has held-out data. */
enum sotto_status best_check(const struct run_config *config, bool evaluates);

/* Compares the loss of an evaluation at `step`; rank 0's loss counts for all workers. */
enum sotto_status best_judge(struct best *b, struct comm *world, int64_t step, double loss);

/* Visits the lowest loss: saves it if `wanted`, and loads it if the checkpoint has one. */
enum sotto_status best_visit(struct best *b, struct state_visitor *v, bool wanted);

/* Names the folder of the best checkpoint, in the folder `run`; a run's folder, too. */
enum sotto_status best_folder(const char *run, char out[FILE_PATH_ROOM]);

/* Keeps a complete checkpoint in best_folder, by hard links, in place of the best so far. */
enum sotto_status best_keep(const struct checkpoint *c);

#endif
