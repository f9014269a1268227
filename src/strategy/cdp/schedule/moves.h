/* What the schedule's files know of each other beyond schedule.h. */
#ifndef SOTTO_STRATEGY_CDP_SCHEDULE_MOVES_H
#define SOTTO_STRATEGY_CDP_SCHEDULE_MOVES_H

#include "strategy/cdp/schedule/schedule.h"

/* The remainder that is not negative: step -1 has its places too. */
int cdp_wrap(int64_t a, int n);

/* pp and mp. A stage has as many places as it has micro-batches under way, and takes them in turn:
 * each is free again when its turn comes. They are a device's slots in pp, and devices in mp. */
int cdp_places(const struct cdp_schedule *s, int stage);
int cdp_stage_of(const struct cdp_schedule *s, int device);

/* The newest version of a stage that there is in front of a time step, and all of its versions that
 * are needed in that time step or later, oldest first: how many. */
int64_t cdp_newest(const struct cdp_schedule *s, int stage, int64_t time);
int cdp_needed(const struct cdp_schedule *s, int stage, int64_t time, int64_t out[2]);

/* The device that has a stage's state in a time step; -1: it is under way (mp). */
int cdp_state_place(const struct cdp_schedule *s, int stage, int64_t time);

/* The messages that a task at `time` is to be preceded by: out of CDP_NEEDS, how many. All of them
 * are there one time step before it or two. */
#define CDP_NEEDS 2
int cdp_needs(const struct cdp_schedule *s, const struct cdp_task *task, int64_t time,
              struct cdp_move *out);

/* zero, mp: a move of the stage's state that is sent, or received, in front of a time step. */
bool cdp_state_sent(const struct cdp_schedule *s, int stage, int64_t time, struct cdp_move *out);
bool cdp_state_received(const struct cdp_schedule *s, int stage, int64_t time,
                        struct cdp_move *out);

/* dp with sync: a hop of the chain of stage j, see chain.c. Whether there is one in front of time
 * step `time`, or `late` hops behind its tasks where it is the last of its step. */
bool cdp_hop(const struct cdp_schedule *s, int stage, int64_t time, int64_t late,
             struct cdp_move *out);
bool cdp_hop_update(const struct cdp_schedule *s, int stage, int64_t time, int64_t late);

#endif
