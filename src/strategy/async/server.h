/* The server of asynchronous DiLoCo: one long job in a lane of each worker of group 0, over the
 * slice of the parameters that the worker owns. server.c has the state, server_loop.c the job, and
 * server_api.c the calls of the worker. */
#ifndef SOTTO_STRATEGY_ASYNC_SERVER_H
#define SOTTO_STRATEGY_ASYNC_SERVER_H

#include <pthread.h>

#include "strategy/async/messages.h"
#include "strategy/replicate/cosine.h"
#include "strategy/replicate/sparse.h"

/* Evaluation of x0 by a group: not due, due with the next pull, or possibly in progress (until the
 * group's next push or arrival at a meeting). */
enum evaluates { EVALUATES_NOT, EVALUATES_NEXT, EVALUATES_NOW };

/* The worker uses the functions below only. Arrays of (groups) and the rest from `ledger` to
 * `applied` are the job's; in servers other than the leader the ledger is empty. */
struct async_server {
    struct replicate *r;
    const struct async_setup *setup;
    struct lane *lane;
    struct comm *from_groups, *to_groups;
    struct comm *within; /* the servers of group 0 */
    int groups;
    bool leads;
    bool started, ended; /* the job */
    bool begun;          /* the first tasks were given out */
    bool loaded;         /* the first tasks were given out by the resumed run */

    struct async_ledger ledger;
    struct async_outer outer;
    struct buffer g;              /* displacement of a push */
    struct sparse sparse;         /* prune > 0: the message with the displacement */
    struct cosine_last last_push; /* cosine = true: displacement of the push before */
    double cosine;                /* of the last push to the push before; NAN: not known */
    bool *accepts;                /* (groups) scratch: groups whose message is received next */
    bool freed_steps;             /* a group has left: other groups may take its steps */

    struct {
        bool called;     /* until all groups have arrived */
        bool ends;       /* the run ends with the meeting */
        bool idle;       /* all groups have arrived, and none has begun again */
        int arrived;     /* groups */
        int resumed;     /* groups that began again since the last meeting, or the start */
        int64_t version; /* pushes at the last meeting, or the start */
        bool *postponed; /* (groups) the last meeting has postponed a push of the group */
        bool *deferred;  /* (groups) SERVER_MSG_DEFER was sent to the group */
    } meeting;

    struct {
        bool voted;     /* a group votes to stop the run */
        bool truncate;  /* tasks are to be pushed as shorter tasks before the run stops */
        bool truncated; /* SERVER_MSG_TRUNCATE was sent to all groups that train */
    } stop;

    struct {
        int64_t *evaluates;            /* (groups) enum evaluates */
        int64_t evaluated, saved;      /* multiples of eval_every and save_every reached so far */
        double evaluates_at, saves_at; /* next times of the clock; INFINITY: not by time */
        double eval_left, save_left;   /* seconds until these times, at server_pause */
    } due;

    struct {
        pthread_mutex_t lock;      /* protects the fields below */
        struct applied_push *push; /* (room) owned; [first, n) are not taken yet */
        int64_t n, room, first;
        int64_t held; /* pushes from this index on may not be taken; -1: all may */
    } applied;
};

struct async_rules async_rules_of(const struct async_config *config, int groups);

/* Opens the server of a worker of group 0; `setup` outlives the server. */
enum sotto_status server_open(struct async_server **out, struct replicate *r,
                              const struct async_setup *setup, struct comm *from_groups,
                              struct comm *to_groups, struct comm *within, struct lane *lane);
/* Has the job end, if the job still waits for messages. `to_server`: the worker's communicator with
 * the server, in the line of work of its steps. */
enum sotto_status server_end(struct async_server *s, struct comm *to_server);
/* Waits for the job's end and frees the server. */
void server_close(struct async_server *s);

/* Sets x0, the parameters that all groups begin with. */
enum sotto_status server_set_x0(struct async_server *s, struct view x);

/* Starts the job, unless the job was started before. */
enum sotto_status server_start(struct async_server *s);

/* These four: while the server is idle, or before the job starts. */
struct view server_x0(const struct async_server *s);
enum sotto_status server_visit(struct async_server *s, struct state_visitor *v);
enum sotto_status server_write_journal(const struct async_server *s, const char *path);
void server_totals(const struct async_server *s, struct push_totals *group);

/* As async_take_push; at any time. */
bool server_take_push(struct async_server *s, struct applied_push *out);
/* Holds back all pushes applied from now on, or releases them: pushes after a snapshot marker may
 * be taken once the process has kept its own state. */
void server_hold_pushes(struct async_server *s, bool hold);

/* The job. */
enum sotto_status server_run(void *server);

/* The functions below are for server_api.c and server_loop.c. server_init opens the state of a
 * server whose first fields are set; server_free frees it with the struct, also after a failure. */
enum sotto_status server_init(struct async_server *s);
void server_free(struct async_server *s);

static inline const struct async_config *server_options(const struct async_server *s)
{
    return replicate_options(s->r);
}

static inline double server_now(const struct async_server *s)
{
    return clock_now(s->lane->clock);
}

/* Returns the run's step. */
static inline int64_t server_step(const struct async_server *s)
{
    return s->ledger.steps / s->groups;
}

/* server_pause notes the times left until evaluations, saves and the end of a period of grace;
 * server_continue sets these times from now on. For them the clock stands still in between, in this
 * run or from one run to the next. */
void server_pause(struct async_server *s);
void server_continue(struct async_server *s);

/* Counts evaluations and saves that were due before the current step as done. */
void server_skip_due(struct async_server *s);

/* Adds the push just applied to the pushes that async_take_push returns. */
enum sotto_status server_report_push(struct async_server *s, const struct async_push *p);

#endif
