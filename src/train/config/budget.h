/* How long a run lasts: train.steps, tokens, samples and seconds. The run ends with the first round
 * at which one of those that are given is reached.
 *
 * Everything that depends on the length of a run (learning rate, last exchange, what is left) is
 * told in rounds: those that the run is expected to take at the pace so far. All workers must come
 * to the same number, so only what they have agreed on goes into it. */
#ifndef SOTTO_TRAIN_CONFIG_BUDGET_H
#define SOTTO_TRAIN_CONFIG_BUDGET_H

#include "train/config/config.h"

/* Rounds of a run whose length is not known yet. */
#define BUDGET_UNKNOWN (INT64_MAX / 4)

struct budget_spent {
    int64_t rounds;          /* agreed on, with the two below */
    int64_t tokens, samples; /* in these rounds               */
    int64_t timed;           /* rounds ...                    */
    double seconds;          /* ... that took so long         */
};

/* Where nothing limits the run, the default number of steps. */
void budget_resolve(struct train_config *c);

/* Rounds of the whole run. `samples`: of a round, while none is known. Exact for methods with a
 * fixed number of micro-batches in a round, and for all when the budget is reached. */
int64_t budget_rounds(const struct train_config *c, const struct budget_spent *spent,
                      int64_t samples);

/* Where seconds count and groups train apart, workers compare clocks behind round 1 and then behind
 * the round that this gives, `done` of the expected `rounds` behind them: soon while the pace is
 * hardly known, and often enough before the end to meet it; some dozen times in all. */
int64_t budget_compare(int64_t done, int64_t rounds);

#endif
