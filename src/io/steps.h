/* The complete checkpoints of a run's folder, RUN/checkpoints/step-00000100: listing them, and
 * reading a checkpoint while the run writes others. Nothing here needs the run's lock.
 *
 * A reader holds a checkpoint by a shared lock on the checkpoint's list of files. A run locks the
 * list exclusively before it removes a checkpoint, and leaves held checkpoints. A checkpoint
 * without a list cannot be held. */
#ifndef SOTTO_IO_STEPS_H
#define SOTTO_IO_STEPS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"

/* Lists the steps in the folder `checkpoints`, ascending; the caller frees the list. No folder: no
 * steps. */
enum sotto_status steps_list(const char *checkpoints, int64_t **steps, int *n);

/* Writes the path of the checkpoint of a step. */
enum sotto_status steps_folder(const char *checkpoints, int64_t step, char out[FILE_PATH_ROOM]);

/* True if `path` has the name of a checkpoint; sets `*step`, and `run` to the folder of the run, ""
 * if the name does not contain it. */
bool steps_named(const char *path, int64_t *step, char run[FILE_PATH_ROOM]);

/* Finds the complete checkpoint of the highest step under the run folder `path`; `*step`: -1 if
 * there is none. */
enum sotto_status checkpoint_latest(const char *path, int64_t *step, char folder[FILE_PATH_ROOM]);

/* Finds the highest among checkpoints that can be read. Others are skipped, with a warning if
 * `warn`; an error if there are checkpoints and none can be read. */
enum sotto_status checkpoint_newest(const char *path, bool warn, int64_t *step,
                                    char folder[FILE_PATH_ROOM]);

/* Counts the complete checkpoints under the run folder `path`. */
enum sotto_status checkpoint_count(const char *path, int *n);

/* A checkpoint protected from removal. */
struct checkpoint_hold {
    int file; /* descriptor of the list, -1: no checkpoint */
};

/* Finds and holds a checkpoint as checkpoint_newest does. If the run removes the checkpoint before
 * the lock, tries the newest of the others. */
enum sotto_status checkpoint_hold_newest(struct checkpoint_hold *hold, const char *path, bool warn,
                                         int64_t *step, char folder[FILE_PATH_ROOM]);

/* Holds this checkpoint; an error if the checkpoint is gone or cannot be read. */
enum sotto_status checkpoint_hold_one(struct checkpoint_hold *hold, const char *folder);
void checkpoint_release(struct checkpoint_hold *hold); /* fine if none is held */

/* Locks a checkpoint before its removal, until checkpoint_release; false if a reader holds it. */
bool checkpoint_take(struct checkpoint_hold *hold, const char *folder);

#endif
