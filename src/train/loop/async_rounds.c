/* The loop of groups that have no rounds in common: each trains at its own pace, evaluates by
 * itself what it has just pulled, and meets the others to save and to end. The run's steps are
 * those of all groups over the number of groups, and move with each push. */
#include <math.h>
#include <stdlib.h>

#include "strategy/async/async.h"
#include "train/checkpoint/snapshot.h"
#include "train/loop/loop.h"
#include "train/report/mailbox.h"

/* A group's evaluation of the parameters that it has pulled, on its way to rank 0. */
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

struct apart {
    struct loop *l;
    struct mailbox *evaluations;
    int marks;     /* on rank 0: taken since the last meeting */
    double origin; /* of rank 0's clock, when training would have begun without pauses */
    struct push_sums sum;
};

/* Training goes on, or begins. */
static enum sotto_status go_on(struct apart *a)
{
    struct trainer *t = a->l->t;
    TRY(loop_continue(a->l));
    a->origin = clock_now(t->worker->clock) - meter_read(&t->meter).seconds;
    return SOTTO_OK;
}

static void report(struct apart *a, const struct applied_push *p)
{
    struct loop *l = a->l;
    struct trainer *t = l->t;
    const double now = p->time - a->origin;
    struct run_step s = {
        .step = p->step,
        .steps = t->rounds,
        .tokens = t->pushed_tokens,
        .samples = t->pushed_samples,
        .round = {.loss = a->sum.steps ? a->sum.loss / (double)a->sum.steps : 0, .grad_norm = -1},
        .lr = optim_lr(&t->run->config.optim, p->step, t->rounds),
        .seconds = now - l->slowest,
        .slowest = now,
        .report = true,
        .pushes = {.n = a->sum.n,
                   .all = p->number + 1,
                   .staleness = a->sum.staleness / (double)a->sum.n,
                   .idle = a->sum.idle > 0 ? a->sum.idle / (a->sum.idle + a->sum.seconds) : 0},
    };
    loop_take_cosine(l, &s);
    if (s.step > loop_tail(l)) {
        t->tail_loss += s.round.loss;
        t->tail_reports++;
    }
    loop_tell(l, &s);
    a->sum = (struct push_sums){0};
}

/* Rank 0 reports the groups' evaluations that have arrived; `wait`: all that were sent before this
 * meeting. */
static enum sotto_status report_evaluations(struct apart *a, bool wait)
{
    struct trainer *t = a->l->t;
    if (wait)
        TRY(mailbox_flush(a->evaluations));
    for (bool found = loop_leads(a->l); found;) {
        struct group_evaluation e;
        TRY(mailbox_take(a->evaluations, MAILBOX_ANY, wait && a->marks < t->mesh.n_r - 1, &e,
                         &found));
        if (found && e.mark)
            a->marks++;
        if (!found || e.mark)
            continue;
        t->evaluation = e.evaluation;
        loop_tell_evaluation(a->l, e.step, e.seconds, &e.evaluation);
    }
    if (wait)
        a->marks = 0;
    return SOTTO_OK;
}

/* Rank 0 reports the groups' pushes since the last look. */
static void report_pushes(struct apart *a)
{
    struct loop *l = a->l;
    struct trainer *t = l->t;
    const int64_t every = t->run->config.train.log_every;
    struct applied_push p;
    while (loop_leads(l) && async_take_push(t->strategy->async, &p)) {
        t->pushed_tokens += p.tokens;
        t->pushed_samples += p.microbatches * t->run->config.train.batch;
        a->sum.n++;
        a->sum.steps += p.steps;
        a->sum.loss += p.loss * (double)p.steps;
        a->sum.staleness += (double)p.staleness;
        a->sum.idle += p.idle;
        a->sum.seconds += p.seconds;
        loop_count_cosine(l, p.cosine);
        if ((every > 0 && p.step / every > l->step / every) || p.step >= t->rounds)
            report(a, &p);
    }
}

/* What this group has just pulled; nobody waits for it. */
static enum sotto_status evaluate_alone(struct apart *a, int64_t step)
{
    struct trainer *t = a->l->t;
    struct group_evaluation e = {.step = step, .seconds = meter_read(&t->meter).seconds};
    if (!t->run->valid || step >= t->rounds) /* all do at the end */
        return SOTTO_OK;
    meter_stop(&t->meter);
    TRY(trainer_evaluate(t, t->mesh.shard, &e.evaluation));
    if (t->mesh.s == 0)
        TRY(mailbox_send(a->evaluations, &e));
    meter_start(&t->meter);
    return SOTTO_OK;
}

static enum sotto_status one_round(struct apart *a, struct round *out)
{
    struct trainer *t = a->l->t;
    const struct run_config *c = &t->run->config;
    struct async *async = t->strategy->async;
    const struct async_round *r = async_last_round(async);
    const int64_t at = async_next_step(async, t->step);
    const double seconds = meter_read(&t->meter).seconds;
    const struct plan plan = {.lr = optim_lr(&c->optim, at, t->rounds),
                              .next_lr = optim_lr(&c->optim, at + 1, t->rounds),
                              .step = t->step,
                              .rounds = t->rounds,
                              .stop = loop_asked(a->l) ||
                                      (c->train.seconds > 0 && seconds >= c->train.seconds),
                              .seconds = seconds};
    async_truncate_tasks(async, c->train.seconds > 0 && !loop_asked(a->l));
    const enum sotto_status st = fail_in(t->strategy->ops->round(t->strategy, &plan, out),
                                         "group %d, step %lld: ", t->mesh.r, (long long)at + 1);
    if (st != SOTTO_OK && async_drop_group(t->strategy, st)) {
        *out = (struct round){.idle = true};
        return SOTTO_OK;
    }
    TRY(st);
    if (!out->idle)
        loop_count(a->l, out);
    if (r->meet || r->step > t->step) /* all meet at one step, though some have seen more */
        t->step = r->step;
    return r->evaluate ? evaluate_alone(a, r->step) : SOTTO_OK;
}

/* What the slowest worker has taken, for all of them. If that is the time that there is, the run is
 * as long as it got. */
static enum sotto_status compare_clocks(struct apart *a, double *slowest)
{
    struct trainer *t = a->l->t;
    const double limit = t->run->config.train.seconds, mine = meter_read(&t->meter).seconds;
    double *all = calloc((size_t)t->worker->size, sizeof *all);
    if (!all)
        return fail(SOTTO_ENOMEM, "no memory for the clocks of %d workers", t->worker->size);
    const enum sotto_status st = comm_gather_bytes(t->worker->world, all, &mine, sizeof mine);
    for (int i = 0; i < t->worker->size; i++)
        *slowest = fmax(*slowest, all[i]);
    free(all);
    if (limit > 0 && *slowest >= limit && t->rounds > t->step) {
        t->rounds = t->step;
        a->l->late = true;
    }
    return st;
}

/* This group has come to the moment of a save; nobody waits for it. */
static enum sotto_status save_alone(struct apart *a, int64_t step)
{
    struct trainer *t = a->l->t;
    meter_stop(&t->meter);
    TRY(snapshots_take(t->snapshots, step));
    meter_start(&t->meter);
    return SOTTO_OK;
}

/* All workers have come, to save; with `stop` they do so at the end. */
static enum sotto_status meet(struct apart *a, bool stop)
{
    struct trainer *t = a->l->t;
    const double begin = clock_now(&clock_real);
    double slowest = 0;
    if (t->mesh.r > 0 && t->mesh.s == 0) /* in the training's time */
        TRY(mailbox_send(a->evaluations, &(struct group_evaluation){.mark = true}));
    loop_pause(a->l);
    /* A checkpoint has the clocks at which all have met. */
    TRY(async_wait_idle(t->strategy->async));
    report_pushes(a);
    TRY(report_evaluations(a, true));
    if (stop)
        TRY(compare_clocks(a, &slowest));
    if (stop)
        return t->step >= t->rounds ? loop_evaluate(a->l, slowest) : SOTTO_OK;
    TRY(snapshots_take(t->snapshots, t->step));
    a->l->saved = t->step;
    TRY(comm_barrier(t->worker->world)); /* the server goes on with the first who does */
    TRY(go_on(a));
    pace_skip(&a->l->pace, clock_now(&clock_real) - begin);
    return SOTTO_OK;
}

static enum sotto_status rounds(struct apart *a)
{
    const struct async_round *r = async_last_round(a->l->t->strategy->async);
    for (bool stop = false; !stop;) {
        struct round out = {0};
        TRY(one_round(a, &out));
        report_pushes(a);
        TRY(report_evaluations(a, false));
        TRY(snapshots_look(a->l->t->snapshots, false));
        if (r->snapshot)
            TRY(save_alone(a, r->step));
        stop = out.stop;
        if (r->meet || stop)
            TRY(meet(a, stop));
    }
    return SOTTO_OK;
}

enum sotto_status loop_async_rounds(struct loop *l, bool stop)
{
    struct trainer *t = l->t;
    struct apart a = {.l = l};
    const double limit = t->run->config.train.seconds;
    if (stop)
        return SOTTO_OK;
    if (t->step >= t->rounds || (limit > 0 && l->slowest >= limit)) {
        t->rounds = t->step < t->rounds ? t->step : t->rounds;
        return SOTTO_OK;
    }
    enum sotto_status st = mailbox_open(&a.evaluations, t->worker, sizeof(struct group_evaluation));
    if (st == SOTTO_OK)
        st = snapshots_open(t);
    if (st == SOTTO_OK)
        st = go_on(&a);
    if (st == SOTTO_OK)
        st = rounds(&a);
    if (st == SOTTO_OK)
        st = snapshots_look(t->snapshots, true);
    st = trainer_fail(t, st); /* before the mailbox's lane is closed, which may wait for others */
    mailbox_close(a.evaluations);
    return st;
}
