/* Names of files in a configuration. */
#ifndef SOTTO_TRAIN_CONFIG_PATHS_H
#define SOTTO_TRAIN_CONFIG_PATHS_H

#include "train/config/config.h"

/* Puts the working folder in front of every relative name, so that the configuration means the same
 * from any other. A name that does not fit then stays as it is. */
void paths_complete(struct run_config *config);

#endif
