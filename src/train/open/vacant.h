/* Refuses to begin a run in a folder without a checkpoint that has files of the user's: training
 * must not replace the files. */
#ifndef SOTTO_TRAIN_OPEN_VACANT_H
#define SOTTO_TRAIN_OPEN_VACANT_H

#include "train/config/config.h"

/* Refuses a folder (train.out) with files of the names that a run publishes, or with the report of
 * a finished run that saved nothing. The tokenizer of data.tokenizer may be there. */
enum sotto_status vacant_check(const struct run_config *config);

#endif
