/* The loop over rounds: when to report, evaluate, save and stop. */
#include "train/loop/loop.h"

#include <math.h>
#include <stdlib.h>

static bool due(int64_t step, int64_t every)
{
    return every > 0 && step % every == 0;
}

bool loop_asked(const struct run *run)
{
    return run->watch.stop && *run->watch.stop;
}

void loop_count(struct trainer *t, const struct round *r)
{
    const int batch = t->run->config.train.batch;
    t->tokens += r->whole ? r->tokens : 0;
    t->samples += r->whole ? r->microbatches * batch : 0;
    t->own_tokens += r->whole ? 0 : r->own_tokens;
    t->own_samples += r->whole ? 0 : r->own_microbatches * batch;
}

/* Adds what the groups have done, each told by one worker; called by all of them. */
static enum sotto_status count_groups(struct trainer *t)
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

/* What is due behind the step that was made. */
static bool evaluates(const struct trainer *t)
{
    return due(t->step, t->run->config.train.eval_every) || t->step >= t->rounds;
}

static bool saves(const struct loop *l)
{
    const struct trainer *t = l->t;
    return l->save || due(t->step, t->run->config.train.save_every) || t->step >= t->rounds;
}

/* By the time since the last checkpoint. */
static void save_later(struct loop *l)
{
    const double minutes = l->t->run->config.train.save_minutes;
    const bool ever = loop_leads(l) && minutes > 0 && run_keeps(l->t->run);
    l->save_at = ever ? clock_now(&clock_real) + 60 * minutes : INFINITY;
}

/* Whoever looks at the parameters behind a round waits for all of its step, in the training's time.
 */
static enum sotto_status settle(const struct loop *l, bool stop)
{
    const struct trainer *t = l->t;
    struct strategy *s = t->strategy;
    if (!s->ops->settle || !(stop || evaluates(t) || saves(l)))
        return SOTTO_OK;
    return fail_in(s->ops->settle(s), "step %lld: ", (long long)t->step);
}

static enum sotto_status one_round(struct loop *l, bool *stop)
{
    struct trainer *t = l->t;
    struct run *run = t->run;
    const struct train_config *c = &run->config.train;
    struct run_step s = {0};
    const bool last = t->step + 1 >= t->rounds;
    const int64_t length = l->length ? l->length : t->rounds;
    s.lr = optim_lr(&run->config.optim, t->step, length);
    s.report = due(t->step + 1, c->log_every) || last;
    struct plan plan = {.lr = s.lr,
                        .next_lr = optim_lr(&run->config.optim, t->step + 1, length),
                        .want_norm = s.report,
                        .step = t->step,
                        .rounds = t->rounds,
                        .stop = loop_asked(run),
                        .save = clock_now(&clock_real) >= l->save_at,
                        .asked = run->watch.stop,
                        .last = last,
                        .seconds = meter_read(&t->meter).seconds,
                        .between = l->between};
    enum sotto_status st = t->strategy->ops->round(t->strategy, &plan, &s.round);
    if (st != SOTTO_OK)
        return fail_in(st, "step %lld: ", (long long)t->step + 1);
    if (s.round.abandoned) {
        *stop = l->abandoned = true;
        return SOTTO_OK;
    }
    t->step++;
    loop_count(t, &s.round);
    *stop = s.round.stop;
    l->save = s.round.save || (t->worker->size == 1 && plan.save);
    loop_learn(l, s.round.agreed);
    if (s.round.agreed && s.round.agreed->pairs > 0)
        loop_count_cosine(l, s.round.agreed->cosine);
    TRY(settle(l, *stop));
    s.step = t->step;
    s.steps = t->rounds > t->step ? t->rounds : t->step; /* it was expected to be shorter */
    s.tokens = t->tokens;
    s.samples = t->samples;
    s.own_tokens = t->own_tokens;
    s.own_samples = t->own_samples;
    s.report |= t->step >= t->rounds;
    s.cost = s.own = meter_read(&t->meter);
    s.slowest = s.cost.seconds;
    s.seconds = s.slowest - plan.seconds;
    if (s.report)
        loop_take_cosine(l, &s);
    if (s.report)
        TRY(round_totals_add(l->totals, &s, t->mesh.s == 0));
    TRY(loop_tell_reported(l, false));
    if (loop_leads(l) && !s.report && t->step > l->step) {
        s.tokens += s.own_tokens * t->mesh.n_r; /* as if all groups were like this one */
        s.samples += s.own_samples * t->mesh.n_r;
        loop_tell(l, &s);
    }
    *stop |= t->worker->size == 1 && loop_asked(run); /* others could not know */
    return SOTTO_OK;
}

enum sotto_status loop_save(struct loop *l)
{
    struct trainer *t = l->t;
    TRY(count_groups(t));
    TRY(fail_in(trainer_save(t), "step %lld: ", (long long)t->step));
    l->saved = t->step;
    save_later(l);
    return SOTTO_OK;
}

/* Training goes on behind a pause, where it is simulated with each worker's lead over the others.
 */
enum sotto_status loop_go_on(struct trainer *t)
{
    TRY(meter_go_on(&t->meter));
    meter_start(&t->meter);
    return SOTTO_OK;
}

/* Ends the training's time for a while, when the device has finished the last round. */
void loop_pause(struct trainer *t)
{
    (void)device_check(&t->dev); /* which keeps a failure for the next check */
    meter_stop(&t->meter);
    if (t->worker->ops->pause)
        t->worker->ops->pause(t->worker);
}

/* Whether the evaluation has found the best so far, which may be kept, or none for so long that the
 * next round is the last. */
static enum sotto_status judge_evaluation(struct loop *l)
{
    struct trainer *t = l->t;
    const struct train_config *c = &t->run->config.train;
    if (!best_wanted(c))
        return SOTTO_OK;
    TRY(best_judge(&t->best, t->worker->world, t->step, t->evaluation.loss));
    l->save |= c->keep_best && t->best.step == t->step;
    if (best_over(&t->best, c) && t->step < t->rounds && !l->length)
        loop_cut(l, t->step + 1);
    return SOTTO_OK;
}

/* What is due between two rounds. */
static enum sotto_status between_rounds(struct loop *l)
{
    struct trainer *t = l->t;
    l->between = 0;
    if (!evaluates(t) && !saves(l))
        return SOTTO_OK;
    loop_pause(t);
    TRY(loop_tell_reported(l, true)); /* lines of the metrics are in the order of steps */
    const double begin = clock_now(&clock_real); /* of what is no step's */
    if (evaluates(t))
        TRY(loop_evaluate(l, -1));
    if (evaluates(t))
        TRY(judge_evaluation(l));
    if (saves(l))
        TRY(loop_save(l));
    TRY(comm_barrier(t->worker->world)); /* nobody trains while rank 0 still writes */
    TRY(loop_go_on(t));
    pace_skip(&l->pace, clock_now(&clock_real) - begin);
    return SOTTO_OK;
}

/* One answer for all workers, as behind each round, and where the budget stands. */
static enum sotto_status begin(struct loop *l, bool *stop)
{
    struct trainer *t = l->t;
    const struct run_config *c = &t->run->config;
    char key[OPTION_ROOM];
    bool meets;
    double asked = loop_asked(t->run);
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
    if (t->step <= loop_tail(l)) { /* a longer run than the one that it goes on from */
        t->tail_loss = 0;
        t->tail_reports = 0;
    }
    pace_start(&l->pace, t->step, clock_now(&clock_real),
               strategy_every(&c->strategy, key, &meets));
    save_later(l);
    return SOTTO_OK;
}

static void tell_stopped(const struct loop *l)
{
    const struct run *run = l->t->run;
    if (l->t->step < l->t->rounds && run->watch.stopped && (loop_leads(l) || run->cluster.mpi))
        run->watch.stopped(run->watch.arg);
}

enum sotto_status loop_end(struct loop *l)
{
    struct trainer *t = l->t;
    loop_pause(t);
    meter_forget_lanes(&t->meter);
    TRY(loop_tell_reported(l, true));
    if (t->step != l->saved)
        TRY(loop_save(l));
    TRY(count_groups(t)); /* which rank 0 comes to when the checkpoint is complete */
    tell_stopped(l);
    return loop_conclude(l);
}

static enum sotto_status go(struct loop *l)
{
    struct trainer *t = l->t;
    bool stop;
    TRY(begin(l, &stop));
    if (t->strategy->async)
        return stop ? loop_end(l) : loop_async(l);
    TRY(loop_go_on(t));
    while (t->step < t->rounds && !stop) {
        TRY(one_round(l, &stop));
        if (l->abandoned) /* what is due here was done before it */
            break;
        TRY(between_rounds(l));
        TRY(loop_compare_clocks(l));
    }
    return loop_end(l);
}

enum sotto_status trainer_loop(struct trainer *t)
{
    struct loop l = {.t = t, .tokens = t->tokens, .step = t->step, .began = t->step};
    l.saved = *t->run->checkpoint ? t->step : -1;
    l.clock = calloc((size_t)t->worker->size, sizeof *l.clock);
    if (!l.clock)
        return fail(SOTTO_ENOMEM, "no memory for the clocks of %d workers", t->worker->size);
    enum sotto_status st = round_totals_open(&l.totals, t->worker);
    if (st == SOTTO_OK)
        st = go(&l);
    st = trainer_fail(t, st); /* before lanes are closed, which may wait for other workers */
    round_totals_close(l.totals);
    free(l.clock);
    return st;
}
