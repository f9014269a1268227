/* Asynchronous DiLoCo (Liu et al. 2024): what the server's side goes by. There are no rounds. A
 * server has x0; each group pulls it, trains some steps, and pushes what it moved,
 * g = x0 as pulled - x, which the server applies at once.
 *
 * The server's side knows nothing of ranks, threads and messages: whoever brings pushes and takes
 * answers says when that is (server.h), and has the vectors, or a slice of them (outer.h). */
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
    int64_t N;             /* delayed: pushes that fill the buffer; 0: one of each group */
    double c;              /* delayed: share of the momentum between two fillings, to 1/N */
    double weight;         /* of a push; 0: 1 where it is delayed, else 1/sqrt(groups)  */
    bool staleness;        /* ... times (1 + s)^-1/2, s = pushes applied since the pull */
    bool dylu;             /* groups train as many steps as they are fast               */
    double grace;          /* seconds that a push waits for others to pull the same x0  */
    int64_t H;             /* steps of a task; with dylu: of the fastest group's        */
    int groups;            /* K; as many data shards                                    */
    int64_t steps;         /* T: of each data shard                                     */
};

/* Refuses what makes no sense. */
enum sotto_status rules_check(const struct async_rules *rules);

/* N, said or not. */
int64_t rules_buffer(const struct async_rules *rules);

/* What a push is multiplied by. */
double rules_weight(const struct async_rules *rules, int64_t staleness);

/* Steps of a group whose speed was measured, in steps a second, where `fastest` is the fastest
 * group's; 0: not all have been measured yet. */
int64_t rules_steps(const struct async_rules *rules, double speed, double fastest);

#endif
