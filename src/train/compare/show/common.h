/* Comparison of runs of different lengths and speeds: the loss at an end that all runs have
 * reached, and the time of each run until a loss that all runs have reached. */
#ifndef SOTTO_TRAIN_COMPARE_SHOW_COMMON_H
#define SOTTO_TRAIN_COMPARE_SHOW_COMMON_H

#include "train/compare/jobs.h"
#include "train/compare/show/curve.h"

struct common {
    const char *metric; /* of the curves: "eval/loss" or "train/loss"                          */
    enum axis axis;     /* unit of `end`                                                       */
    double end;         /* where the shortest run ends; 0: runs are not cut                    */
    double target;      /* loss of time_to_loss; NaN: no loss is known                         */
    int worst;          /* run with the highest minimum, which is the target; -1: set by option */
};

/* Reads the curves and adds `common_loss` (at the end) and `time_to_loss` to the reports. */
enum sotto_status common_find(struct common *c, const struct jobs *jobs, struct results *results);

/* Prints a line for each of common_loss and time_to_loss that is a column of the table. */
void common_print(const struct common *c, const struct results *results, char *const *columns,
                  int n_columns, FILE *out);

#endif
