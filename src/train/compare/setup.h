/* What all runs of a comparison have in common, in a line for its title. */
#ifndef SOTTO_TRAIN_COMPARE_SETUP_H
#define SOTTO_TRAIN_COMPARE_SETUP_H

#include "train/compare/jobs.h"

enum { SETUP_ROOM = 512 };

/* "nano, 0.36 million parameters; 4 workers at speeds 1,1,1,0.5; links of 100Mbit/s,5ms": model,
 * workers, speeds, links and micro-batch, as far as no run has its own. Cut to its room. */
enum sotto_status setup_describe(const struct jobs *jobs, const struct results *results,
                                 char out[SETUP_ROOM]);

#endif
