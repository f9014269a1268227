/* The schedule of cyclic data parallelism, as pure data: who computes what and when, with which
 * version of the parameters, and what travels. (Fournier and Oyallon, Cyclic Data Parallelism.)
 *
 * There are n stages and n micro-batches a training step; all are counted from 0. A time step is a
 * forward or a backward of one stage. Micro-batch i begins 2 time steps behind i - 1, so in steady
 * state every stage is used by one micro-batch in every time step:
 *
 *     time       0  1  2  3  4  5  6 ...    n = 3; F0: forward of stage 0, B0: its backward
 *     micro 0    F0 F1 F2 B2 B1 B0 F0 ...
 *     micro 1          F0 F1 F2 B2 B1 B0 F0 ...
 *     micro 2                F0 F1 F2 B2 B1 B0 F0 ...
 *
 * Time 0 is the first forward of training step `first`. Step t makes theta_{t+1} of a stage behind
 * micro-batch n-1's backward of it. Which version a task uses (cdp_version): v1 theta_{t-1}; v2
 * theta_t where it exists by then (stage >= n-1-i), else theta_{t-1}; sync theta_t, all
 * micro-batches beginning together, or in `pp` as 1F1B, whose pipeline is emptied in every step.
 * theta_{-1} is theta_0.
 *
 * Placements:
 *     single  1 device                      runs all micro-batches in turn
 *     dp      n, device i                   has micro-batch i and a replica of every stage; partial
 *                                           sums of gradients go i -> i+1, n-1 updates
 *     pp      n, device j                   has stage j
 *     mp      n(n+1)/2, n-j of stage j      have one micro-batch at a time each
 *     zero    n, device i                   has micro-batch i; the state of a stage goes where
 *                                           it is used next and is nowhere else
 *
 * How to run it: device d walks through the time steps 0, 1, 2, ... and does cdp_acts(d, time) in
 * the order given. That is all: every message that an act sends is received by an act of the other
 * side, and a device waits for nothing but the messages it receives. Sends are a line of work of
 * their own (a lane), in the order of the acts; they may each wait until the message is received.
 * Whoever sends in its own line instead waits for ever, as the devices of a ring all would. A
 * receive may be made early: the message is there behind time step `after`, in the sender's order,
 * and the acts of coming time steps are known.
 *
 * A round is a training step: it ends, for every device, before time step cdp_end(t). By then all
 * stages are theta_{t+1}, at cdp_home. Micro-batches of step t+1 are under way and, in dp, messages
 * (cdp_pending). Who resumes there makes a new schedule with first = t+1 from theta_{t+1}, theta_t
 * (cdp_keeper) and the optimizer's state; step t+1 is run again from its first micro-batch with the
 * same versions, so the bits are those of a run that went on. */
#ifndef SOTTO_STRATEGY_CDP_SCHEDULE_SCHEDULE_H
#define SOTTO_STRATEGY_CDP_SCHEDULE_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum cdp_placement { CDP_DP, CDP_SINGLE, CDP_PP, CDP_MP, CDP_ZERO };
enum cdp_rule { CDP_V2, CDP_V1, CDP_SYNC };

extern const char *const cdp_placement_names[]; /* as the enum; NULL behind the last */
extern const char *const cdp_rule_names[];

struct cdp_schedule {
    enum cdp_placement placement;
    enum cdp_rule rule;
    int n;         /* stages, and micro-batches a step           */
    int64_t first; /* training step that time 0 begins           */
    int64_t steps; /* the run ends before this step; -1: never   */
    bool together; /* v1, sync: the stages of a step are updated together, behind the last (clipping
                    * by the norm of all of them) */
    bool keep; /* theta_t lives to the end of the round that makes theta_{t+1} even where no task
                * uses it any more, for a checkpoint there; without, cdp_keeper may be -1 */
};

/* Whether there is such a schedule. */
enum sotto_status cdp_check(const struct cdp_schedule *s);

int cdp_devices(const struct cdp_schedule *s);

/* The number of stages that so many devices are for; 0: none. Not for single. */
int cdp_stages(enum cdp_placement placement, int devices);

/* Micro-batches that a device has under way at once. */
int cdp_slots(const struct cdp_schedule *s, int device);

/* A round's end, exclusive: acts of time steps before it make step t, and all of them are needed.
 * The next round goes on from there. */
int64_t cdp_end(const struct cdp_schedule *s, int64_t step);

/* ---- tasks (tasks.c) ---- */

struct cdp_task {
    int64_t step;
    int micro, stage;
    bool backward;
    int64_t version; /* of the parameters: theta_version */
    int slot;        /* of the device, for the micro-batch: from its first task to its last there */
    bool opens;      /* backward: the sum of gradients of this stage and step begins on this device,
                      * from 0; otherwise it adds to what is there or was received (not `add`) */
};

/* The version that micro-batch i of a step uses for a stage, forward and backward. */
int64_t cdp_version(const struct cdp_schedule *s, int64_t step, int micro, int stage);

/* When and where a task is run. */
int64_t cdp_time(const struct cdp_schedule *s, int64_t step, int micro, int stage, bool backward);
int cdp_device(const struct cdp_schedule *s, int64_t step, int micro, int stage);

/* What a micro-batch, or a stage, is at in a time step; false: nothing. A stage has but one task in
 * a time step unless micro-batches begin together. */
bool cdp_micro_task(const struct cdp_schedule *s, int micro, int64_t time, struct cdp_task *out);
bool cdp_stage_task(const struct cdp_schedule *s, int stage, int64_t time, struct cdp_task *out);

/* A device's tasks in a time step, in their order: out of CDP_TASKS(n). Only `single` has several:
 * backwards first, which give up activations before forwards take some. */
#define CDP_TASKS(n) (n)
int cdp_tasks(const struct cdp_schedule *s, int device, int64_t time, struct cdp_task *out);

/* ---- updates and versions (versions.c) ---- */

struct cdp_update {
    int64_t step; /* makes theta_{step+1} from theta_step and the step's sum of gradients */
    int stage;
};

/* Behind which time step, and where, stage `stage` of `step` is updated. */
int64_t cdp_update_time(const struct cdp_schedule *s, int64_t step, int stage);
int cdp_update_device(const struct cdp_schedule *s, int64_t step, int stage);

/* Where the newest version and the optimizer's state of a stage are at the end of the round of
 * `step`, or at time 0 (step first - 1); and where the version before is at the round's end; -1:
 * nowhere, since a run that goes on from here needs it no more (v2's last stage, sync), or it was
 * not kept (keep). */
int cdp_home(const struct cdp_schedule *s, int64_t step, int stage);
int cdp_keeper(const struct cdp_schedule *s, int64_t step, int stage);

/* The versions of a stage that a device holds during a time step, oldest first: how many, 0 to 2.
 * They follow each other, so version v can live in buffer v mod 2. What still travels is not
 * counted: a message that is received early lands in a buffer of its own. It is the same again a
 * training step later; in mp, where devices take turns at updating, n - stage of them later. */
int cdp_holds(const struct cdp_schedule *s, int device, int stage, int64_t time, int64_t out[2]);

/* ---- moves (moves.c) ---- */

enum cdp_what {
    CDP_ACTIVATION, /* before `stage`, of a micro-batch: oracle_edge(slot, stage)          */
    CDP_ACTIVATION_GRADIENT, /* of what is before stage + 1: its oracle_edge_gradient      */
    CDP_SUM,                 /* of gradients of a stage, of the step's micro-batches up to `micro`
                              * (mp: of those on the devices it came through)                       */
    CDP_PARAMETERS, /* of a stage: theta_version                                           */
    CDP_STATE,      /* of a stage: what `parts` names; the sender keeps none of it         */
};

enum cdp_part {
    CDP_PART_NEWEST = 1,    /* theta_version                                                  */
    CDP_PART_OLDER = 2,     /* theta_{version-1}                                              */
    CDP_PART_SUM = 4,       /* of gradients of `step`                                         */
    CDP_PART_WAITING = 8,   /* of gradients of step - 1: complete, not applied yet (together) */
    CDP_PART_OPTIMIZER = 16 /* state                                                          */
};

struct cdp_move {
    enum cdp_what what;
    int stage, micro;
    int64_t step;    /* of the task it is for, or of the sum */
    int64_t version; /* parameters, state */
    unsigned parts;  /* state: of enum cdp_part */
    bool add;        /* sum: the receiver adds it to its own; otherwise its backward adds to it */
    int from, to;
    int64_t after, before; /* there behind time step `after`, needed in front of `before` */
};

/* ---- acts (acts.c) ---- */

enum cdp_do { CDP_SEND, CDP_RECEIVE, CDP_RUN, CDP_UPDATE };

struct cdp_act {
    enum cdp_do what;
    union {
        struct cdp_move move;     /* send, receive */
        struct cdp_task task;     /* run           */
        struct cdp_update update; /* update        */
    };
};

/* All that a device does in a time step, in order: out of CDP_ACTS(n). A message is sent in front
 * of time step after + 1, so that none but those of cdp_pending are under way at a round's end. */
#define CDP_ACTS(n) (6 * (n) + 6)
int cdp_acts(const struct cdp_schedule *s, int device, int64_t time, struct cdp_act *out);

/* Messages that were sent to a device in time steps before `time` and are received in `time` or
 * later, in the order they come: out of CDP_PENDING. Who stops at a round's end receives these. */
#define CDP_PENDING 2
int cdp_pending(const struct cdp_schedule *s, int device, int64_t time, struct cdp_move *out);

#endif
