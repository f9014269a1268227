/* Asynchronous DiLoCo (Liu et al. 2024): the messages between groups and server.
 *
 * Each worker of group 0 runs a server in a lane (server.h): the parameters x0 of its slice and
 * the outer optimizer. The first of these servers, the leader, has the ledger of all groups
 * (ledger.h) and sends orders to the others. Worker s of a group sends its displacement
 * g = x0 - x to the server of its slice, and receives x0 and the next task (group.h):
 *
 *     to the server      a displacement, or an empty message; then, to the leader, a group_msg
 *     from the server    a server_msg, followed by x0 if the message is a task
 *
 * With dtype = bf16 the displacement is rounded once, to nearest, ties to even, and added to fp32
 * state; the rounding error is dropped. x0 is always sent in fp32: all groups continue from x0, so
 * rounding errors of x0 would not average out.
 *
 * All groups meet when the leader calls a meeting: the first worker of a group looks for messages
 * between two rounds. The server becomes idle when all groups have reported their arrival, and
 * continues with the first group that begins again. During a meeting the answers to waiting groups
 * are deferred, so that these groups arrive, too. A push that a meeting has postponed is applied
 * before the leader calls another meeting for a save, unless the pushing group stands still:
 * otherwise a run whose saves are due more often than a push takes on the link would make no
 * progress.
 *
 * When the time of a run is over, groups push their tasks as shorter tasks before the meeting, by
 * the same rule as all tasks of unequal length (with dylu, and the last task of each data shard).
 * The remaining steps are tasks of a run that resumes.
 *
 * With a snapshot_hook no group waits for a save: the leader sends a snapshot marker to every group
 * and keeps its own state at that moment. A group keeps its state when the marker arrives, and
 * continues. Messages that the server sent before the marker are part of both states; a push that
 * was not applied before the marker is repeated by the run that resumes. */
#ifndef SOTTO_STRATEGY_ASYNC_MESSAGES_H
#define SOTTO_STRATEGY_ASYNC_MESSAGES_H

#include "strategy/async/async.h"
#include "strategy/async/ledger.h"
#include "strategy/async/outer.h"
#include "strategy/replicate/replicate.h"

enum async_lost { LOST_END, LOST_DROP };

struct async_config {
    int64_t H;
    int outer; /* enum async_outer_rule */
    double outer_lr, outer_momentum;
    int64_t N;
    double c, weight;
    bool staleness, dylu;
    double grace, prune;
    int dtype; /* enum dtype: fp32 or bf16 */
    int lost;  /* enum async_lost          */
    bool cosine;
    char replay[OPTION_ROOM];
};

enum group_msg_kind {
    GROUP_MSG_BEGIN,   /* the group begins, or continues after a meeting */
    GROUP_MSG_PUSH,    /* follows a displacement */
    GROUP_MSG_ARRIVED, /* at the meeting */
    GROUP_MSG_STOP,    /* a worker votes to stop the run */
    GROUP_MSG_LEAVE,   /* the group trains no more, but takes part in meetings */
    GROUP_MSG_END      /* the server is to end, whatever is in flight */
};
struct group_msg { /* from a group's first worker to the leader */
    int64_t kind;
    int64_t rounds;   /* T, 0: not known */
    int64_t truncate; /* STOP: tasks in progress are to be pushed as shorter tasks */
    int64_t step;     /* BEGIN: first step of the run, unless the server has loaded its state */
    int64_t pushes;   /* BEGIN: the group's task is done, and its push is not applied yet */
    struct async_push push;
};

enum server_msg_kind {
    SERVER_MSG_TASK,     /* followed by x0 */
    SERVER_MSG_DEFER,    /* the answer follows after the meeting */
    SERVER_MSG_AGAIN,    /* the push was not applied: to be repeated after the meeting */
    SERVER_MSG_TRUNCATE, /* the task ends with the step in progress */
    SERVER_MSG_MEET,     /* all groups are to meet */
    SERVER_MSG_SNAPSHOT, /* marker: the group is to keep its state */
    SERVER_MSG_IDLE      /* all groups have arrived: the server's state may be read */
};
struct server_msg {
    int64_t kind;
    struct async_task task;
    int64_t step; /* of the run */
    int64_t most; /* no group has made more steps than these */
    int64_t evaluate, stop;
    int64_t applied; /* SNAPSHOT: the group's last push is applied, and its answer is due */
};

#endif
