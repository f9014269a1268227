/* The parts of a checkpoint, for those who write one: save.c, where all workers do so together, and
 * snapshot.c, where they go on meanwhile. */
#ifndef SOTTO_TRAIN_CHECKPOINT_SAVE_H
#define SOTTO_TRAIN_CHECKPOINT_SAVE_H

#include "train/run/rescue_run.h"
#include "train/run/run_worker.h"

/* Writes a checkpoint of this moment and publishes it in the run folder. Called by all workers, as
 * are the next two. */
enum sotto_status checkpoint_save(struct run_worker *w);

/* Takes over the state in the run's checkpoint, all but the parameters. */
enum sotto_status checkpoint_load(struct run_worker *w);

/* A 64-bit hash of parameters and state, equal for equal bits; on rank 0. */
enum sotto_status checkpoint_hash(struct run_worker *w, uint64_t *out);

/* The state: what rank 0 knows of the run, and what each worker has (a state_owner). */
enum sotto_status save_visit_common(struct run_worker *w, struct state_visitor *v);
enum sotto_status save_visit_own(void *run_worker, struct state_visitor *v);

/* Parts of rank 0 (rescue_part): the model, the state that a saver has been shown, and the
 * configuration of the run. */
struct save_model {
    const struct run *run;
    const float *flat, *state; /* `state`: the model's, NULL: it has none */
};
enum sotto_status save_put_model(void *save_model, struct checkpoint *c);
enum sotto_status save_put_state(void *saver, struct checkpoint *c);
enum sotto_status save_put_config(void *run, struct checkpoint *c);

/* Says what a file that only describes the run could not be written for, and goes on. */
void save_warn(const char *path, enum sotto_status st);

/* Likewise, from all workers. */
enum sotto_status save_write_counts(struct run_worker *w);

/* Where writing went well (st): what is in the folder becomes the newest checkpoint. */
enum sotto_status save_commit(struct run *run, struct checkpoint *c, enum sotto_status st);

#endif
