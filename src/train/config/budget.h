/* Length of a run: train.steps, tokens, samples and seconds. The run ends with the first round that
 * reaches one of the given limits.
 *
 * Everything that depends on the length of a run (learning rate, last exchange, time left) is in
 * rounds: the rounds that the run is expected to take at the pace so far. All workers must compute
 * the same number, so only values go into it that all workers have agreed on. */
#ifndef SOTTO_TRAIN_CONFIG_BUDGET_H
#define SOTTO_TRAIN_CONFIG_BUDGET_H

#include "train/config/config.h"

/* Rounds of a run of unknown length. */
#define BUDGET_UNKNOWN (INT64_MAX / 4)

struct budget_spent {
    int64_t rounds;          /* agreed on by all workers, as are tokens and samples */
    int64_t tokens, samples; /* in these rounds               */
    int64_t timed;           /* rounds with a known time */
    double seconds;          /* seconds of the `timed` rounds */
};

/* Sets the default number of steps if the run has no limit. */
void budget_resolve(struct train_config *c);

/* Returns the rounds of the whole run. `samples`: expected samples of a round, used before the
 * first round. Exact for methods with a fixed number of micro-batches in a round, and for all
 * methods once a limit is reached. */
int64_t budget_rounds(const struct train_config *c, const struct budget_spent *spent,
                      int64_t samples);

/* Returns the next round after which workers compare clocks, if a limit is in seconds and groups
 * train independently; the first comparison is after round 1. `done`: rounds so far, `rounds`:
 * expected. Comparisons are dense at the beginning, when the pace is uncertain, and before the end:
 * some dozen in a run. */
int64_t budget_compare(int64_t done, int64_t rounds);

#endif
