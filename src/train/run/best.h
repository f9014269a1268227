/* The lowest loss over the held-out data: its checkpoint may be kept (train.keep_best), and a run
 * may end when it has not been reached again for long (train.patience). */
#ifndef SOTTO_TRAIN_RUN_BEST_H
#define SOTTO_TRAIN_RUN_BEST_H

#include "comm/worker.h"
#include "io/rundir.h"
#include "io/state.h"
#include "train/config/config.h"

struct best {
    double loss;
    int64_t step;  /* that it was reached at; 0: there was no evaluation yet */
    int64_t since; /* evaluations after it, until the run is to end */
    int64_t ends;  /* the last step, where patience has ended the run; 0: it has not */
};

/* True if a run keeps account of it. */
static inline bool best_wanted(const struct train_config *c)
{
    return c->keep_best || c->patience > 0;
}

/* True if the run has had all the patience that it was given. */
static inline bool best_over(const struct best *b, const struct train_config *c)
{
    return c->patience > 0 && b->since >= c->patience;
}

/* Refuses what has no effect; `evaluates`: there are held-out data. */
enum sotto_status best_check(const struct run_config *config, bool evaluates);

/* Takes account of an evaluation at a step, by the loss of rank 0, on all workers alike. */
enum sotto_status best_judge(struct best *b, struct comm *world, int64_t step, double loss);

/* `wanted`: it is to be saved; what a checkpoint has of it is loaded in any case. */
enum sotto_status best_visit(struct best *b, struct state_visitor *v, bool wanted);

/* The folder of the best checkpoint in that of the run, which is a run's folder itself. */
enum sotto_status best_folder(const char *run, char out[FILE_PATH_ROOM]);

/* Keeps a checkpoint that is complete there, by hard links, in the place of the one before. */
enum sotto_status best_keep(const struct checkpoint *c);

#endif
