/* What both loops over rounds do: begin, pause, continue, save and end. */
#include <math.h>
#include <stdlib.h>

#include "train/loop/loop.h"

bool loop_asked(const struct loop *l)
{
    const struct run *run = l->t->run;
    return run->watch.stop && *run->watch.stop;
}

void loop_count(struct loop *l, const struct round *r)
{
    struct trainer *t = l->t;
    const int batch = t->run->config.train.batch;
    t->tokens += r->whole ? r->tokens : 0;
    t->samples += r->whole ? r->microbatches * batch : 0;
    t->own_tokens += r->whole ? 0 : r->own_tokens;
    t->own_samples += r->whole ? 0 : r->own_microbatches * batch;
}

/* Adds the tokens and samples of all groups, which one worker of a group counts, to the totals;
 * called by all workers. */
static enum sotto_status sum_group_counts(struct trainer *t)
{
    double own[2] = {(double)t->own_tokens, (double)t->own_samples};
    if (t->mesh.s > 0)
        own[0] = own[1] = 0;
    TRY(comm_sum(t->worker->world, own, 2));
    t->tokens += (int64_t)own[0];
    t->samples += (int64_t)own[1];
    t->own_tokens = t->own_samples = 0;
    return SOTTO_OK;
}

/* Sets the time of the next checkpoint that train.save_minutes makes. */
static void schedule_save(struct loop *l)
{
    const double minutes = l->t->run->config.train.save_minutes;
    const bool ever = loop_leads(l) && minutes > 0 && run_keeps(l->t->run);
    l->save_at = ever ? clock_now(&clock_real) + 60 * minutes : INFINITY;
}

enum sotto_status loop_save(struct loop *l)
{
    struct trainer *t = l->t;
    TRY(sum_group_counts(t));
    TRY(fail_in(trainer_save(t), "step %lld: ", (long long)t->step));
    l->saved = t->step;
    schedule_save(l);
    return SOTTO_OK;
}

enum sotto_status loop_continue(struct loop *l)
{
    TRY(meter_go_on(&l->t->meter));
    meter_start(&l->t->meter);
    return SOTTO_OK;
}

void loop_pause(struct loop *l)
{
    struct trainer *t = l->t;
    (void)device_check(&t->dev); /* waits for the device; a failure stays for the next check */
    meter_stop(&t->meter);
    if (t->worker->ops->pause)
        t->worker->ops->pause(t->worker);
}

enum sotto_status loop_open(struct loop *l, struct trainer *t)
{
    *l = (struct loop){.t = t, .tokens = t->tokens, .step = t->step, .began = t->step};
    l->saved = *t->run->checkpoint ? t->step : -1;
    l->clock = calloc((size_t)t->worker->size, sizeof *l->clock);
    if (!l->clock)
        return fail(SOTTO_ENOMEM, "no memory for the clocks of %d workers", t->worker->size);
    return round_totals_open(&l->totals, t->worker);
}

void loop_close(struct loop *l)
{
    round_totals_close(l->totals);
    free(l->clock);
}

enum sotto_status loop_begin(struct loop *l, bool *stop)
{
    struct trainer *t = l->t;
    const struct run_config *c = &t->run->config;
    char key[OPTION_ROOM];
    bool meets;
    double asked = loop_asked(l);
    TRY(comm_sum(t->worker->world, &asked, 1));
    *stop = asked > 0;
    TRY(loop_read_costs(l));
    l->spent = (struct budget_spent){.rounds = t->step,
                                     .tokens = t->tokens,
                                     .samples = t->samples,
                                     .timed = t->step,
                                     .seconds = l->slowest};
    if (c->train.seconds <= 0 || strategy_in_step(&c->strategy)) {
        free(l->clock);
        l->clock = NULL;
    }
    loop_learn(l, NULL);
    if (!best_over(&t->best, &c->train))
        t->best.ends = 0;
    else if (t->step < t->rounds)
        loop_cut(l, t->best.ends > t->step ? t->best.ends : t->step);
    l->compare = t->step > 0 ? budget_compare(t->step, t->rounds) : 1;
    l->warned = t->step > 0;
    loop_warn_rare(l);
    if (loop_leads(l) && t->step == 0)
        run_warn_strategy(t->run);
    if (t->step <= loop_tail(l)) { /* the resumed run is longer than it was */
        t->tail_loss = 0;
        t->tail_reports = 0;
    }
    pace_start(&l->pace, t->step, clock_now(&clock_real),
               strategy_every(&c->strategy, key, &meets));
    schedule_save(l);
    return SOTTO_OK;
}

/* Calls watch.stopped if the run is to be resumed. */
static void report_stopped(const struct loop *l)
{
    const struct run *run = l->t->run;
    if (l->t->step < l->t->rounds && run->watch.stopped && (loop_leads(l) || run->cluster.mpi))
        run->watch.stopped(run->watch.arg);
}

enum sotto_status loop_end(struct loop *l)
{
    struct trainer *t = l->t;
    loop_pause(l);
    meter_forget_lanes(&t->meter);
    TRY(loop_tell_reported(l, true));
    if (t->step != l->saved)
        TRY(loop_save(l));
    TRY(sum_group_counts(t)); /* rank 0 calls this after its checkpoint is complete */
    report_stopped(l);
    return loop_conclude(l);
}
