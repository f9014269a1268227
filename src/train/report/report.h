/* report.json: what was run and the numbers that came out, for people and for `sotto compare`,
 * which reads the numbers. */
#ifndef SOTTO_TRAIN_REPORT_REPORT_H
#define SOTTO_TRAIN_REPORT_REPORT_H

#include "base/json.h"
#include "train/run/run.h"

/* Means over the workers, and the worst worker's memory. */
struct report {
    struct cost cost;
    size_t memory[MEMORY_CATEGORIES], memory_total, memory_mean;
    size_t live;          /* activations */
    double exposed_share; /* of the workers' time, that they waited                       */
    double overlap;       /* of the time on the wire, that nobody waited for; NaN: there is none */
    int slowest;          /* worker: the one whose micro-batches take longest             */
    double slowness; /* its micro-batches' time over the median worker's; 1 where workers' work is
                      * not the same */
};
struct report report_of(const struct run *run);

/* Version, method, links, options, state: what was run. */
void report_about(json_t *o, const struct run *run);

/* What the time went to, in a sentence for people. */
void report_sentence(const struct report *r, char *out, size_t room);

enum sotto_status report_write(const struct run *run);

/* What the report in a folder says of its run; nothing, where there is none. */
struct report_left {
    bool complete; /* one that was asked to stop has a report, too */
    bool trained;  /* and not only simulated                       */
    int64_t steps;
};
struct report_left report_left(const char *folder);

#endif
