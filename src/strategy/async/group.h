/* A group's side of asynchronous DiLoCo: it pulls x0 with a task, trains its steps, and pushes
 * g = x0 - x (Liu et al. 2024, algorithm 2).
 *
 * With sharding that computes beside its steps (dpu, acco-wp, acco) all of this is in the mesh's
 * lane, so that a group goes on computing while it pushes and pulls: it steps with the gradients
 * of the end of one task in the next one, as it does with those of the last round. How many
 * micro-batches a round takes is not known before, nor is it when a task is pushed, so its workers
 * go on in data of their own, and the server gives out steps alone: how many, and at what rates.
 *
 * Files: group.c trains, pushes and pulls; group_visit.c saves and loads; group_api.c serves the
 * training loops (async.h); async_diloco.c is the method. */
#ifndef SOTTO_STRATEGY_ASYNC_GROUP_H
#define SOTTO_STRATEGY_ASYNC_GROUP_H

#include "strategy/async/messages.h"
#include "strategy/async/server_api.h"
#include "strategy/replicate/sparse.h"

enum task_state {
    TASK_FIRST,  /* everybody knows it without a word   */
    TASK_TRAINS, /* under way                           */
    TASK_PUSHES, /* done, but not applied               */
    TASK_WAITS,  /* applied: the next one is to come    */
    TASK_NONE    /* nothing is left                     */
};

struct async {
    struct replicate base;
    struct async_setup setup;
    struct async_round round; /* the last, or the one under way */
    struct comm *up, *down;
    struct buffer x0;     /* as it was pulled                             */
    struct buffer delta;  /* what the group has moved                     */
    struct sparse sparse; /* prune > 0: what is sent of it                */
    struct buffer wire;   /* else, dtype = bf16: as it is sent            */
    int64_t state;        /* enum task_state                              */
    struct async_task task;
    int64_t done;                  /* steps of the task                          */
    struct async_push push;        /* what is told of it, so far                */
    double since;                  /* the round under way began                  */
    int64_t rounds;                /* plan.rounds of it; 0: not known            */
    struct down_word bell;         /* the word that ends this round, ...         */
    bool rung;                     /* ... if there is one, as this worker knows  */
    bool goes;                     /* is to be said to the server                */
    int64_t begins;                /* the step of all data shards before the first tasks */
    int64_t begins_at;             /* ... and its micro-batch, behind another method     */
    int64_t before;                /* those of the run that it goes on from, 0: none */
    bool stops;                    /* was said                                   */
    bool late;                     /* ... for good                               */
    bool cut;                      /* the task ends with the step under way      */
    double asked;                  /* when the task was asked for, or the group went on */
    double waited;                 /* seconds for it before that, pauses left out       */
    bool rests;                    /* group 0, in a meeting: the server does     */
    bool beside;                   /* steps are made in a lane, beside the computing */
    struct async_service *service; /* group 0's; owned                       */
};

static inline const struct async_config *async_options(const struct async *a)
{
    return replicate_options(&a->base);
}

/* The first worker of a group is the one that words are told and tells them. */
static inline bool async_speaks(const struct async *a)
{
    return a->base.is.mesh->s == 0;
}

/* As in replicate_ops. */
enum sotto_status async_begin(struct replicate *r, const struct plan *plan, bool *meet);
enum sotto_status async_step(struct replicate *r, const struct plan *plan, double scale);
void async_anchor(struct replicate *r);
enum sotto_status async_visit(struct replicate *r, struct state_visitor *v);

/* Takes this worker's group out of the run (async_drop_group); on its first worker. */
enum sotto_status async_leave(struct async *a);

/* Runs a job (a struct async *) in the line of work that the steps are made in, whose the
 * ways to and from the server are; from the worker's own, while it waits. */
enum sotto_status async_in_line(struct async *a, lane_job *job);

#endif
