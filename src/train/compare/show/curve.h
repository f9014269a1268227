/* A metric over the rounds of a run, from metrics.jsonl, merged over the run's seeds. */
#ifndef SOTTO_TRAIN_COMPARE_SHOW_CURVE_H
#define SOTTO_TRAIN_COMPARE_SHOW_CURVE_H

#include <stdio.h>

#include "base/file.h"

struct curve_point {
    double step;
    double seconds, bytes, samples; /* at that step, mean over the seeds; NaN: not logged */
    double mean, min, max;          /* of the metric over the seeds                       */
};

struct curve {
    struct curve_point *points; /* by rising step */
    int n;
};

/* Reads metrics.jsonl of the folders, one per seed. The curve of a metric that no file contains has
 * 0 points. */
enum sotto_status curve_read(struct curve *c, char (*folders)[FILE_PATH_ROOM], int n_folders,
                             const char *metric);
void curve_free(struct curve *c);

/* The x axis of a curve. */
enum axis { AXIS_ROUNDS, AXIS_SAMPLES, AXIS_TIME, AXIS_BYTES, AXES };
double curve_along(const struct curve_point *p, enum axis axis);

/* Returns the position of the curve's last point on the axis; 0: the axis was not logged. */
double curve_end(const struct curve *c, enum axis axis);

/* Ends the curve with the first point at or past `end` on the axis: a round may be long, and a
 * run's last evaluation follows the last round. */
void curve_cut(struct curve *c, enum axis axis, double end);

#endif
