/* What runs reported: one flat object of numbers (report.json) a run and seed, read by any key. */
#ifndef SOTTO_TRAIN_COMPARE_RESULTS_H
#define SOTTO_TRAIN_COMPARE_RESULTS_H

#include "base/json.h"

enum { RESULTS_SEEDS = 64 };

struct results {
    const char *const *names; /* of the runs, (n_runs); the caller's */
    int n_runs, n_seeds;
    json_t **reports; /* (n_runs, n_seeds); NULL: did not finish */
};

enum sotto_status results_init(struct results *r, const char *const *names, int n_runs,
                               int n_seeds);
void results_free(struct results *r);

/* Reads the report of a finished run. */
enum sotto_status results_read(struct results *r, int run, int seed, const char *path);
void results_drop(struct results *r, int run, int seed);

/* A metric over the seeds that have it. */
struct spread {
    int n;                      /* 0: none, and the rest means nothing */
    double mean, std, min, max; /* std: of the sample (n - 1), 0 for n = 1 */
};

struct spread results_spread(const struct results *r, int run, const char *metric);

/* How a metric is shown. */
enum metric_unit { METRIC_PLAIN, METRIC_SECONDS, METRIC_BYTES, METRIC_SHARE };
enum metric_unit metric_unit(const char *metric);

/* A fault unless runs report it, with what they do; `where` it stands. */
enum sotto_status metric_check(const char *metric, const char *where);

/* The same for what runs log while they train, of which curves are drawn. */
enum sotto_status curve_check(const char *curve, const char *where);

#endif
