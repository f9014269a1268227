/* A run's folder: one writer at a time, checkpoints that are there whole or not at all, and the
 * newest model in a form that Hugging Face readers take.
 *
 *     run/.lock                            held while a process writes here
 *     run/checkpoints/step-00000100/       complete: the rename to this name is the commit
 *     run/checkpoints/.partial-200/        being written, or left by a crash
 *     run/model.safetensors, config.json   the published checkpoint's own files (hard links) */
#ifndef SOTTO_IO_RUNDIR_H
#define SOTTO_IO_RUNDIR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"
#include "io/steps.h"
#include "io/checkpoint_check.h"

/* Folders and lock that rundir_open has made, for removal after a refused start. */
struct rundir_made {
    uint32_t kept;   /* characters of `path` for existing folders */
    bool lock;       /* .lock did not exist before */
    char owner[128]; /* line in the new .lock: the process */
};

struct rundir {
    char path[FILE_PATH_ROOM];
    char checkpoints[FILE_PATH_ROOM]; /* path/checkpoints */
    int lock;                         /* descriptor, -1: closed */
    struct rundir_made made;
};

/* Makes the folder if need be and takes its lock; an error with the name of the process if another
 * process has the lock. */
enum sotto_status rundir_open(struct rundir *run, const char *path);
void rundir_close(struct rundir *run);

/* Refuses a folder that another process has the lock of, with the same error; nothing is made. */
enum sotto_status rundir_unused(const char *path);

/* Closes the folder and removes the parts that rundir_open has made: the lock of a folder that
 * existed before, or the folder and its new parents, unless another process has put something
 * there. A refused run leaves nothing on disk. */
void rundir_discard(struct rundir *run);

/* Describes the `run` of another process for rundir_discard alone, which does nothing if this
 * process sees another disk. */
void rundir_follow(struct rundir *run, const char *path, const struct rundir_made *made);

/* Removes all that is in the folder except the lock: with the lock removed, the next process would
 * lock another file. */
enum sotto_status rundir_clear(struct rundir *run);

struct checkpoint {
    struct rundir *run;
    int64_t step;
    char folder[FILE_PATH_ROOM]; /* write the checkpoint's files here */
    bool open;
};

enum sotto_status checkpoint_begin(struct checkpoint *c, struct rundir *run, int64_t step);

/* Syncs the files, gives the folder its final name (in c->folder afterwards), then removes older
 * checkpoints and the remains of crashes. The `keep` checkpoints of the highest steps stay (0: all
 * stay), and this checkpoint, and those that a reader holds, until released. On failure the partial
 * folder is gone and earlier checkpoints are unchanged. */
enum sotto_status checkpoint_commit(struct checkpoint *c, int keep);
void checkpoint_abort(struct checkpoint *c);

/* Makes a checkpoint of the same step out of one that is complete, in another run folder, by hard
 * links where there can be some; then as checkpoint_commit does and rundir_publish. */
enum sotto_status checkpoint_copy(const struct checkpoint *from, struct rundir *to, int keep);

/* Continues in another run folder: files written so far are moved there. */
enum sotto_status checkpoint_move(struct checkpoint *c, struct rundir *to);

/* Links the files of a checkpoint folder that make a Hugging Face model (model.safetensors,
 * config.json and optional others), and the run's configuration, into the run folder. */
enum sotto_status rundir_publish(struct rundir *run, const char *folder);

#endif
