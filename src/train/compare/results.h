/* Reports of the runs: one flat JSON object (report.json) per run and seed, read by key. */
#ifndef SOTTO_TRAIN_COMPARE_RESULTS_H
#define SOTTO_TRAIN_COMPARE_RESULTS_H

#include "base/json.h"
#include "train/report/keys.h"

enum { RESULTS_SEEDS = 64 };

struct results {
    const char *const *names; /* (n_runs) names of the runs; owned by the caller */
    int n_runs, n_seeds;
    json_t **reports; /* (n_runs, n_seeds); NULL: the run did not finish */
};

enum sotto_status results_init(struct results *r, const char *const *names, int n_runs,
                               int n_seeds);
void results_free(struct results *r);

/* Reads the report of a finished run. */
enum sotto_status results_read(struct results *r, int run, int seed, const char *path);
void results_drop(struct results *r, int run, int seed);

/* Statistics of a metric over the seeds whose reports contain the metric. */
struct spread {
    int n;                      /* seeds; 0: the other fields mean nothing */
    double mean, std, min, max; /* std: of the sample (n - 1), 0 for n = 1 */
};

struct spread results_spread(const struct results *r, int run, const char *metric);

/* Returns the unit of a metric of report.json. */
enum key_unit metric_unit(const char *metric);

/* Refuses a metric that report.json does not have; the error lists the known metrics. `where`: the
 * option or expectation that names the metric. */
enum sotto_status metric_check(const char *metric, const char *where);

/* Refuses a metric that metrics.jsonl does not have, as metric_check for report.json. */
enum sotto_status curve_check(const char *curve, const char *where);

#endif
