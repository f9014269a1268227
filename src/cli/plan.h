/* The plan of a run, for people. */
#ifndef SOTTO_CLI_PLAN_H
#define SOTTO_CLI_PLAN_H

#include "train/run/run.h"

/* Model, data, workers and length: the first lines of every run. */
void plan_begin(const struct run *run);

/* --dry_run: prints these lines and the other decisions, with memory and disk. */
enum sotto_status plan_print(const struct run *run);

#endif
