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
#include "io/whole.h"

/* What rundir_open has made, which a start that is refused takes away again. */
struct rundir_made {
    uint32_t kept;   /* characters of the path that name a folder which was there before */
    bool lock;       /* .lock was not there before */
    char owner[128]; /* ... and its line since then: the process */
};

struct rundir {
    char path[FILE_PATH_ROOM];
    char checkpoints[FILE_PATH_ROOM]; /* path/checkpoints */
    int lock;                         /* descriptor, -1: closed */
    struct rundir_made made;
};

/* Makes the folder if need be and takes its lock; an error that names the process if another has
 * it. */
enum sotto_status rundir_open(struct rundir *run, const char *path);
void rundir_close(struct rundir *run);

/* Refuses a folder that another process has the lock of, with the same error; nothing is made. */
enum sotto_status rundir_unused(const char *path);

/* Closes it and removes what rundir_open has made: the lock of a folder that was there before, or
 * the folder with those above it, unless something was put there. So a run that is refused leaves
 * nothing behind. */
void rundir_discard(struct rundir *run);

/* `run` of another process than the one that has opened the folder, for rundir_discard alone, which
 * does nothing where this process sees another disk. */
void rundir_follow(struct rundir *run, const char *path, const struct rundir_made *made);

/* Removes all that is in the folder but the lock, which stays ours: who came next would otherwise
 * lock a file that is no longer there. */
enum sotto_status rundir_clear(struct rundir *run);

struct checkpoint {
    struct rundir *run;
    int64_t step;
    char folder[FILE_PATH_ROOM]; /* write the checkpoint's files here */
    bool open;
};

enum sotto_status checkpoint_begin(struct checkpoint *c, struct rundir *run, int64_t step);

/* Syncs the files, gives the folder its final name (in c->folder afterwards), then removes all but
 * the `keep` checkpoints of the highest steps (0: keeps all; this one is always kept, and one that
 * is held until it is not) and what crashes have left behind. On failure the partial folder is gone
 * and earlier checkpoints are as they were. */
enum sotto_status checkpoint_commit(struct checkpoint *c, int keep);
void checkpoint_abort(struct checkpoint *c);

/* Makes a checkpoint of the same step out of one that is complete, in another run folder, by hard
 * links where there can be some; then as checkpoint_commit does and rundir_publish. */
enum sotto_status checkpoint_copy(const struct checkpoint *from, struct rundir *to, int keep);

/* Goes on in another run folder: what is written already is copied there and removed here. */
enum sotto_status checkpoint_move(struct checkpoint *c, struct rundir *to);

/* Gives the files of a checkpoint folder that make a Hugging Face model (model.safetensors and
 * config.json, and others where they exist), and the configuration that it was made with, names in
 * the run folder. */
enum sotto_status rundir_publish(struct rundir *run, const char *folder);

#endif
