/* The server of asynchronous DiLoCo: one long job in a lane of each worker of group 0, which has
 * the slice of the parameters that its worker has. server_loop.c is the job, server_api.c what
 * its worker does with it. */
#ifndef SOTTO_STRATEGY_ASYNC_SERVER_API_H
#define SOTTO_STRATEGY_ASYNC_SERVER_API_H

#include <pthread.h>

#include "strategy/async/messages.h"
#include "strategy/replicate/sparse.h"
#include "strategy/replicate/cosine.h"

/* Whether a group evaluates what it pulls: until its next push, or where it has come to a meeting,
 * it may be at it. */
enum evaluates { EVALUATES_NOT, EVALUATES_NEXT, EVALUATES_NOW };

/* Its worker looks at it by what follows only. */
struct async_service {
    struct replicate *r;
    const struct async_setup *setup;
    struct lane *lane;
    struct comm *up, *down; /* received from, sent through */
    struct comm *within;    /* group 0's servers            */
    int groups;
    bool leads;
    struct async_server server; /* the leader's */
    struct async_outer outer;
    struct buffer g;      /* what was pushed */
    struct sparse sparse; /* prune > 0: the same as it was sent */
    struct cosine_last alike;
    double cosine; /* of the push just applied to the one before it; NAN: not known */
    bool started, ended;
    bool begun;                    /* tasks were given out */
    bool loaded;                   /* ... by the run that this one goes on from */
    bool rings;                    /* until all have come, ... */
    bool stops;                    /* ... and then it ends     */
    bool rests;                    /* until one goes           */
    bool asked;                    /* somebody wants to stop, ... */
    bool late;                     /* ... for good: tasks end as they are, */
    bool cut;                      /* as all who train were told */
    bool left;                     /* a group has, and others may have its steps */
    int came;                      /* groups                   */
    int went;                      /* groups that go on since the last meeting, or the start */
    int64_t met;                   /* pushes at the last meeting, or the start */
    bool *put_off;                 /* (groups) have a push that the last meeting put off */
    bool *told;                    /* (groups) to wait until behind the meeting */
    int64_t *evaluates;            /* (groups) enum evaluates                   */
    bool *among;                   /* (groups) whose message is taken next      */
    int64_t evaluated, saved;      /* multiples of eval_every, of save_every */
    double evaluates_at, saves_at; /* times of the clock; INFINITY: not by time */
    double eval_left, save_left;   /* seconds until then, at service_rest */
    pthread_mutex_t lock;          /* of what follows          */
    struct applied_push *pushed;   /* told to nobody yet       */
    int64_t n, room, first;        /* ... from this one on     */
    int64_t held;                  /* ... and not yet from this one on; -1: all of them */
};

struct async_rules async_rules_of(const struct async_config *config, int groups);

enum sotto_status service_open(struct async_service **out, struct replicate *r,
                               const struct async_setup *setup, struct comm *up, struct comm *down,
                               struct comm *within, struct lane *lane);
/* Lets its job end, if need be: `up` is the worker's, in the line of work of its steps; and waits
 * for that. */
enum sotto_status service_end(struct async_service *service, struct comm *up);
void service_close(struct async_service *service);

/* The parameters that all begin with. */
enum sotto_status service_begin(struct async_service *service, struct view x);

/* Its job, once. */
enum sotto_status service_start(struct async_service *service);

/* While it rests, or before it starts. */
struct view service_x0(const struct async_service *service);
enum sotto_status service_visit(struct async_service *service, struct state_visitor *v);
enum sotto_status service_write(const struct async_service *service, const char *path);
void service_pushed_by(const struct async_service *service, struct push_totals *group);

/* At any time. */
bool service_pushed(struct async_service *service, struct applied_push *out);
/* Of a mark: what is pushed behind it is told once its worker has kept what it has. */
void service_hold(struct async_service *service, bool hold);

/* For the job. The run's step; tells of the push just applied to whoever asks, on another line of
 * work. */
static inline int64_t service_step(const struct async_service *service)
{
    return service->server.steps / service->groups;
}
/* Seconds between saves by time; 0: none are. */
double service_save_seconds(const struct async_service *service);
/* Notes how long it is until things are due; and has them due that much later than now. Between the
 * two the clock stands still for them, in this run or between two. */
void service_rest(struct async_service *service);
void service_go_on(struct async_service *service);
/* What was due before this step is no more. */
void service_count_due(struct async_service *service);
enum sotto_status service_report(struct async_service *service, const struct async_push *p);

/* The job itself. */
enum sotto_status service_serve(void *service);

#endif
