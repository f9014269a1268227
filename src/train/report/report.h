/* report.json: the configuration and the results of a run, for people and for `sotto compare`. */
#ifndef SOTTO_TRAIN_REPORT_REPORT_H
#define SOTTO_TRAIN_REPORT_REPORT_H

#include "base/json.h"
#include "train/run/run.h"

/* Means over the workers, and the worst worker's memory. */
struct report {
    struct cost cost;
    size_t memory[MEMORY_CATEGORIES], memory_total, memory_mean;
    size_t live;          /* bytes: peak of the activations in use */
    double exposed_share; /* of the workers' time: waiting for communication */
    double overlap;  /* share of the time on the wire that no worker waited for; NaN: no time */
    int slowest;     /* worker with the longest micro-batches */
    double slowness; /* a micro-batch's time, of `slowest` over the median worker; 1 if workers
                        do different work */
};
struct report report_of(const struct run *run);

/* Adds the version, method, links, options and state. */
void report_about(json_t *o, const struct run *run);

/* Writes a sentence for people: where the time went. */
void report_sentence(const struct report *r, char *out, size_t room);

enum sotto_status report_write(const struct run *run);

/* The report in a folder; zero if there is none. */
struct report_left {
    bool complete; /* a run that was stopped has a report, too */
    bool trained;  /* not train.oracle = null */
    int64_t steps;
};
struct report_left report_left(const char *folder);

#endif
