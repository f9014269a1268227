/* The server's book: who trains on what, who waits for an answer, and what was pushed. Who has the
 * vectors applies each push with the weight that it is given here (outer.h), in the order of the
 * calls.
 *
 *     for (;;) {
 *         ... a push has come, or server_deadline is past
 *         TRY(server_push(s, &push, now, &weight));          outer_push(&outer, g, weight)
 *         for (;;) {
 *             TRY(server_answer(s, now, &task, &found));
 *             if (!found)
 *                 break;
 *             ... x0 and the task go to task.group
 *         }
 *     }
 *
 * A period of grace opens with a push when none is open. Pushes that come until it closes are
 * applied as they come, and all of their groups pull the same x0 when it closes: after `grace`
 * seconds, or as soon as nobody is left to wait for. */
#ifndef SOTTO_STRATEGY_ASYNC_SERVER_H
#define SOTTO_STRATEGY_ASYNC_SERVER_H

#include "strategy/async/data_shards.h"
#include "strategy/async/journal.h"
#include "strategy/async/outer_rules.h"

/* What a group is to do with the x0 that it pulls. */
struct async_task {
    int64_t group;
    struct async_span span; /* no steps: nothing is left for it, it leaves */
    int64_t version;        /* pushes that x0 has had                      */
};

/* What a group tells of a task that it has done. */
struct async_push {
    int64_t group;
    int64_t steps;        /* of it that it has done; 0: all of them    */
    int64_t microbatches; /* of all of its workers                     */
    int64_t tokens, targets;
    double loss;    /* summed over the targets                         */
    double seconds; /* of training                                     */
    double idle;    /* ... that it then waited for the task before it  */
};

enum async_state { ASYNC_TRAINS, ASYNC_WAITS, ASYNC_LEFT };

struct async_group {
    int64_t state; /* enum async_state                           */
    struct async_task task;
    int64_t order; /* its last push: how many there were before it */
    /* for whoever wants to see it: */
    int64_t pushes, steps, staleness; /* all of its pushes'; steps with those before them */
    double seconds, idle;
    double speed; /* steps a second, of its last task; 0: not known */
};

struct async_server {
    struct async_rules rules;
    struct async_shards shards;
    struct async_group *group;   /* (K) owned                                        */
    bool *gone;                  /* (K) owned; of this process: it cannot go on      */
    int64_t version;             /* pushes that were applied                         */
    int64_t steps, microbatches; /* ... and of these: steps, all groups' together    */
    int64_t tokens;
    int64_t ready;                /* groups whose push was before this one are answered */
    double deadline;              /* of the period of grace that is open; INFINITY: none */
    double left;                  /* ... and seconds until then, at server_rest; -1: none */
    struct async_journal journal; /* of all pushes                                    */
    struct async_journal replay;  /* to be followed; empty: none                      */
};

/* Nothing was given out yet. `replay` (optional): a file whose order of pushes is followed as far
 * as it goes. Behind a failure it is freed, too. */
enum sotto_status server_init(struct async_server *s, const struct async_rules *rules,
                              const char *replay);
void server_free(struct async_server *s);

/* All groups begin: with the parameters that everybody has, behind `step` steps that another method
 * has made of each data shard, and these tasks (group[i].task). */
enum sotto_status server_begin(struct async_server *s, int64_t step);

/* The task of a group is done. */
enum sotto_status server_push(struct async_server *s, const struct async_push *push, double now,
                              double *weight);

/* The next group that is to be answered now. */
enum sotto_status server_answer(struct async_server *s, double now, struct async_task *task,
                                bool *found);

/* Whether the push just applied was the last one of the run that is followed, and there are more.
 */
bool server_replay_ended(const struct async_server *s);

/* The group whose push is to be taken next; -1: whichever comes first. */
int64_t server_next(const struct async_server *s);

/* When server_answer is to be asked again though nothing was pushed; INFINITY: then only. */
double server_deadline(const struct async_server *s);

/* A group is gone. What it had under way is given to others, and nobody waits for it. */
void server_leave(struct async_server *s, int64_t group);

/* What a group that left has given back is for those who had found nothing left: they wait. */
void server_recall(struct async_server *s);

/* A run that goes on may be longer, and have something for those who had left: they wait. */
void server_revive(struct async_server *s);

/* Whether a group has a task under way; whether all groups have left. */
bool server_trains(const struct async_server *s);
bool server_over(const struct async_server *s);

/* Pushes since the last pull of a group, the one that it just made aside. */
int64_t server_staleness(const struct async_server *s, int64_t group);

/* Notes how much of an open period of grace is left, to be saved; and begins a period of that
 * length at another time of the clock, in this run or in the one that loads it. */
void server_rest(struct async_server *s, double now);
void server_go_on(struct async_server *s, double now);

/* All of it that must survive, as of server_rest; what was loaded begins with server_go_on. */
enum sotto_status server_visit(struct async_server *s, struct state_visitor *v);

#endif
