/* What a task needs that is somewhere else, and what passes between devices at its end. */
#ifndef SOTTO_STRATEGY_CDP_MOVES_H
#define SOTTO_STRATEGY_CDP_MOVES_H

#include "strategy/cdp/schedule.h"

/* The messages that a task at `time` is to be preceded by: out of CDP_NEEDS, how many. All of them
 * are there one time step before it or two. */
#define CDP_NEEDS 3
int cdp_needs(const struct cdp_schedule *s, const struct cdp_task *task, int64_t time,
              struct cdp_move *out);

/* dp with sync: a hop of the chain of stage j, see chain.c. Whether there is one in front of time
 * step `time`, or `late` hops behind its tasks where it is the last of its step. */
bool cdp_hop(const struct cdp_schedule *s, int stage, int64_t time, int64_t late,
             struct cdp_move *out);
bool cdp_hop_update(const struct cdp_schedule *s, int stage, int64_t time, int64_t late);

#endif
