/* Resumes a run: reads a checkpoint's configuration, refuses changes that a run cannot make, and
 * prints the command that resumes.
 *
 * A checkpoint's sotto.ini has the whole configuration with full names of files, so that a run is
 * resumed from its folder alone, in any current directory. */
#ifndef SOTTO_TRAIN_OPEN_RESUME_H
#define SOTTO_TRAIN_OPEN_RESUME_H

#include <stdio.h>

#include "train/run/run.h"

/* Reduces `config` to the part that a checkpoint keeps: full names of files, methods by their
 * presets, and no options of a single start. */
void resume_keep(struct run_config *config);

/* Find the newest readable checkpoint of the run in `folder`, or saved elsewhere (rescue_newest),
 * and hold the checkpoint on rank 0; read the configuration that made a checkpoint. All ranks of
 * `mpi` call the functions, and rank 0 alone reads the folder; NULL: this process does. */
enum sotto_status resume_find(struct comm *mpi, const char *folder, bool say, int64_t *step,
                              char checkpoint[FILE_PATH_ROOM], struct checkpoint_hold *hold);
enum sotto_status resume_read(struct run_config *out, struct comm *mpi, const char *checkpoint);

/* Reads the configuration that resumes the run in `folder`: of the newest readable checkpoint.
 * *found: false without a checkpoint; `out` is unchanged then. */
enum sotto_status resume_config(struct run_config *out, struct comm *mpi, const char *folder,
                                bool *found);

/* As resume_config, for one checkpoint of a run, which continues in `folder`; "": in the run's own
 * folder, found by the checkpoint's name. Fails if the run has a newer checkpoint in that folder.
 * *from: true if `folder` is another folder than the run's own. */
enum sotto_status resume_config_at(struct run_config *out, struct comm *mpi, const char *checkpoint,
                                   const char *folder, bool *from);

/* Fails for options that differ from run->before and that a resumed run cannot change. */
enum sotto_status resume_refuse(const struct run *run);

/* Fails unless training with optimizer `now` can continue from the state of `before`; `where` names
 * the state in messages. */
enum sotto_status resume_check_optim(const struct strategy_config *strategy,
                                     const struct optim_config *before,
                                     const struct optim_config *now, const char *where);

/* Ends loading a state that the method `before` has saved. Another method may leave values unused,
 * which the worker that `leads` logs; else unused values are a failure. */
enum sotto_status resume_finish(struct state_visitor *v, const char *before,
                                const struct strategy_config *now, bool leads);

/* Logs the options that differ from run->before: "changed: optim.lr 0.0003 -> 0.5". */
void resume_report(const struct run *run);

/* Writes the command that resumes this run once there is a checkpoint. */
void resume_plainly(const struct run *run, FILE *out);

/* Writes the command that resumes this run with the options that have changed since the newest
 * checkpoint, and with the learning rate times `rate`. Returns false if there is no checkpoint. */
bool resume_command(const struct run *run, double rate, FILE *out);

/* Returns the sequence length that the model in `folder` was trained with (train.seq of its
 * sotto.ini); `positions` without such a file or with a longer one. */
int resume_trained_length(const char *folder, int positions);

#endif
