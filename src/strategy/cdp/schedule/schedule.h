/* The schedule of cyclic data parallelism, as pure data: which device computes which task when,
 * with which version of the parameters, and which messages are sent. (Fournier and Oyallon, Cyclic
 * Data Parallelism.)
 *
 * There are n stages and n micro-batches a training step; all are counted from 0. A time step is a
 * forward or a backward of one stage. Micro-batch i begins 2 time steps after i - 1, so in steady
 * state every stage is used by one micro-batch in every time step:
 *
 *     time       0  1  2  3  4  5  6 ...    n = 3; F0: forward of stage 0, B0: its backward
 *     micro 0    F0 F1 F2 B2 B1 B0 F0 ...
 *     micro 1          F0 F1 F2 B2 B1 B0 F0 ...
 *     micro 2                F0 F1 F2 B2 B1 B0 F0 ...
 *
 * Time 0 is the first forward of training step `first`. Step t makes theta_{t+1} of a stage after
 * the stage's backward of micro-batch n-1. The version that a task uses (cdp_version): v1
 * theta_{t-1}; v2 theta_t if theta_t exists by then (stage >= n-1-i), else theta_{t-1}; sync
 * theta_t, all micro-batches beginning together, or in `pp` as 1F1B, whose pipeline is emptied in
 * every step. theta_{-1} is theta_0.
 *
 * Placements:
 *     single  1 device                      runs all micro-batches in turn
 *     dp      n, device i                   has micro-batch i and a replica of every stage; partial
 *                                           sums of gradients go i -> i+1, n-1 updates
 *     pp      n, device j                   has stage j
 *     mp      n(n+1)/2, n-j of stage j      have one micro-batch at a time each
 *     zero    n, device i                   has micro-batch i; the state of a stage moves to the
 *                                           device of its next use and is on no other
 *
 * Running a schedule: device d walks through the time steps 0, 1, 2, ... and does cdp_acts(d, time)
 * in the order given. Every message that an act sends is received by an act of the receiving
 * device, and a device waits only for messages that it receives. Sends run in a lane of their own,
 * in the order of the acts, and may each block until the message is received. Blocking sends in the
 * line of work that computes would deadlock, as in any ring. A receive may be posted early: the
 * message is there after time step `after`, in the sender's order, and the acts of later time steps
 * are known.
 *
 * A round is a training step: it ends, for every device, before time step cdp_end(t). By then all
 * stages are theta_{t+1}, at cdp_home. In flight are micro-batches of step t+1 and, in dp, messages
 * (cdp_pending). A run that resumes there makes a new schedule with first = t+1 from theta_{t+1},
 * theta_t (cdp_keeper) and the optimizer's state; step t+1 is run again from its first micro-batch
 * with the same versions, so the bits are those of an uninterrupted run. */
#ifndef SOTTO_STRATEGY_CDP_SCHEDULE_SCHEDULE_H
#define SOTTO_STRATEGY_CDP_SCHEDULE_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum cdp_placement { CDP_DP, CDP_SINGLE, CDP_PP, CDP_MP, CDP_ZERO };
enum cdp_rule { CDP_V2, CDP_V1, CDP_SYNC };

extern const char *const cdp_placement_names[]; /* in the order of the enum, ends with NULL */
extern const char *const cdp_rule_names[];

struct cdp_schedule {
    enum cdp_placement placement;
    enum cdp_rule rule;
    int n;         /* number of stages, and of micro-batches a step */
    int64_t first; /* training step that time 0 begins           */
    int64_t steps; /* the run ends before this step; -1: never   */
    /* v1, sync: all stages of a step are updated together, after the last backward (clipping
     * needs the norm of all gradients) */
    bool together;
    /* theta_t stays until the end of the round that makes theta_{t+1}, even if no task uses
     * theta_t any more, for a checkpoint there; otherwise cdp_keeper may be -1 */
    bool keep;
};

/* Checks a schedule. SOTTO_EINVAL if the rule, placement and stages do not fit. */
enum sotto_status cdp_check(const struct cdp_schedule *s);

int cdp_devices(const struct cdp_schedule *s);

/* Returns the number of stages for this number of devices; 0: none fits. Not for single. */
int cdp_stages(enum cdp_placement placement, int devices);

/* Returns the number of micro-batches that a device has in flight at once. */
int cdp_slots(const struct cdp_schedule *s, int device);

/* Returns the end of a round, exclusive: acts of earlier time steps make step t, and all of them
 * are needed. The next round continues there. */
int64_t cdp_end(const struct cdp_schedule *s, int64_t step);

/* ---- tasks (tasks.c) ---- */

struct cdp_task {
    int64_t step;
    int micro, stage;
    bool backward;
    int64_t version; /* of the parameters: theta_version */
    int slot;        /* slot on the device, the same for all of the micro-batch's tasks there */
    /* backward: the device's sum of gradients of this stage and step starts here, from 0;
     * otherwise the task adds to the sum that is there or was received (not `add`) */
    bool opens;
};

/* Returns the version that a micro-batch of a step uses for a stage, forward and backward. */
int64_t cdp_version(const struct cdp_schedule *s, int64_t step, int micro, int stage);

/* Returns the time step, and the device, of a task. */
int64_t cdp_time(const struct cdp_schedule *s, int64_t step, int micro, int stage, bool backward);
int cdp_device(const struct cdp_schedule *s, int64_t step, int micro, int stage);

/* Finds the task of a micro-batch, or of a stage, in a time step. False if there is none. A stage
 * has at most one task in a time step unless micro-batches begin together. */
bool cdp_micro_task(const struct cdp_schedule *s, int micro, int64_t time, struct cdp_task *out);
bool cdp_stage_task(const struct cdp_schedule *s, int stage, int64_t time, struct cdp_task *out);

/* Lists a device's tasks in a time step, in order: out of CDP_TASKS(n). Returns their number. Only
 * `single` has several: backwards first, since they free activations before forwards allocate
 * some. */
#define CDP_TASKS(n) (n)
int cdp_tasks(const struct cdp_schedule *s, int device, int64_t time, struct cdp_task *out);

/* ---- updates and versions (versions.c, state.c, holders.c) ---- */

struct cdp_update {
    int64_t step; /* makes theta_{step+1} from theta_step and the step's sum of gradients */
    int stage;
};

/* Returns the time step after which, and the device on which, a stage is updated in `step`. */
int64_t cdp_update_time(const struct cdp_schedule *s, int64_t step, int stage);
int cdp_update_device(const struct cdp_schedule *s, int64_t step, int stage);

/* cdp_home returns the device that has a stage's newest version and optimizer state at the end of
 * the round of `step`, or at time 0 (step first - 1). cdp_keeper returns the device that has the
 * version before at the end of the round; -1: none, since a resumed run does not need that version
 * (v2's last stage, sync), or it was not kept (`keep`). */
int cdp_home(const struct cdp_schedule *s, int64_t step, int stage);
int cdp_keeper(const struct cdp_schedule *s, int64_t step, int stage);

/* Lists the versions of a stage that a device holds during a time step, oldest first. Returns their
 * number, 0 to 2. The versions are consecutive, so version v can be in buffer v mod 2. Versions in
 * flight are not counted: a message that is received early has a buffer of its own. The same
 * devices hold the same again a training step later; in mp, where devices take turns at updating, n
 * - stage steps later. */
int cdp_holds(const struct cdp_schedule *s, int device, int stage, int64_t time, int64_t out[2]);

/* ---- moves (moves.c) ---- */

enum cdp_what {
    CDP_ACTIVATION,          /* input of `stage`, of a micro-batch: oracle_edge(slot, stage) */
    CDP_ACTIVATION_GRADIENT, /* gradient of the input of stage + 1: oracle_edge_gradient(slot, stage
                                + 1) */
    /* sum of a stage's gradients over the step's micro-batches up to `micro` (mp: over those on
     * the devices that the sum has passed) */
    CDP_SUM,
    CDP_PARAMETERS, /* a stage's theta_version */
    CDP_STATE,      /* the parts of a stage's state that `parts` names; the sender keeps none */
};

enum cdp_part {
    CDP_PART_NEWEST = 1, /* theta_version                                                  */
    CDP_PART_OLDER = 2,  /* theta_{version-1}                                              */
    CDP_PART_SUM = 4,    /* sum of gradients of `step` */
    CDP_PART_WAITING =
        8, /* sum of gradients of step - 1, complete and not applied yet (`together`) */
    CDP_PART_OPTIMIZER = 16 /* the optimizer's state */
};

struct cdp_move {
    enum cdp_what what;
    int stage, micro;
    int64_t step;    /* of the task that needs the message, or of the sum */
    int64_t version; /* of parameters and state */
    unsigned parts;  /* of state: a set of enum cdp_part */
    /* sum: the receiver adds the message to its own sum; otherwise the receiver's backward adds
     * to the message */
    bool add;
    int from, to;
    int64_t after, before; /* arrives after time step `after`, is needed in front of `before` */
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

/* Lists all acts of a device in a time step, in order: out of CDP_ACTS(n). Returns their number. A
 * message is sent in front of time step after + 1, so only those of cdp_pending are in flight at
 * the end of a round. */
#define CDP_ACTS(n) (6 * (n) + 6)
int cdp_acts(const struct cdp_schedule *s, int device, int64_t time, struct cdp_act *out);

/* Lists the messages that were sent to a device in time steps before `time` and are received in
 * `time` or later, in order of arrival: out of CDP_PENDING. Returns their number. A device that
 * stops at the end of a round must receive them. */
#define CDP_PENDING 2
int cdp_pending(const struct cdp_schedule *s, int device, int64_t time, struct cdp_move *out);

#endif
