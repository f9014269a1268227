/* Saves in spite of a full or failing disk: a write that fails is tried again for minutes, and then
 * made in another folder, so that no training is lost. On rank 0. */
#ifndef SOTTO_TRAIN_RUN_RESCUE_H
#define SOTTO_TRAIN_RUN_RESCUE_H

#include <stdatomic.h>

#include "io/rundir.h"

/* Zero: the last write succeeded. */
struct rescue {
    double until; /* real time at which tries end; 0: no write has failed */
    double pause; /* seconds before the next try */
    int place;    /* number of the next folder of rescue_place */
};

/* Waits after a failed write of `what`, such as "step 300"; sotto_error() has the reason, and keeps
 * the text. Returns true if the write is to be tried again, and false after minutes of tries or if
 * *stop (optional) is set. */
bool rescue_wait(struct rescue *r, const atomic_int *stop, const char *what);

/* Writes the full name of folder `number` in which to save instead of `path`: the parent of `path`,
 * the current folder, HOME, TMPDIR, /var/tmp, /tmp; "" if the folder does not exist. Returns false
 * after the last number. */
bool rescue_place_at(const char *path, int number, char folder[FILE_PATH_ROOM]);

/* Finds the next folder of rescue_place_at that can be written and has room for `bytes`. Returns
 * false if there is none left. */
bool rescue_place(struct rescue *r, const char *path, double bytes, char folder[FILE_PATH_ROOM]);

/* Writes the name under which the run in `path` is saved in `folder`: "FOLDER/RUN-rescued", and
 * "FOLDER/RUN-rescued-N" from number 2 on. */
enum sotto_status rescue_name(const char *path, const char *folder, int number,
                              char out[FILE_PATH_ROOM]);

/* Writes the full name of a run's folder, with links followed, so that the functions above find the
 * same places for each spelling of `path`. A folder that does not exist keeps its name. */
void rescue_full(const char *path, char out[FILE_PATH_ROOM]);

/* Writes the folder that contains `path`, which may not exist. */
void rescue_parent(const char *path, char out[FILE_PATH_ROOM]);

/* Writes a file of `bytes` bytes at `path`, tries again while the disk is full, and then writes the
 * file into another folder. `elsewhere`: the file's name there; "": at `path`. Files that are there
 * already stay, but for the file of an earlier call at `elsewhere`, which is replaced and, once
 * `path` can be written, removed. */
typedef enum sotto_status rescue_writer(void *arg, const char *path);
enum sotto_status rescue_file(struct rescue *r, const char *what, const char *path, double bytes,
                              rescue_writer *write, void *arg, char elsewhere[FILE_PATH_ROOM]);

#endif
