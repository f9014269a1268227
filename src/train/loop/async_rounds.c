/* The loop of asynchronous groups: each group trains at its own pace and evaluates the parameters
 * of its pulls; all groups meet to save and to end. The run's step is the steps of all groups over
 * the number of groups, and moves with each push. */
#include <math.h>
#include <stdlib.h>

#include "train/checkpoint/snapshot.h"
#include "train/loop/loop.h"
#include "train/report/mailbox.h"

/* A group's evaluation of pulled parameters, as sent to rank 0. */
struct group_evaluation {
    int64_t step;   /* of the run */
    double seconds; /* of training, by the group's own clock */
    struct evaluation evaluation;
    bool mark; /* no evaluation: the group has sent all evaluations before a meeting */
};

/* Of the pushes since the last report. */
struct push_sums {
    int64_t n, steps;
    double loss, staleness, idle, seconds;
};

struct async_loop {
    struct loop *l;
    struct mailbox *evaluations;
    int marks; /* on rank 0: taken since the last meeting */
    struct push_sums sum;
};

static void report_sums(struct async_loop *a, const struct applied_push *p)
{
    struct loop *l = a->l;
    const struct push_sums *sum = &a->sum;
    const struct run_totals *totals = &l->w->totals;
    const double now = p->time - l->t->origin;
    struct run_step s = {
        .step = p->step,
        .steps = l->rounds,
        .tokens = totals->pushed_tokens,
        .samples = totals->pushed_samples,
        .round = {.loss = sum->steps ? sum->loss / (double)sum->steps : 0, .grad_norm = -1},
        .lr = optim_lr(&l->t->config->optim, p->step, l->rounds),
        .seconds = now - l->reported.slowest,
        .slowest = now,
        .report = true,
        .pushes = {.n = sum->n,
                   .all = p->number + 1,
                   .staleness = sum->staleness / (double)sum->n,
                   .idle = sum->idle > 0 ? sum->idle / (sum->idle + sum->seconds) : 0},
    };
    loop_take_cosine(l, &s);
    loop_add_tail(l, &s);
    loop_report_step(l, &s);
    a->sum = (struct push_sums){0};
}

/* Rank 0 reports the groups' pushes since the last look. */
static void report_pushes(struct async_loop *a)
{
    struct loop *l = a->l;
    struct run_totals *totals = &l->w->totals;
    const struct train_config *c = &l->t->config->train;
    const int64_t every = c->log_every;
    struct applied_push p;
    while (loop_leads(l) && async_take_push(l->t->strategy->async, &p)) {
        totals->pushed_tokens += p.tokens;
        totals->pushed_samples += p.microbatches * c->batch;
        a->sum.n++;
        a->sum.steps += p.steps;
        a->sum.loss += p.loss * (double)p.steps;
        a->sum.staleness += (double)p.staleness;
        a->sum.idle += p.idle;
        a->sum.seconds += p.seconds;
        loop_add_cosine(l, p.cosine);
        if ((every > 0 && p.step / every > l->reported.step / every) || p.step >= l->rounds)
            report_sums(a, &p);
    }
}

/* Rank 0 reports the groups' evaluations that have arrived; `wait`: all evaluations before this
 * meeting. */
static enum sotto_status report_evaluations(struct async_loop *a, bool wait)
{
    const int groups = a->l->t->mesh.n_r;
    if (wait)
        TRY(mailbox_flush(a->evaluations));
    for (bool found = loop_leads(a->l); found;) {
        struct group_evaluation e;
        const bool more = wait && a->marks < groups - 1;
        TRY(mailbox_take(a->evaluations, MAILBOX_ANY, more, &e, &found));
        if (found && e.mark)
            a->marks++;
        if (!found || e.mark)
            continue;
        a->l->w->totals.evaluation = e.evaluation;
        loop_report_evaluation(a->l, e.step, e.seconds, &e.evaluation);
    }
    if (wait)
        a->marks = 0;
    return SOTTO_OK;
}

/* Evaluates the parameters of this group's pull; the other groups continue. */
static enum sotto_status evaluate_group(struct async_loop *a, int64_t step)
{
    struct loop *l = a->l;
    struct training *t = l->t;
    struct group_evaluation e = {.step = step, .seconds = meter_read(&t->meter).seconds};
    if (!l->run->valid || step >= l->rounds) /* all groups evaluate at the end */
        return SOTTO_OK;
    meter_stop(&t->meter);
    TRY(run_worker_evaluate(l->w, t->mesh.shard, &e.evaluation));
    if (t->mesh.s == 0)
        TRY(mailbox_send(a->evaluations, &e));
    meter_start(&t->meter);
    return SOTTO_OK;
}

/* Keeps this group's state for a checkpoint of `step`; the other groups continue. */
static enum sotto_status save_group(struct async_loop *a, int64_t step)
{
    meter_stop(&a->l->t->meter);
    TRY(snapshots_take(a->l->w->snapshots, step));
    meter_start(&a->l->t->meter);
    return SOTTO_OK;
}

static enum sotto_status make_group_round(struct async_loop *a)
{
    struct loop *l = a->l;
    struct training *t = l->t;
    struct async *async = t->strategy->async;
    const struct async_round *r = async_last_round(async);
    const double limit = t->config->train.seconds;
    const bool asked = loop_asked(l), late = limit > 0 && meter_read(&t->meter).seconds >= limit;
    const struct training_wish wish = {
        .lr = -1, .rounds = l->rounds, .length = l->rounds, .stop = asked || late};
    async_truncate_tasks(async, limit > 0 && !asked);
    TRY(training_round(t, &wish));
    return r->evaluate ? evaluate_group(a, r->step) : SOTTO_OK;
}

/* Finds the slowest worker's seconds. The run ends at the present step if train.seconds are over.
 */
static enum sotto_status compare_at_end(struct async_loop *a, double *slowest)
{
    struct loop *l = a->l;
    struct training *t = l->t;
    const double limit = t->config->train.seconds, mine = meter_read(&t->meter).seconds;
    double *all = calloc((size_t)t->worker->size, sizeof *all);
    if (!all)
        return fail(SOTTO_ENOMEM, "no memory for the clocks of %d workers", t->worker->size);
    const enum sotto_status st = comm_gather_bytes(t->worker->world, all, &mine, sizeof mine);
    for (int i = 0; i < t->worker->size; i++)
        *slowest = fmax(*slowest, all[i]);
    free(all);
    if (limit > 0 && *slowest >= limit && l->rounds > t->step) {
        l->rounds = t->step;
        l->late = true;
    }
    return st;
}

/* A meeting of all workers: to save or, with `stop`, to end. */
static enum sotto_status hold_meeting(struct async_loop *a, bool stop)
{
    struct loop *l = a->l;
    struct training *t = l->t;
    const double begin = clock_now(&clock_real);
    double slowest = 0;
    if (t->mesh.r > 0 && t->mesh.s == 0) /* before the pause */
        TRY(mailbox_send(a->evaluations, &(struct group_evaluation){.mark = true}));
    TRY(training_begin_meeting(t));
    report_pushes(a);
    TRY(report_evaluations(a, true));
    if (stop) {
        TRY(compare_at_end(a, &slowest));
        return t->step >= l->rounds ? loop_evaluate(l, slowest) : SOTTO_OK;
    }
    TRY(snapshots_take(l->w->snapshots, t->step));
    l->saved = t->step;
    TRY(training_end_meeting(t));
    pace_skip(&l->pace, clock_now(&clock_real) - begin);
    return SOTTO_OK;
}

static enum sotto_status make_group_rounds(struct async_loop *a)
{
    const struct training *t = a->l->t;
    const struct async_round *r = async_last_round(t->strategy->async);
    for (bool stop = false; !stop;) {
        TRY(make_group_round(a));
        report_pushes(a);
        TRY(report_evaluations(a, false));
        TRY(snapshots_look(a->l->w->snapshots, false));
        if (r->snapshot)
            TRY(save_group(a, r->step));
        stop = t->round.stop;
        if (r->meet || stop)
            TRY(hold_meeting(a, stop));
    }
    return SOTTO_OK;
}

enum sotto_status loop_async_rounds(struct loop *l, bool stop)
{
    const struct training *t = l->t;
    struct async_loop a = {.l = l};
    const double limit = t->config->train.seconds;
    if (stop)
        return SOTTO_OK;
    if (t->step >= l->rounds || (limit > 0 && l->reported.slowest >= limit)) {
        l->rounds = t->step < l->rounds ? t->step : l->rounds;
        return SOTTO_OK;
    }
    enum sotto_status st = mailbox_open(&a.evaluations, t->worker, sizeof(struct group_evaluation));
    if (st == SOTTO_OK)
        st = snapshots_open(l->w);
    if (st == SOTTO_OK)
        st = training_continue(l->t);
    if (st == SOTTO_OK)
        st = make_group_rounds(&a);
    if (st == SOTTO_OK)
        st = snapshots_look(l->w->snapshots, true);
    st = run_worker_fail(l->w, st); /* before the mailbox's lane, which may wait, is closed */
    mailbox_close(a.evaluations);
    return st;
}
