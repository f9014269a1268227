/* A metric over a run: what metrics.jsonl says of it, the seeds of the run together. */
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

/* Reads metrics.jsonl of the folders, one a seed. A metric that none of them has is a curve of no
 * points. */
enum sotto_status curve_read(struct curve *c, char (*folders)[FILE_PATH_ROOM], int n_folders,
                             const char *metric);
void curve_free(struct curve *c);

/* What a curve can be drawn over. */
enum axis { AXIS_ROUNDS, AXIS_SAMPLES, AXIS_TIME, AXIS_BYTES, AXES };
double curve_along(const struct curve_point *p, enum axis axis);

/* The last place of a curve on the axis; 0: it is not on it. */
double curve_end(const struct curve *c, enum axis axis);

/* Ends the curve with its first point at `end` on the axis or past it: a round may be long, and a
 * run's last evaluation comes when its round is done. */
void curve_cut(struct curve *c, enum axis axis, double end);

#endif
