/* The server's ledger: the task and the state of every group, and the pushes so far. The owner of
 * the vectors applies each push with the ledger's weight (outer.h), in the order of the calls.
 *
 *     for (;;) {
 *         ... a push arrives, or ledger_deadline has passed
 *         TRY(ledger_push(l, &push, now, &weight));          outer_push(&outer, g, weight)
 *         for (;;) {
 *             TRY(ledger_answer(l, now, &task, &found));
 *             if (!found)
 *                 break;
 *             ... send the task and x0 to task.group
 *         }
 *     }
 *
 * A push opens a period of grace if none is open. Pushes within the period are applied as they
 * arrive, and their groups pull the same x0 at its end: after `grace` seconds, or as soon as no
 * group trains. */
#ifndef SOTTO_STRATEGY_ASYNC_LEDGER_H
#define SOTTO_STRATEGY_ASYNC_LEDGER_H

#include "strategy/async/data_shards.h"
#include "strategy/async/journal.h"
#include "strategy/async/outer_rules.h"

/* The work of a group on a pulled x0. */
struct async_task {
    int64_t group;
    struct async_span span; /* no steps: none are left for the group, which leaves */
    int64_t version;        /* pushes in x0 */
};

/* A group's report of a task. */
struct async_push {
    int64_t group;
    int64_t steps;        /* of the task that are done; 0: all */
    int64_t microbatches; /* of all workers of the group */
    int64_t tokens, targets;
    double loss;    /* summed over the targets */
    double seconds; /* of training */
    double idle;    /* seconds that the group waited for the task */
};

enum async_state { ASYNC_TRAINS, ASYNC_WAITS, ASYNC_LEFT };

struct async_group {
    int64_t state; /* enum async_state */
    struct async_task task;
    int64_t order; /* pushes before its last push */
    /* Sums over the group's pushes, for reports; steps include those of another method before. */
    int64_t pushes, steps, staleness;
    double seconds, idle;
    double speed; /* steps a second in its last task; 0: not known */
};

struct async_ledger {
    struct async_rules rules;
    struct async_shards shards;
    struct async_group *group;    /* (K) owned */
    bool *gone;                   /* (K) owned; the group has failed in this run of the program */
    int64_t version;              /* pushes applied */
    int64_t steps;                /* of all applied pushes, all groups together */
    int64_t microbatches;         /* of all applied pushes */
    int64_t tokens;               /* of all applied pushes */
    int64_t ready;                /* groups whose last push is before this number may be answered */
    double deadline;              /* end of the open period of grace; INFINITY: none is open */
    double left;                  /* seconds until `deadline`, at ledger_pause; -1: none is open */
    struct async_journal journal; /* of all pushes */
    struct async_journal replay;  /* the journal to follow; empty: none */
};

/* Begins with no task given out. `replay` (optional): a journal's file, which is followed up to its
 * end. After a failure the caller calls ledger_free, too. */
enum sotto_status ledger_init(struct async_ledger *l, const struct async_rules *rules,
                              const char *replay);
void ledger_free(struct async_ledger *l);

/* Gives every group its first task (group[i].task). `step`: steps of each data shard that another
 * method has made before. */
enum sotto_status ledger_begin(struct async_ledger *l, int64_t step);

/* Takes the push of a group's task; *weight: the factor of the displacement. */
enum sotto_status ledger_push(struct async_ledger *l, const struct async_push *push, double now,
                              double *weight);

/* Gives the next group its task, if a group may pull now; else *found = false. */
enum sotto_status ledger_answer(struct async_ledger *l, double now, struct async_task *task,
                                bool *found);

/* True if the push just applied was the last push of the replayed run, and more pushes follow. */
bool ledger_replay_ended(const struct async_ledger *l);

/* Returns the group whose push has to be the next; -1: any group. */
int64_t ledger_next(const struct async_ledger *l);

/* Returns the time at which ledger_answer is to be called without a push; INFINITY: none. */
double ledger_deadline(const struct async_ledger *l);

/* Takes a failed group out: its task is given to other groups. */
void ledger_drop_group(struct async_ledger *l, int64_t group);

/* Has groups that left for lack of steps wait for a task again, if a dropped group has returned
 * steps. */
void ledger_recall_groups(struct async_ledger *l);

/* The same in a resumed run, which may be longer. */
void ledger_revive_groups(struct async_ledger *l);

/* True if a group has a task in progress. */
bool ledger_trains(const struct async_ledger *l);

/* True if all groups have left. */
bool ledger_is_over(const struct async_ledger *l);

/* Returns the pushes of other groups since the last pull of a group. */
int64_t ledger_staleness(const struct async_ledger *l, int64_t group);

/* Notes the time left of an open period of grace, for a checkpoint; ledger_continue opens a period
 * of this length at another time of the clock, in this run or in a run that has loaded it. */
void ledger_pause(struct async_ledger *l, double now);
void ledger_continue(struct async_ledger *l, double now);

/* Visits the state as of ledger_pause. After loading the caller calls ledger_continue. */
enum sotto_status ledger_visit(struct async_ledger *l, struct state_visitor *v);

#endif
