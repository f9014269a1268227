/* Saving in spite of a disk that refuses: a write that fails is tried again for a while, and then
 * made in another folder, so that what was trained is not lost. On rank 0. */
#ifndef SOTTO_TRAIN_RESCUE_H
#define SOTTO_TRAIN_RESCUE_H

#include <stdatomic.h>

#include "io/rundir.h"

/* All 0: no write has failed since the last one that succeeded. */
struct rescue {
    double until; /* real time at which the waiting ends; 0: it has not begun */
    double pause; /* seconds before the next try */
    int place;    /* the next folder of rescue_place */
};

/* Waits after a write that failed, for the reason in sotto_error(), which it keeps: true: it is to
 * be tried again; false: it has been for minutes, or *stop (optional) is set. `what` was to be
 * saved: "step 300". */
bool rescue_wait(struct rescue *r, const atomic_int *stop, const char *what);

/* The next folder that can be written and has room for so many bytes: the parent of `path`, the
 * current folder, HOME, TMPDIR, /var/tmp and /tmp, by its full name; false: there is none left. */
bool rescue_place(struct rescue *r, const char *path, double bytes, char folder[FILE_PATH_ROOM]);

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
