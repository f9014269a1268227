/* The loop over rounds of one worker: rounds.c, or async_rounds.c for asynchronous groups; common.c
 * has the parts of both, progress.c reports, length.c estimates how many rounds the run takes, and
 * results.c sums up. All workers call the functions below, unless noted otherwise. */
#ifndef SOTTO_TRAIN_LOOP_LOOP_H
#define SOTTO_TRAIN_LOOP_LOOP_H

#include "train/config/budget.h"
#include "train/loop/pace.h"
#include "train/loop/round_totals.h"
#include "train/run/run_worker.h"

struct loop {
    struct run *run;
    struct run_worker *w;
    struct training *t; /* of w */
    int64_t rounds;     /* that the whole run is expected to take */
    int64_t length;     /* rounds without the end by train.patience at `rounds`; 0: no such end */
    int64_t began;      /* step at which this process began */
    int64_t saved;      /* step of the newest checkpoint; -1: none */
    bool save;          /* a checkpoint is due after this round, on all workers */
    bool abandoned;     /* the last round: the run is as before the round */
    bool late;          /* asynchronous groups: train.seconds has ended the run */
    double between;     /* seconds of training between the last two rounds */

    struct round_totals *totals; /* of reported rounds */
    struct {                     /* at the last report */
        struct cost mean, own;   /* of all workers, of rank 0 */
        double slowest;          /* the slowest worker's seconds */
        int64_t tokens, step;
    } reported;
    struct { /* of the outer gradients since the last report */
        double sum;
        int64_t n;
    } cosine;
    struct pace pace; /* of real time */

    struct budget_spent spent;
    double *clock;   /* (workers) seconds; NULL: each round brings the workers' mean */
    int64_t compare; /* the workers compare their clocks after this round */
    bool warned;     /* that the groups exchange rarely */
};

static inline bool loop_leads(const struct loop *l)
{
    return l->t->worker->rank == 0;
}

/* Opens the loop of a worker that is open. After a failure loop_close is still to be called. */
enum sotto_status loop_open(struct loop *l, struct run_worker *w);
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

/* True if this worker is asked to stop; of each worker alone. */
bool loop_asked(const struct loop *l);

/* Writes a checkpoint of this step, in a pause. */
enum sotto_status loop_save(struct loop *l);

/* Adds the cosine of an exchange or push to the next report; NAN: there is no cosine. */
void loop_add_cosine(struct loop *l, double cosine);
/* Moves the mean cosine since the last report to `s`. */
void loop_take_cosine(struct loop *l, struct run_step *s);

/* Calls the watcher for a round, and writes the metrics of a round to report; on rank 0. s->cost
 * has the costs since the beginning. */
void loop_report_step(struct loop *l, struct run_step *s);

/* Rank 0 reports the rounds that all workers have done; `wait`: all rounds that were started. */
enum sotto_status loop_report_rounds(struct loop *l, bool wait);

/* Adds the loss of a report to the run's loss if the step is of the run's last tenth; on rank 0. */
void loop_add_tail(struct loop *l, const struct run_step *s);

/* Drops the losses of the run's last tenth if the resumed run is longer than before. */
void loop_forget_tail(struct loop *l);

/* Evaluates and reports the held-out loss, if there are held-out data. `seconds` of training;
 * negative: not known. */
enum sotto_status loop_evaluate(struct loop *l, double seconds);

/* Reports the held-out loss that a group has found at `step`; on rank 0. */
void loop_report_evaluation(struct loop *l, int64_t step, double seconds,
                            const struct evaluation *e);

/* Reads the costs before a resume, from which reports count. */
enum sotto_status loop_read_costs(struct loop *l);

/* Gathers the reports of all workers in run->result, on rank 0. */
enum sotto_status loop_sum_up(struct loop *l);

/* Estimates the run's length by what the workers have agreed on; `a` NULL: nothing new. */
void loop_estimate_length(struct loop *l, const struct agreed *a);

/* Ends the run at `step`, since train.patience is over. Learning rates stay those of the run's
 * whole length. */
void loop_end_at(struct loop *l, int64_t step);

/* Warns once if groups would first exchange after the end of the run. */
void loop_warn_rare(struct loop *l);

/* Gathers the clocks of all workers, for the estimate. */
enum sotto_status loop_read_clocks(struct loop *l);

/* Compares the clocks of groups after few rounds, the same for all workers: groups may not meet
 * before train.seconds are over. A run that is late ends with the next round and its last exchange.
 */
enum sotto_status loop_compare_clocks(struct loop *l);

#endif
