/* Writes checkpoints of a run in spite of a full or failing disk. */
#ifndef SOTTO_TRAIN_RUN_RESCUE_RUN_H
#define SOTTO_TRAIN_RUN_RESCUE_RUN_H

#include "train/run/run.h"

/* The file in another folder that has the name of the run's own folder. */
#define RESCUE_OWNER "rescued.txt"

/* Writes a part of a checkpoint into c->folder; may be called again, for another folder, too. */
typedef enum sotto_status rescue_part(void *arg, struct checkpoint *c);

/* Begin a checkpoint of the run, and write a part. After minutes of failures the checkpoint moves
 * to another folder, with the parts that are written. */
enum sotto_status rescue_begin(struct run *run, struct checkpoint *c, int64_t step);
enum sotto_status rescue_try(struct run *run, struct checkpoint *c, rescue_part *part, void *arg);

/* Ends a checkpoint that is complete: warns if the checkpoint is in another folder; else removes
 * the other folder, if there is one. */
void rescue_done(struct run *run, const struct checkpoint *c);

#endif
