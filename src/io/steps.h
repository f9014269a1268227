/* The complete checkpoints of a run's folder, RUN/checkpoints/step-00000100: which there are, and
 * one that is read while the run goes on to write others. Nothing here needs the run's lock.
 *
 * A reader holds a checkpoint by a shared lock on its list of files; a run that removes checkpoints
 * takes that lock alone first, and leaves what is held. One without a list cannot be held. */
#ifndef SOTTO_IO_STEPS_H
#define SOTTO_IO_STEPS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"

/* The steps in the folder `checkpoints`, ascending; the caller frees them. No folder: none. */
enum sotto_status steps_list(const char *checkpoints, int64_t **steps, int *n);

/* The checkpoint of a step there. */
enum sotto_status steps_folder(const char *checkpoints, int64_t step, char out[FILE_PATH_ROOM]);

/* Whether `path` has the name of a checkpoint; then its step and the folder of its run, which is
 * "" where the name does not tell it. */
bool steps_named(const char *path, int64_t *step, char run[FILE_PATH_ROOM]);

/* The complete checkpoint of the highest step under the run folder `path`; `*step` is -1 if there
 * is none. */
enum sotto_status checkpoint_latest(const char *path, int64_t *step, char folder[FILE_PATH_ROOM]);

/* The same of those that can be read. One that cannot is passed over, and with `say` a warning
 * tells why; an error if there are some and none can be read. */
enum sotto_status checkpoint_newest(const char *path, bool say, int64_t *step,
                                    char folder[FILE_PATH_ROOM]);

/* How many complete checkpoints there are under the run folder `path`. */
enum sotto_status checkpoint_count(const char *path, int *n);

/* A checkpoint that is not to be removed by its run. */
struct checkpoint_hold {
    int file; /* descriptor of its list, -1: none is held */
};

/* As checkpoint_newest, and holds it: should the run remove one before it is held, the newest that
 * is there then. */
enum sotto_status checkpoint_hold_newest(struct checkpoint_hold *hold, const char *path, bool say,
                                         int64_t *step, char folder[FILE_PATH_ROOM]);

/* Holds this one; an error if it is not there or cannot be read. */
enum sotto_status checkpoint_hold_one(struct checkpoint_hold *hold, const char *folder);
void checkpoint_release(struct checkpoint_hold *hold); /* fine if none is held */

/* Locks a checkpoint that is to be removed, until checkpoint_release; false: a reader holds it. */
bool checkpoint_take(struct checkpoint_hold *hold, const char *folder);

#endif
