/* What helps a training whose loss, gradients or parameters are no numbers any more. */
#ifndef SOTTO_TRAIN_CONFIG_DIVERGED_H
#define SOTTO_TRAIN_CONFIG_DIVERGED_H

#include "train/config/config.h"

/* Appends what to try to the message of SOTTO_ENUMERIC, with the values that hold now; `steps`:
 * done before the failure, by which parameters have moved. Returns the status; other ones stay as
 * they are. */
enum sotto_status diverged_advise(enum sotto_status st, const struct run_config *config,
                                  int64_t steps);

#endif
