/* Finds the newest checkpoint of a run, which is in another folder if the run's own could not be
 * written. */
#ifndef SOTTO_TRAIN_RUN_RESCUE_FIND_H
#define SOTTO_TRAIN_RUN_RESCUE_FIND_H

#include "io/steps.h"

/* As checkpoint_hold_newest, also of the folders in which rescue_run.h has saved the run of
 * `folder`. A checkpoint there with a later step that was made before the newest checkpoint in
 * `folder` is ignored, with a warning if `say`: it is of another run of the same name, or of a run
 * that was resumed from an earlier step since. */
enum sotto_status rescue_newest(struct checkpoint_hold *hold, const char *folder, bool say,
                                int64_t *step, char checkpoint[FILE_PATH_ROOM]);
#endif
