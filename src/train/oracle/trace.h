/* Activations of a worker's stages over time: trace-WORKER.tsv in the run's folder, a row for every
 * forward and backward of a stage.
 *
 *     worker  seconds   batch  stage  pass      live       peak
 *     0       0.131904  4      2      forward   23101440   23101440
 *
 * seconds: the worker's clock at the end of the pass, since the file was begun; batch: the
 * micro-batch's place in the order of the data; live: bytes of activations in use after the pass,
 * of all micro-batches in flight; peak: the most during the pass. Idle blocks of a pool are not
 * counted. */
#ifndef SOTTO_TRAIN_ORACLE_TRACE_H
#define SOTTO_TRAIN_ORACLE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/file.h"

struct trace {
    FILE *stream; /* NULL: closed */
    char path[FILE_PATH_ROOM];
    int worker;
    double began; /* by the worker's clock */
};

struct trace_row {
    double seconds; /* by the worker's clock */
    int64_t batch;
    int stage;
    bool backward;
    size_t live, peak;
};

/* Replaces the trace of an earlier run. */
enum sotto_status trace_open(struct trace *t, const char *folder, int worker, double now);
void trace_put(struct trace *t, const struct trace_row *row);
void trace_close(struct trace *t); /* warns if rows are missing */

#endif
