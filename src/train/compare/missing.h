/* The data files of a comparison that are not there: found before its first run. */
#ifndef SOTTO_TRAIN_COMPARE_MISSING_H
#define SOTTO_TRAIN_COMPARE_MISSING_H

#include "train/compare/jobs.h"

/* Refuses a comparison of which a wanted run that is not done lacks a file or folder of data.train
 * or data.valid: one error names all of them, and for those in experiments/data/ the command of
 * experiments/prepare that makes them. `again`: runs that are done are wanted, too. */
enum sotto_status missing_refuse(const struct jobs *jobs, bool again);

#endif
