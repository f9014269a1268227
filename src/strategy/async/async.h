/* Asynchronous groups, as the training loops see them. Each group makes rounds of its own, pulls
 * parameters from a server and pushes its steps to the server; strategy.async is set then. The
 * run's step is the steps of all groups, divided by the number of groups. All workers meet where
 * async_round.meet is set: to save, or to end. */
#ifndef SOTTO_STRATEGY_ASYNC_ASYNC_H
#define SOTTO_STRATEGY_ASYNC_ASYNC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct async; /* one worker of an asynchronous group; owned by the strategy */
struct state_visitor;
struct strategy;

/* Keeps the server's state for a checkpoint while the groups continue to train. The method calls
 * the hook from a lane of its own; each worker keeps its group's state when async_round.snapshot
 * asks for it. Without a hook, or with `keep` NULL, all workers meet for a checkpoint. */
struct snapshot_hook {
    void *arg;
    bool (*ready)(void *arg); /* rank 0: another checkpoint may begin */
    enum sotto_status (*keep)(void *arg, enum sotto_status (*visit)(void *, struct state_visitor *),
                              void *owner);
};

/* When the server has a group evaluate, and all workers save; copied by strategy_open. */
struct async_setup {
    int64_t eval_every, save_every;    /* steps of the run between two; 0: never */
    double eval_seconds, save_seconds; /* seconds of the server's clock between two, in addition to
                                          those by steps; 0: none */
    const struct snapshot_hook *hook;  /* (optional) read from the first round on; outlives the
                                          strategy */
};

/* The outcome of an asynchronous group's round, in addition to struct round. A round may train
 * nothing (round.idle): the group has no task left and waited until all workers met. */
struct async_round {
    int64_t step;  /* of the run, when this group pulled or where all workers meet */
    bool pulled;   /* the group has new parameters: the steps of its last task were applied */
    bool evaluate; /* the group is to evaluate the pulled parameters, at `step` */
    bool meet;     /* all workers meet after this round: to save at `step` or, with round.stop, to
                      end */
    bool snapshot; /* the worker is to keep its own state for a checkpoint of `step` */
    int64_t most;  /* with meet or snapshot: no group has made more steps than these */
};

/* Returns the outcome of the last round, valid until the next round. The pointer is the same for
 * all rounds. */
const struct async_round *async_last_round(const struct async *a);

/* Returns the step of the learning rate's schedule for the group's next round, out of plan.rounds,
 * where the run is at `step`. */
int64_t async_next_step(const struct async *a, int64_t step);

/* Sets the end of tasks in progress if this worker votes to stop (plan.stop). True: the groups push
 * shorter tasks. False: the tasks are resumed with the run. */
void async_truncate_tasks(struct async *a, bool truncate);

/* A group's task that the server has applied to the parameters. */
struct applied_push {
    int64_t number; /* pushes before this one */
    int64_t group;
    int64_t steps;                /* that the group trained */
    int64_t staleness;            /* pushes of other groups since this group pulled */
    int64_t step;                 /* of the run, after the push */
    int64_t tokens, microbatches; /* of the steps, by the whole group */
    double loss;                  /* mean over the targets of the steps */
    double seconds;               /* of training, for the steps */
    double idle;                  /* seconds that the group waited before the steps */
    double cosine;                /* to the push before; NAN: not measured */
    double time;                  /* of the server's clock, when the push was applied */
};

/* Takes the oldest push that was applied and not taken yet, on rank 0; at any time. Returns false
 * if there is none. */
bool async_take_push(struct async *a, struct applied_push *out);

/* The functions below wait until the server is idle: all workers have met (async_round.meet). */

/* Waits until no message of the server is in flight. All workers call the function in a meeting,
 * before one of them begins the next round. */
enum sotto_status async_wait_idle(struct async *a);

/* Writes the order of the pushes so far as a file for the method's option `replay`; on rank 0. */
enum sotto_status async_write_journal(struct async *a, const char *path);

/* One group's pushes since the run's beginning. */
struct push_totals {
    int64_t pushes, steps;
    int64_t staleness;    /* summed over the pushes */
    double seconds, idle; /* of training; of waiting before it */
};

/* Fills `group[i]` for every group, on rank 0. */
enum sotto_status async_totals(struct async *a, struct push_totals *group);

/* Takes this group out of the run, after a round of it failed with `st`: the other groups continue,
 * and this group's rounds train nothing from now on. Returns true, after a warning, if that is
 * possible; else the run has to end, and the message of `st` is as it was. */
bool async_drop_group(struct strategy *s, enum sotto_status st);

#endif
