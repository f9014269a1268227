/* Writes checkpoints: save.c in a pause of all workers, snapshot.c while asynchronous groups
 * continue to train. */
#ifndef SOTTO_TRAIN_CHECKPOINT_SAVE_H
#define SOTTO_TRAIN_CHECKPOINT_SAVE_H

#include "train/run/rescue_run.h"
#include "train/run/run_worker.h"

/* Writes a checkpoint of this moment and publishes it in the run folder. Called by all workers, as
 * are the next two. */
enum sotto_status checkpoint_save(struct run_worker *w);

/* Loads the state of the run's checkpoint but for the parameters, which opening has read. */
enum sotto_status checkpoint_load(struct run_worker *w);

/* Hashes parameters and state, equal for equal bits; *out is set on rank 0. */
enum sotto_status checkpoint_hash(struct run_worker *w, uint64_t *out);

/* Visit the state: of the run, by rank 0; and of each worker (a state_owner). */
enum sotto_status save_visit_common(struct run_worker *w, struct state_visitor *v);
enum sotto_status save_visit_own(void *run_worker, struct state_visitor *v);

/* Write parts of a checkpoint, on rank 0 (rescue_part): the model, the state in a saver, and the
 * configuration of the run. */
struct save_model {
    const struct run *run;
    const float *flat;  /* parameters */
    const float *state; /* the model's other state; NULL: none */
};
enum sotto_status save_put_model(void *save_model, struct checkpoint *c);
enum sotto_status save_put_state(void *saver, struct checkpoint *c);
enum sotto_status save_put_config(void *run, struct checkpoint *c);

/* Warns if a file that only describes the run could not be written. */
void save_warn(const char *path, enum sotto_status st);

/* Writes counts.tsv, if the method depends on timing: the method's option `replay` takes the file.
 * Called by all workers. */
enum sotto_status save_write_counts(struct run_worker *w);

/* Makes the folder the newest checkpoint if writing succeeded (`st`), else removes the folder. */
enum sotto_status save_commit(struct run *run, struct checkpoint *c, enum sotto_status st);

#endif
