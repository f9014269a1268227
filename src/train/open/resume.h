/* Going on with a run: what its checkpoints say of it, what may be changed on the way, and the
 * command that does it.
 *
 * A checkpoint's sotto.ini holds the whole configuration with the names of files in full, so that
 * the folder of the run is all that is needed to go on from anywhere. */
#ifndef SOTTO_TRAIN_OPEN_RESUME_H
#define SOTTO_TRAIN_OPEN_RESUME_H

#include <stdio.h>

#include "train/run/run.h"

/* Makes `config` what a checkpoint keeps of it: files named in full, methods by their presets, and
 * nothing of where the run lies or what is meant for one start alone. */
void resume_keep(struct run_config *config);

/* With `mpi` these are called by all of its ranks, and rank 0 alone reads the folder; NULL: this
 * process reads it. First the newest checkpoint of the run in `folder` that can be read, as
 * checkpoint_hold_newest finds it, or a newer one that was saved elsewhere (rescue_newest), which
 * rank 0 holds; then the configuration that a checkpoint was made with. */
enum sotto_status resume_find(struct comm *mpi, const char *folder, bool say, int64_t *step,
                              char checkpoint[FILE_PATH_ROOM], struct checkpoint_hold *hold);
enum sotto_status resume_read(struct run_config *out, struct comm *mpi, const char *checkpoint);

/* The configuration that goes on exactly with the run in `folder`: of its newest checkpoint that
 * can be read. Without a checkpoint `*found` is false and `out` stays as it is. */
enum sotto_status resume_config(struct run_config *out, struct comm *mpi, const char *folder,
                                bool *found);

/* The same for this checkpoint of a run, which goes on in `folder`. "": in the run's own, if the
 * checkpoint's name tells that, which is refused where the run has a newer checkpoint. `*from`:
 * whether `folder` is another. */
enum sotto_status resume_config_at(struct run_config *out, struct comm *mpi, const char *checkpoint,
                                   const char *folder, bool *from);

/* Refuses what the run that is gone on with (run->before) cannot change any more. */
enum sotto_status resume_refuse(const struct run *run);

/* Whether training with this optimizer can go on from the state of another; `where` it lies. */
enum sotto_status resume_check_optim(const struct strategy_config *strategy,
                                     const struct optim_config *before,
                                     const struct optim_config *now, const char *where);

/* A state was loaded by this method that another may have saved: that need not have a use for all
 * of it, and what is dropped is told by the one who `leads`. */
enum sotto_status resume_finish(struct state_visitor *v, const char *before,
                                const struct strategy_config *now, bool leads);

/* Logs what else is different from now on: "changed: optim.lr 0.0003 -> 0.5". */
void resume_tell(const struct run *run);

/* Writes the command that goes on with this run once it has a checkpoint. */
void resume_plainly(const struct run *run, FILE *out);

/* Writes the command that goes on with this run, and with what it has changed since its newest
 * checkpoint, its learning rate times `rate`; false: there is no checkpoint to go on from. */
bool resume_command(const struct run *run, double rate, FILE *out);

/* Returns the sequence length that the model in `folder` was trained with (train.seq of its
 * sotto.ini); `positions` without such a file or with a longer one. */
int resume_trained_length(const char *folder, int positions);

#endif
