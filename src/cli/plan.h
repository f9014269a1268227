/* The plan of a run, for people. */
#ifndef SOTTO_CLI_PLAN_H
#define SOTTO_CLI_PLAN_H

#include "train/run/run.h"

/* Prints the first lines of every run: model, data, workers and length. */
void plan_begin(const struct run *run);

/* Prints the plan of --dry_run: these lines and the other decisions, with memory and disk. */
enum sotto_status plan_print(const struct run *run);

#endif
