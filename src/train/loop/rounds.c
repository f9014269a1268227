/* The loop over rounds of all workers: when to report, evaluate, save and stop. */
#include "train/loop/loop.h"

/* True if an evaluation is due after the round that was made. */
static bool evaluation_is_due(const struct loop *l)
{
    return training_eval_due(l->t) || l->t->step >= l->rounds;
}

/* True if a checkpoint is due after the round that was made. */
static bool checkpoint_is_due(const struct loop *l)
{
    const int64_t step = l->t->step;
    return l->save || training_is_due(step, l->t->config->train.save_every) || step >= l->rounds;
}

/* Ends the round's step, in the training's time, if the parameters are read after the round. */
static enum sotto_status settle_if_read(struct loop *l, bool stop)
{
    if (!(stop || evaluation_is_due(l) || checkpoint_is_due(l)))
        return SOTTO_OK;
    return fail_in(training_settle(l->t), "step %lld: ", (long long)l->t->step);
}

/* The numbers of the round that was made, of this worker alone. */
static struct run_step step_of(const struct loop *l)
{
    const struct training *t = l->t;
    const struct training_count *c = &t->count;
    struct run_step s = {
        .step = t->step,
        .steps = l->rounds > t->step ? l->rounds : t->step, /* a shorter run was expected */
        .tokens = c->tokens,
        .samples = c->samples,
        .own_tokens = c->own_tokens,
        .own_samples = c->own_samples,
        .round = t->round,
        .lr = t->plan.lr,
        .report = t->plan.want_norm || t->step >= l->rounds,
        .own = meter_read(&t->meter),
    };
    s.cost = s.own;
    s.slowest = s.cost.seconds;
    s.seconds = s.slowest - t->plan.seconds;
    return s;
}

/* Reports the round: at once what rank 0 knows or, of a reported round, once all have done it. */
static enum sotto_status report_round(struct loop *l)
{
    const struct training *t = l->t;
    struct run_step s = step_of(l);
    if (s.report)
        loop_take_cosine(l, &s);
    if (s.report)
        TRY(round_totals_add(l->totals, &s, t->mesh.s == 0));
    TRY(loop_report_rounds(l, false));
    if (!loop_leads(l) || s.report || t->step <= l->reported.step)
        return SOTTO_OK;
    s.tokens += s.own_tokens * t->mesh.n_r; /* as if all groups were like this one */
    s.samples += s.own_samples * t->mesh.n_r;
    loop_report_step(l, &s);
    return SOTTO_OK;
}

static enum sotto_status make_round(struct loop *l, bool *stop)
{
    struct training *t = l->t;
    const struct round *r = &t->round;
    const struct training_wish wish = {.lr = -1,
                                       .rounds = l->rounds,
                                       .length = l->length ? l->length : l->rounds,
                                       .stop = loop_asked(l),
                                       .between = l->between};
    TRY(training_round(t, &wish));
    l->abandoned = r->abandoned;
    *stop = r->stop || r->abandoned;
    if (l->abandoned)
        return SOTTO_OK;
    l->save = training_save_due(t);
    loop_estimate_length(l, r->agreed);
    if (r->agreed && r->agreed->pairs > 0)
        loop_add_cosine(l, r->agreed->cosine);
    TRY(settle_if_read(l, *stop));
    TRY(report_round(l));
    *stop |= t->worker->size == 1 && loop_asked(l); /* no other worker has to know */
    return SOTTO_OK;
}

/* Keeps the evaluation's step if its loss is the lowest so far, or ends the run with the next round
 * if train.patience is over. */
static enum sotto_status judge_evaluation(struct loop *l)
{
    const struct training *t = l->t;
    const struct train_config *c = &t->config->train;
    struct run_totals *totals = &l->w->totals;
    if (!best_wanted(c))
        return SOTTO_OK;
    TRY(best_judge(&totals->best, t->worker->world, t->step, totals->evaluation.loss));
    l->save |= c->keep_best && totals->best.step == t->step;
    if (best_over(&totals->best, c) && t->step < l->rounds && !l->length)
        loop_end_at(l, t->step + 1);
    return SOTTO_OK;
}

/* Evaluates and saves in a pause, if due. */
static enum sotto_status between_rounds(struct loop *l)
{
    struct training *t = l->t;
    l->between = 0;
    if (!evaluation_is_due(l) && !checkpoint_is_due(l))
        return SOTTO_OK;
    training_pause(t);
    TRY(loop_report_rounds(l, true)); /* lines of the metrics are in the order of steps */
    const double begin = clock_now(&clock_real); /* of seconds that belong to no step */
    if (evaluation_is_due(l))
        TRY(loop_evaluate(l, -1));
    if (evaluation_is_due(l))
        TRY(judge_evaluation(l));
    if (checkpoint_is_due(l))
        TRY(loop_save(l));
    TRY(comm_barrier(t->worker->world)); /* no worker trains while rank 0 still writes */
    TRY(training_continue(t));
    pace_skip(&l->pace, clock_now(&clock_real) - begin);
    return SOTTO_OK;
}

enum sotto_status loop_rounds(struct loop *l, bool stop)
{
    TRY(training_continue(l->t));
    while (l->t->step < l->rounds && !stop) {
        TRY(make_round(l, &stop));
        if (l->abandoned) /* the step before was reported, evaluated and saved */
            break;
        TRY(between_rounds(l));
        TRY(loop_compare_clocks(l));
    }
    return SOTTO_OK;
}
