/* Checkpoints of a run that are written in spite of a disk that refuses. */
#ifndef SOTTO_TRAIN_RUN_RESCUE_RUN_H
#define SOTTO_TRAIN_RUN_RESCUE_RUN_H

#include "train/run/run.h"

/* The file in the other folder that names the run's own. */
#define RESCUE_OWNER "rescued.txt"

/* A part of writing a checkpoint, into c->folder; it may be done again, there or in another one. */
typedef enum sotto_status rescue_part(void *arg, struct checkpoint *c);

/* Begins a checkpoint of the run, and does a part of it, in its folder or, where that fails for
 * long, in another, to which what is written already is moved. */
enum sotto_status rescue_begin(struct run *run, struct checkpoint *c, int64_t step);
enum sotto_status rescue_try(struct run *run, struct checkpoint *c, rescue_part *part, void *arg);

/* The checkpoint is there: says so where that is another folder than the run's, and removes the
 * other one where it is the run's own again. */
void rescue_done(struct run *run, const struct checkpoint *c);

#endif
