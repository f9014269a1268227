/* The rules of the server of asynchronous DiLoCo (Liu et al. 2024). The server has x0. Each group
 * pulls x0, trains some steps, and pushes g = x0 as pulled - x, which the server applies at once.
 *
 * Rules, ledger.h and outer.h know no ranks, threads or messages: the caller passes pushes with
 * their times to the ledger, and applies them to vectors, or slices of vectors, with outer.h. */
#ifndef SOTTO_STRATEGY_ASYNC_OUTER_RULES_H
#define SOTTO_STRATEGY_ASYNC_OUTER_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum async_outer_rule { ASYNC_DELAYED, ASYNC_NESTEROV, ASYNC_SGD };
extern const char *const async_outer_names[];

struct async_rules {
    int outer;             /* enum async_outer_rule                                     */
    double outer_lr;       /* eps                                                       */
    double outer_momentum; /* beta                                                      */
    int64_t N;             /* delayed: pushes that fill the buffer; 0: the number of groups */
    double c;              /* delayed: share of the momentum in a step between, up to 1/N */
    double weight;         /* of a push; 0: 1 with delayed, else 1/sqrt(groups) */
    bool staleness;        /* weights times (1 + s)^-1/2, s = pushes applied since the pull */
    bool dylu;             /* steps of a task in proportion to the group's speed */
    double grace;          /* seconds a finished group waits for others to pull the same x0 */
    int64_t H;             /* steps of a task; with dylu: of the fastest group's task */
    int groups;            /* K; also the number of data shards */
    int64_t steps;         /* T, of each data shard */
};

/* Refuses a c above 1/N. */
enum sotto_status rules_check(const struct async_rules *rules);

/* Returns N, also where N follows from the groups. */
int64_t rules_buffer(const struct async_rules *rules);

/* Returns the factor of a push. */
double rules_weight(const struct async_rules *rules, int64_t staleness);

/* Returns the steps of a task for a group of this speed, in steps a second. `fastest`: the speed of
 * the fastest group; 0: not all groups are measured yet. */
int64_t rules_steps(const struct async_rules *rules, double speed, double fastest);

#endif
