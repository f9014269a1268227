/* report.json: what was run and the numbers that came out, for people and for `sotto compare`,
 * which reads the numbers. */
#ifndef SOTTO_TRAIN_REPORT_H
#define SOTTO_TRAIN_REPORT_H

#include "base/json.h"
#include "train/run.h"

/* Averages over the workers, and the worst worker's memory. */
struct report {
    struct cost cost;
    size_t memory[MEMORY_CATEGORIES], memory_total;
    double exposed_share; /* of the time          */
    double overlap;       /* of the communication; NaN: there was none */
};
struct report report_of(const struct run *run);

/* Version, method, links, options, state: what was run. */
void report_about(json_t *o, const struct run *run);

enum sotto_status report_write(const struct run *run);

#endif
