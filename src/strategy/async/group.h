/* A group's side of asynchronous DiLoCo: it pulls x0 with a task, trains its steps, and pushes
 * g = x0 - x (Liu et al. 2024, algorithm 2).
 *
 * With sharding that computes beside its steps (dpu, acco-wp, acco) all of this is in the mesh's
 * lane, so that a group goes on computing while it pushes and pulls: it steps with the gradients
 * of the end of one task in the next one, as it does with those of the last round. How many
 * micro-batches a round takes is not known before, nor is it when a task is pushed, so its workers
 * go on in data of their own, and the server gives out steps alone: how many, and at what rates.
 *
 * Between files: group.c is what it does,
 * group_visit.c what survives of it, async_diloco.c the method that it is. */
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

struct async_diloco {
    struct replicate base;
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

static inline const struct async_config *async_options(const struct async_diloco *a)
{
    return replicate_options(&a->base);
}

/* The first worker of a group is the one that words are told and tells them. */
static inline bool async_speaks(const struct async_diloco *a)
{
    return a->base.is.mesh->s == 0;
}

/* As in replicate_ops. */
enum sotto_status async_begin(struct replicate *r, const struct plan *plan, bool *rung);
enum sotto_status async_step(struct replicate *r, const struct plan *plan, double scale);
int64_t async_place(struct replicate *r, int64_t step);
bool async_leave(struct replicate *r, enum sotto_status st);
void async_anchor(struct replicate *r);
enum sotto_status async_visit(struct replicate *r, struct state_visitor *v);

/* In a meeting: returns when the server of group 0 rests, so that its state may be looked at. */
enum sotto_status async_await_rest(struct async_diloco *a);

/* Runs a job (a struct async_diloco *) in the line of work that the steps are made in, whose the
 * ways to and from the server are; from the worker's own, while it waits. */
enum sotto_status async_in_line(struct async_diloco *a, lane_job *job);

#endif
