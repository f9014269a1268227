/* Declarations that the schedule's files share and its callers do not need. Files call each other
 * in one direction: tasks < versions < state < holders, moves < acts. */
#ifndef SOTTO_STRATEGY_CDP_SCHEDULE_MOVES_H
#define SOTTO_STRATEGY_CDP_SCHEDULE_MOVES_H

#include "strategy/cdp/schedule/schedule.h"

/* Returns `a` mod `n`, never negative: step -1 has places too. */
int cdp_wrap(int64_t a, int n);

/* pp and mp: the places of a stage, one for each of its micro-batches in flight, used in turn: a
 * place is free again when its turn returns. Places are slots of the stage's device in pp, and
 * devices in mp. cdp_stage_of returns the stage that a device computes. */
int cdp_places(const struct cdp_schedule *s, int stage);
int cdp_stage_of(const struct cdp_schedule *s, int device);

/* ---- versions (versions.c) ---- */

/* True if theta_{step-1} of a stage is used in `step`. */
bool cdp_uses_older(const struct cdp_schedule *s, int64_t step, int stage);

/* Returns the last micro-batch that uses theta_{t-1} of a stage in step t, if any does. */
int cdp_last_user(const struct cdp_schedule *s, int stage);

/* Returns the newest version in front of a time step, if versions appear once a training step, the
 * first of them after time step `begin`. */
int64_t cdp_newest_since(const struct cdp_schedule *s, int64_t begin, int64_t time);

/* Returns the newest version of a stage that exists in front of a time step. */
int64_t cdp_newest(const struct cdp_schedule *s, int stage, int64_t time);

/* Lists the versions of a stage that are needed in a time step or later, oldest first. Returns
 * their number, 1 or 2. */
int cdp_needed(const struct cdp_schedule *s, int stage, int64_t time, int64_t out[2]);

/* ---- the optimizer's state (state.c) ---- */

/* Returns the device that has a stage's state in a time step; -1: the state is in flight (mp). */
int cdp_state_place(const struct cdp_schedule *s, int stage, int64_t time);

/* zero, mp: true if the stage's state is sent, or received, in front of a time step. */
bool cdp_state_sent(const struct cdp_schedule *s, int stage, int64_t time, struct cdp_move *out);
bool cdp_state_received(const struct cdp_schedule *s, int stage, int64_t time,
                        struct cdp_move *out);

/* ---- other messages (moves.c, chain.c) ---- */

/* Lists the messages that a task at `time` needs: out of CDP_NEEDS. Returns their number. Every
 * message arrives one or two time steps before the task. */
#define CDP_NEEDS 2
int cdp_needs(const struct cdp_schedule *s, const struct cdp_task *task, int64_t time,
              struct cdp_move *out);

/* dp with sync: true if the chain of stage `stage` has a hop, or its update, in front of time step
 * `time` (`late` = 0) or `late` hops after the tasks of `time`, the last time step of a training
 * step. See chain.c. */
bool cdp_hop(const struct cdp_schedule *s, int stage, int64_t time, int64_t late,
             struct cdp_move *out);
bool cdp_hop_update(const struct cdp_schedule *s, int stage, int64_t time, int64_t late);

#endif
