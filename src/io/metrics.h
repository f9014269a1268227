/* Numbers over steps: metrics.jsonl, one object a line, and the same as TensorBoard events.
 *
 *     metrics_begin(&m, step);
 *     metrics_put(&m, "train/loss", loss);
 *     st = metrics_end(&m);                  {"step": 12, "train/loss": 3.25}
 *
 * A line is written by one call and taken back if the disk had room for half of it, so the file
 * consists of whole lines. Nothing is allocated once the longest step has been seen. */
#ifndef SOTTO_IO_METRICS_H
#define SOTTO_IO_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "io/tfevents.h"

struct metrics {
    int file; /* metrics.jsonl, -1: closed */
    char path[FILE_PATH_ROOM];
    struct tfevents events;
    char *line;
    size_t used, room;
    int64_t step;
    bool no_memory; /* no memory for a value of this step */
    bool silent;    /* the last write failed and was reported */
};

/* Opens the files in `folder` and drops the lines of an earlier run for steps after `resume_step`
 * (-1: all lines): a resumed run leaves the same steps as an uninterrupted run. */
enum sotto_status metrics_open(struct metrics *m, const char *folder, int64_t resume_step);
void metrics_close(struct metrics *m);

/* Copies the lines of `from`/metrics.jsonl up to that step to the folder `to`, unless that has
 * metrics, or `from` has none. */
enum sotto_status metrics_copy(const char *from, const char *to, int64_t step);

void metrics_begin(struct metrics *m, int64_t step);
void metrics_put(struct metrics *m, const char *name, double value); /* NaN and infinities: null */
void metrics_put_int(struct metrics *m, const char *name, int64_t value);

/* Writes the line and the event. A failure is returned once, at its first step, and the caller may
 * continue training: later steps try again, and a failure after a success is reported again. */
enum sotto_status metrics_end(struct metrics *m);

#endif
