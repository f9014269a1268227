/* The loop over rounds: rounds.c, or async_rounds.c for asynchronous groups; common.c has the parts
 * of both; progress.c reports; length.c estimates how many rounds the run will take. */
#ifndef SOTTO_TRAIN_LOOP_LOOP_H
#define SOTTO_TRAIN_LOOP_LOOP_H

#include "train/config/budget.h"
#include "train/loop/pace.h"
#include "train/loop/round_totals.h"
#include "train/run/trainer.h"

struct loop {
    struct trainer *t;
    struct round_totals *totals; /* of reported rounds */
    struct cost since;           /* at the last report, a worker's mean ... */
    struct cost own;             /* ... and rank 0's */
    double slowest;              /* worker's seconds then */
    int64_t tokens, step;
    int64_t began;    /* at this step */
    struct pace pace; /* of real time */
    int64_t saved;    /* step of the newest checkpoint, -1: none */
    double save_at;   /* real time of the next one, on rank 0; INFINITY: not by time */
    bool save;        /* all workers know that it is due after this round */
    struct {
        double sum;
        int64_t n;
    } cosine;       /* since the last report */
    double between; /* the last two rounds: seconds of training that are no round's */
    struct budget_spent spent;
    double *clock;   /* (workers) NULL: clocks are told with every round */
    int64_t compare; /* behind this round clocks are compared */
    bool warned;
    bool late;      /* async: the time that there was has ended the run */
    bool abandoned; /* the last round: the run is as it was before it */
    int64_t length; /* the steps that there would have been, where train.patience ends the run:
                     * t->rounds is less and stays; 0: it does not */
};

static inline bool loop_leads(const struct loop *l)
{
    return l->t->worker->rank == 0;
}

/* Opens the loop of a worker that is open; called by all workers, as are most functions below.
 * After a failure the loop is closed as after success. */
enum sotto_status loop_open(struct loop *l, struct trainer *t);
void loop_close(struct loop *l);

/* Reads the costs so far and estimates the run's length. *stop: true on all workers if one of them
 * is asked to stop. */
enum sotto_status loop_begin(struct loop *l, bool *stop);

/* Make rounds until the budget is spent, `stop` is set or a worker is asked to stop: rounds of all
 * workers, or of asynchronous groups. */
enum sotto_status loop_rounds(struct loop *l, bool stop);
enum sotto_status loop_async_rounds(struct loop *l, bool stop);

/* Reports the last rounds, saves, and sums up the run in run->result. */
enum sotto_status loop_end(struct loop *l);

/* True if this worker is asked to stop. */
bool loop_asked(const struct loop *l);

/* Counts the tokens and samples of a round of this worker. */
void loop_count(struct loop *l, const struct round *r);

/* Begins a pause, which is no time of the training, once the device has finished the last round. */
void loop_pause(struct loop *l);

/* Ends a pause: all workers continue, in virtual time each with its lead over the others. */
enum sotto_status loop_continue(struct loop *l);

/* Writes a checkpoint of this step, in a pause. */
enum sotto_status loop_save(struct loop *l);

/* The names in metrics.jsonl, up to a NULL. */
extern const char *const loop_metrics[];

/* The cosine of an exchange or push, NAN where it has none; they are of the next report. */
void loop_count_cosine(struct loop *l, double cosine);
void loop_take_cosine(struct loop *l, struct run_step *s);

/* Rank 0 tells the watcher of a round; a reported one is written to the metrics too. */
void loop_tell(struct loop *l, struct run_step *s);

/* The same for the reported rounds that all workers have done; `wait`: for all that were. */
enum sotto_status loop_tell_reported(struct loop *l, bool wait);

/* The reports after this step make the run's loss: those of its last tenth. */
int64_t loop_tail(const struct loop *l);

/* The loss over the held-out data, which is told; on rank 0 what another has found at a step, with
 * the training's seconds (negative: they are not known). */
enum sotto_status loop_evaluate(struct loop *l, double seconds);
void loop_tell_evaluation(struct loop *l, int64_t step, double seconds, const struct evaluation *e);

/* Everybody's numbers, for the run's report. */
enum sotto_status loop_conclude(struct loop *l);

/* Ends the run at that step, for want of a better held-out loss; learning rates stay those of its
 * whole length. Called by all workers. */
void loop_cut(struct loop *l, int64_t step);

/* What the workers have agreed on is the pace of the run, which tells how long it will be. NULL:
 * nothing new. */
void loop_learn(struct loop *l, const struct agreed *a);

/* Groups that would exchange for the first time behind the end: it is said what becomes of that. */
void loop_warn_rare(struct loop *l);

/* What the run that this one goes on from has cost all workers: reports count from there. */
enum sotto_status loop_read_costs(struct loop *l);

/* Where the clocks of all workers stand. */
enum sotto_status loop_read_clocks(struct loop *l);

/* Groups that train apart may not meet before the time is up. They compare their clocks in few
 * rounds, the same for all; a run that is late ends with the next round, with its last exchange. */
enum sotto_status loop_compare_clocks(struct loop *l);

#endif
