/* Data files of a comparison that do not exist, reported before the first run starts. */
#ifndef SOTTO_TRAIN_COMPARE_MISSING_H
#define SOTTO_TRAIN_COMPARE_MISSING_H

#include "train/compare/jobs.h"

/* Refuses a comparison if a file or folder that a run to be made reads does not exist: of
 * data.train, data.valid, data.tokenizer and train.init. One error names all missing files, and the
 * command experiments/prepare for files in experiments/data/. `again`: runs that are done are made
 * again. */
enum sotto_status missing_refuse(const struct jobs *jobs, bool again);

#endif
