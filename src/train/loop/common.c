/* The parts of both loops over rounds: begin, save and end. */
#include <stdlib.h>

#include "train/checkpoint/save.h"
#include "train/loop/loop.h"

bool loop_asked(const struct loop *l)
{
    return l->run->watch.stop && *l->run->watch.stop;
}

enum sotto_status loop_save(struct loop *l)
{
    TRY(training_sum_counts(l->t));
    TRY(fail_in(checkpoint_save(l->w), "step %lld: ", (long long)l->t->step));
    l->saved = l->t->step;
    training_schedule_save(l->t);
    return SOTTO_OK;
}

enum sotto_status loop_open(struct loop *l, struct run_worker *w)
{
    const struct training *t = &w->training;
    *l = (struct loop){.run = w->run, .w = w, .t = &w->training, .began = t->step};
    l->reported.tokens = t->count.tokens;
    l->reported.step = t->step;
    l->saved = *w->run->checkpoint ? t->step : -1;
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
    struct training *t = l->t;
    struct best *best = &l->w->totals.best;
    const struct run_config *c = t->config;
    char key[OPTION_ROOM];
    bool meets;
    double asked = loop_asked(l);
    TRY(comm_sum(t->worker->world, &asked, 1));
    *stop = asked > 0;
    TRY(loop_read_costs(l));
    l->spent = (struct budget_spent){.rounds = t->step,
                                     .tokens = t->count.tokens,
                                     .samples = t->count.samples,
                                     .timed = t->step,
                                     .seconds = l->reported.slowest};
    if (c->train.seconds <= 0 || strategy_in_step(&c->strategy)) {
        free(l->clock);
        l->clock = NULL;
    }
    loop_estimate_length(l, NULL);
    if (!best_over(best, &c->train))
        best->ends = 0;
    else if (t->step < l->rounds)
        loop_end_at(l, best->ends > t->step ? best->ends : t->step);
    l->compare = t->step > 0 ? budget_compare(t->step, l->rounds) : 1;
    l->warned = t->step > 0;
    loop_warn_rare(l);
    if (loop_leads(l) && t->step == 0)
        run_warn_strategy(l->run);
    loop_forget_tail(l);
    pace_start(&l->pace, t->step, clock_now(&clock_real),
               strategy_every(&c->strategy, key, &meets));
    training_schedule_save(t);
    return SOTTO_OK;
}

/* Calls watch.stopped if the run is to be resumed. */
static void report_stopped(const struct loop *l)
{
    const struct run *run = l->run;
    if (l->t->step < l->rounds && run->watch.stopped && (loop_leads(l) || run->cluster.mpi))
        run->watch.stopped(run->watch.arg);
}

enum sotto_status loop_end(struct loop *l)
{
    training_pause(l->t);
    meter_forget_lanes(&l->t->meter);
    TRY(loop_report_rounds(l, true));
    if (l->t->step != l->saved)
        TRY(loop_save(l));
    TRY(training_sum_counts(l->t)); /* rank 0 calls this after its checkpoint is complete */
    report_stopped(l);
    return loop_sum_up(l);
}
