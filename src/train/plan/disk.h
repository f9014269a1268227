/* Disk space for the checkpoints of a run, estimated before the run trains. */
#ifndef SOTTO_TRAIN_PLAN_DISK_H
#define SOTTO_TRAIN_PLAN_DISK_H

#include "base/machine/available.h"
#include "train/run/run.h"

/* Needs of rank 0's checkpoints. The published model is a hard link to the same files and needs
 * none. */
struct disk_needs {
    double checkpoint; /* bytes of a checkpoint */
    int64_t most;      /* checkpoints at once, including a new one in writing */
    int64_t present;   /* checkpoints on the disk now; new ones replace these */
    double more;       /* bytes needed in addition to checkpoints that exist */
};

enum sotto_status disk_needs(const struct run *run, struct disk_needs *out);

/* Refuses a run whose checkpoints do not fit the disk of its folder. The message suggests
 * remedies. */
enum sotto_status disk_check(const struct run *run, const struct disk_needs *needs);

#endif
