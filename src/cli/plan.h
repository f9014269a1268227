/* What a run is about to do, for people. */
#ifndef SOTTO_CLI_PLAN_H
#define SOTTO_CLI_PLAN_H

#include "train/run/run.h"

/* Model, data, workers and length: the first lines of every run. */
void plan_begin(const struct run *run);

/* --dry_run: these and the rest of what was decided, with the memory it would take. */
enum sotto_status plan_print(const struct run *run);

#endif
