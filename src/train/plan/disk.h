/* What a run will write to its disk, before it trains. */
#ifndef SOTTO_TRAIN_PLAN_DISK_H
#define SOTTO_TRAIN_PLAN_DISK_H

#include "base/machine/available.h"
#include "train/run/run.h"

/* Of rank 0's checkpoints. The published model has the same files by hard links, and takes nothing.
 */
struct disk_needs {
    double checkpoint; /* bytes of one */
    int64_t most;      /* that may be there at once, the one being written with them */
    int64_t there;     /* that are there now, and make room for others */
    double more;       /* bytes that the run may need besides them */
};

enum sotto_status disk_needs(const struct run *run, struct disk_needs *out);

/* Refuses a run whose checkpoints the disk of its folder has no room for, with what helps. */
enum sotto_status disk_check(const struct run *run, const struct disk_needs *needs);

#endif
