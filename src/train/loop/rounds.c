/* The loop over rounds: when to report, evaluate, save and stop. */
#include "train/loop/loop.h"

static bool due(int64_t step, int64_t every)
{
    return every > 0 && step % every == 0;
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
                        .stop = loop_asked(l),
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
    loop_count(l, &s.round);
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
    *stop |= t->worker->size == 1 && loop_asked(l); /* others could not know */
    return SOTTO_OK;
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
    loop_pause(l);
    TRY(loop_tell_reported(l, true)); /* lines of the metrics are in the order of steps */
    const double begin = clock_now(&clock_real); /* of what is no step's */
    if (evaluates(t))
        TRY(loop_evaluate(l, -1));
    if (evaluates(t))
        TRY(judge_evaluation(l));
    if (saves(l))
        TRY(loop_save(l));
    TRY(comm_barrier(t->worker->world)); /* nobody trains while rank 0 still writes */
    TRY(loop_continue(l));
    pace_skip(&l->pace, clock_now(&clock_real) - begin);
    return SOTTO_OK;
}

enum sotto_status loop_rounds(struct loop *l, bool stop)
{
    const struct trainer *t = l->t;
    TRY(loop_continue(l));
    while (t->step < t->rounds && !stop) {
        TRY(one_round(l, &stop));
        if (l->abandoned) /* the step before was reported, evaluated and saved */
            break;
        TRY(between_rounds(l));
        TRY(loop_compare_clocks(l));
    }
    return SOTTO_OK;
}
