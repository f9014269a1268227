/* Advice for a training whose loss, gradients or parameters are not numbers any more. */
#ifndef SOTTO_TRAIN_CONFIG_DIVERGED_H
#define SOTTO_TRAIN_CONFIG_DIVERGED_H

#include "train/config/config.h"

/* Appends advice, with current values, to the message of SOTTO_ENUMERIC. `steps`: steps done before
 * the failure; 0: the learning rate is not to blame. Returns `st`; other statuses are unchanged. */
enum sotto_status diverged_advise(enum sotto_status st, const struct run_config *config,
                                  int64_t steps);

#endif
