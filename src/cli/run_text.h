/* The texts of a run, for people: the plan before, and the report after. */
#ifndef SOTTO_CLI_RUN_TEXT_H
#define SOTTO_CLI_RUN_TEXT_H

#include "train/run/run.h"

/* Prints the first lines of every run: model, data, workers and length. */
void plan_begin(const struct run *run);

/* Prints the plan of --dry_run: these lines and the other decisions, with memory and disk. */
enum sotto_status plan_print(const struct run *run);

/* Prints the last lines of a run that has ended well. */
void report_print(const struct run *run);

#endif
