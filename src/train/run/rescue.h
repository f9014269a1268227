/* Saving in spite of a disk that refuses: a write that fails is tried again for a while, and then
 * made in another folder, so that what was trained is not lost. On rank 0. */
#ifndef SOTTO_TRAIN_RUN_RESCUE_H
#define SOTTO_TRAIN_RUN_RESCUE_H

#include <stdatomic.h>

#include "io/rundir.h"

/* All 0: no write has failed since the last one that succeeded. */
struct rescue {
    double until; /* real time at which the waiting ends; 0: it has not begun */
    double pause; /* seconds before the next try */
    int place;    /* number of the next folder of rescue_place */
};

/* Waits after a write that failed, for the reason in sotto_error(), which it keeps: true: it is to
 * be tried again; false: it has been for minutes, or *stop (optional) is set. `what` was to be
 * saved: "step 300". */
bool rescue_wait(struct rescue *r, const atomic_int *stop, const char *what);

/* The folder of that number, by its full name, where `path` may be saved instead: the parent of
 * `path`, the current folder, HOME, TMPDIR, /var/tmp and /tmp; "" where it is not there. False:
 * there are no more. */
bool rescue_place_at(const char *path, int number, char folder[FILE_PATH_ROOM]);

/* The next folder of these that can be written and has room for so many bytes; false: there
 * is none left. */
bool rescue_place(struct rescue *r, const char *path, double bytes, char folder[FILE_PATH_ROOM]);

/* The name in `folder` of what is saved there instead of the run in `path`: "FOLDER/RUN-rescued",
 * with its number after it from the second on. */
enum sotto_status rescue_name(const char *path, const char *folder, int number,
                              char out[FILE_PATH_ROOM]);

/* The full name of a run's folder, links followed, by which the functions above find the same
 * places however it is spelt ("."); as it is where there is no such folder. */
void rescue_full(const char *path, char out[FILE_PATH_ROOM]);

/* The folder that a file or folder lies in, which may itself be gone. */
void rescue_parent(const char *path, char out[FILE_PATH_ROOM]);

/* Writes a file of so many bytes: at `path`; again, as long as the disk there is too full for it;
 * then under its name in another folder, which is *elsewhere ("": at `path`). A file that is there
 * already, of others or of the time before, is not touched, but for *elsewhere as it was, which
 * goes once `path` can be written. */
typedef enum sotto_status rescue_writer(void *arg, const char *path);
enum sotto_status rescue_file(struct rescue *r, const char *what, const char *path, double bytes,
                              rescue_writer *write, void *arg, char elsewhere[FILE_PATH_ROOM]);

#endif
