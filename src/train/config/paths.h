/* Names of files in a configuration. */
#ifndef SOTTO_TRAIN_CONFIG_PATHS_H
#define SOTTO_TRAIN_CONFIG_PATHS_H

#include "train/config/config.h"

/* Makes relative names absolute: the configuration then has the same meaning in any working folder.
 * A name that becomes too long stays relative. */
void paths_complete(struct run_config *config);

#endif
