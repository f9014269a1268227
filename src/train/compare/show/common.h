/* What makes runs of different lengths and speeds comparable: an end that all of them have reached,
 * and the time that each takes to a loss that all of them have reached. */
#ifndef SOTTO_TRAIN_COMPARE_SHOW_COMMON_H
#define SOTTO_TRAIN_COMPARE_SHOW_COMMON_H

#include "train/compare/jobs.h"
#include "train/compare/show/curve.h"

struct common {
    const char *metric; /* whose curves were looked at */
    enum axis axis;     /* that the end lies on        */
    double end;         /* 0: runs are not cut         */
    double target;      /* NaN: there is no loss to wait for   */
    int worst;          /* the run that the target is of; -1: it was given */
};

/* Looks at the curves and adds `common_loss` (at the end) and `time_to_loss` to the reports. */
enum sotto_status common_find(struct common *c, const struct jobs *jobs, struct results *results);

/* Lines about those of them that are columns, for beneath the table. */
void common_print(const struct common *c, const struct results *results, char *const *columns,
                  int n_columns, FILE *out);

#endif
