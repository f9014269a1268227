/* Finding the newest checkpoint of a run, which lies elsewhere where its own folder could not be
 * written. */
#ifndef SOTTO_TRAIN_RUN_RESCUE_FIND_H
#define SOTTO_TRAIN_RUN_RESCUE_FIND_H

#include "io/steps.h"

/* As checkpoint_hold_newest, also of the folders where rescue_run.h has saved the run in `folder`.
 * A checkpoint there that is newer by its step, but made before the newest in `folder`, is of
 * another run of that name, or of a run that has gone back since: it is passed over, and with `say`
 * a warning tells so. */
enum sotto_status rescue_newest(struct checkpoint_hold *hold, const char *folder, bool say,
                                int64_t *step, char checkpoint[FILE_PATH_ROOM]);
#endif
