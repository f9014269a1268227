/* A group's side of asynchronous DiLoCo: pulls x0 with a task, trains the steps of the task, and
 * pushes g = x0 - x (Liu et al. 2024, algorithm 2).
 *
 * With sharding that computes in parallel with its steps (dpu, acco-wp, acco) the group's side runs
 * in the mesh's lane, so that the group computes while a push or pull is in flight: the first step
 * of a task uses gradients from the end of the task before, as every step uses the gradients of the
 * round before. The number of micro-batches of a round, and the round of a push, are not known in
 * advance. So each worker reads its own data, and the server hands out steps alone: their number
 * and their learning rates.
 *
 * Files: group.c trains, pushes and pulls; group_visit.c saves and loads; group_api.c serves the
 * training loops (async.h); async_diloco.c is the method. */
#ifndef SOTTO_STRATEGY_ASYNC_GROUP_H
#define SOTTO_STRATEGY_ASYNC_GROUP_H

#include "strategy/async/messages.h"
#include "strategy/async/server.h"
#include "strategy/replicate/sparse.h"

enum task_state {
    TASK_FIRST,  /* of the run: known to all groups without a message */
    TASK_TRAINS, /* in progress */
    TASK_PUSHES, /* done, push not applied */
    TASK_WAITS,  /* push applied, answer not received */
    TASK_NONE    /* no task is left for the group */
};

struct async {
    struct replicate base;
    struct async_setup setup;
    struct async_round round; /* the last round, or the round in progress */
    struct comm *to_server, *from_server;
    struct async_server *server; /* group 0's; owned; NULL in other groups */
    bool overlaps;               /* steps are made in a lane, in parallel with the computing */

    struct buffer x0;     /* as pulled */
    struct buffer delta;  /* displacement x0 - x of the last push */
    struct sparse sparse; /* prune > 0: the message of a push */
    struct buffer wire;   /* prune = 0, dtype = bf16: the message of a push */

    int64_t state; /* enum task_state */
    struct async_task task;
    int64_t done;           /* steps of the task */
    bool truncated;         /* the task ends with the step in progress */
    struct async_push push; /* of the task, so far */
    double since;           /* time of the clock at which the round in progress began */
    double waits_since;     /* time of the clock at which the wait for a task began */
    double waited;          /* seconds of the wait before that, without pauses */

    int64_t rounds;        /* plan.rounds; 0: not known */
    int64_t rounds_before; /* `rounds` of the resumed run; 0: a new run */
    int64_t begins;        /* first step of the first tasks, of every data shard */
    int64_t begins_at;     /* micro-batch of that step; not 0 after another method */

    struct server_msg msg; /* the last message of the server */
    bool has_msg;          /* `msg` has arrived and ends this round */
    bool announces;        /* GROUP_MSG_BEGIN is due */
    bool stop_sent;        /* GROUP_MSG_STOP was sent */
    bool truncates;        /* with a vote to stop (async_truncate_tasks) */
    bool server_idle;      /* in a meeting, on group 0's workers: SERVER_MSG_IDLE has arrived */
};

static inline const struct async_config *async_options(const struct async *a)
{
    return replicate_options(&a->base);
}

/* True on the first worker of a group, which exchanges messages with the leader. */
static inline bool async_is_first(const struct async *a)
{
    return a->base.is.mesh->s == 0;
}

/* As in replicate_ops. */
enum sotto_status async_begin(struct replicate *r, const struct plan *plan, bool *meet);
enum sotto_status async_step(struct replicate *r, const struct plan *plan, double scale);
void async_anchor(struct replicate *r);
enum sotto_status async_visit(struct replicate *r, struct state_visitor *v);

/* Ends this worker's tasks and reports the end to the leader (async_drop_group). */
enum sotto_status async_leave(struct async *a);

/* Runs a job (its argument is `a`) where the communicators with the server belong: in the lane of
 * the steps, or on the worker's own line of work. The worker waits for the end of the job. */
enum sotto_status async_run_in_line(struct async *a, lane_job *job);

#endif
