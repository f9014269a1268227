/* The loop over rounds: when to report, evaluate, save and stop. */
#include "train/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

struct loop {
    struct trainer *t;
    struct cost since; /* at the last report */
    int64_t tokens, step;
    double real;   /* real time, for what is left */
    int64_t saved; /* step of the newest checkpoint, -1: none */
    double pause;  /* between the last two rounds, in the worker's time */
};

static bool leads(const struct trainer *t)
{
    return t->worker->rank == 0;
}

/* A full disk must not end a run that could still free itself: the first failure is said, training
 * goes on. */
static void write_metrics(struct run *run)
{
    if (metrics_end(&run->metrics) != SOTTO_OK)
        log_warn("metrics are not written: %s", sotto_error());
}

static enum sotto_status evaluate_now(struct loop *l)
{
    struct trainer *t = l->t;
    struct run *run = t->run;
    if (!run->valid)
        return SOTTO_OK;
    TRY(trainer_evaluate(t, &t->evaluation));
    const struct evaluation *e = &t->evaluation;
    if (!leads(t))
        return SOTTO_OK;
    metrics_begin(&run->metrics, t->step);
    metrics_put(&run->metrics, "eval/loss", e->loss);
    metrics_put(&run->metrics, "eval/perplexity", exp(e->loss));
    metrics_put(&run->metrics, "eval/accuracy", (double)e->hits / (double)e->targets);
    write_metrics(run);
    if (run->watch.evaluated)
        run->watch.evaluated(run->watch.arg, t->step, e);
    return SOTTO_OK;
}

/* All that is cumulative counts from the run's beginning, so that curves can be drawn over it. */
static void report(struct trainer *t, const struct run_step *s, const struct cost *all)
{
    struct metrics *m = &t->run->metrics;
    metrics_begin(m, t->step);
    metrics_put(m, "train/loss", s->round.loss);
    metrics_put(m, "train/lr", s->lr);
    metrics_put(m, "train/grad_norm", s->round.grad_norm);
    metrics_put_int(m, "train/tokens", t->tokens);
    metrics_put_int(m, "train/samples", t->samples);
    metrics_put(m, "speed/tokens_per_s", s->tokens_per_s);
    metrics_put(m, "speed/seconds", s->seconds);
    metrics_put(m, "time/seconds", all->seconds);
    metrics_put(m, "time/compute", all->compute);
    metrics_put(m, "time/communication", all->communication);
    metrics_put(m, "time/exposed", all->exposed);
    metrics_put_int(m, "comm/bytes", all->inside + all->between);
    metrics_put_int(m, "comm/inside", all->inside);
    metrics_put_int(m, "comm/between", all->between);
    write_metrics(t->run);
}

static bool due(int64_t step, int64_t every)
{
    return every > 0 && step % every == 0;
}

static bool asked_to_stop(const struct run *run)
{
    return run->watch.stop && *run->watch.stop;
}

/* The numbers of a reported round, and the time that is left. */
static void tell(struct loop *l, struct run_step *s)
{
    struct trainer *t = l->t;
    struct cost now = trainer_cost(t);
    const double real = clock_now(&clock_real);
    s->cost = now;
    cost_add(&s->cost, &l->since, -1);
    s->tokens_per_s = s->cost.seconds > 0 ? (double)(t->tokens - l->tokens) / s->cost.seconds : 0;
    s->eta = (real - l->real) / (double)(t->step - l->step) * (double)(s->steps - t->step);
    s->trainer = t;
    if (t->run->watch.step)
        t->run->watch.step(t->run->watch.arg, s);
    if (!s->report)
        return;
    report(t, s, &now);
    l->since = now;
    l->tokens = t->tokens;
    l->step = t->step;
    l->real = real;
}

/* The reports after this step make the run's loss: those of its last tenth. */
static int64_t tail_begin(const struct train_config *c)
{
    return c->steps - c->steps / 10 - c->log_every;
}

static enum sotto_status one_round(struct loop *l, bool *stop)
{
    struct trainer *t = l->t;
    struct run *run = t->run;
    const struct train_config *c = &run->config.train;
    struct run_step s = {.steps = c->steps};
    s.lr = optim_lr(&run->config.optim, t->step, c->steps);
    s.report = due(t->step + 1, c->log_every) || t->step + 1 == c->steps;
    struct plan plan = {.lr = s.lr,
                        .next_lr = optim_lr(&run->config.optim, t->step + 1, c->steps),
                        .want_norm = s.report,
                        .stop = asked_to_stop(run),
                        .pause = l->pause};
    const double before = clock_now(t->worker->clock);
    enum sotto_status st = t->strategy->ops->round(t->strategy, &plan, &s.round);
    if (st != SOTTO_OK)
        return fail_in(st, "step %lld: ", (long long)t->step + 1);
    t->step++;
    t->tokens += s.round.tokens;
    t->samples += s.round.microbatches * c->batch;
    *stop = s.round.stop;
    s.step = t->step;
    s.seconds = clock_now(t->worker->clock) - before;
    if (s.report && t->step > tail_begin(c)) {
        t->tail_loss += s.round.loss;
        t->tail_reports++;
    }
    if (leads(t))
        tell(l, &s);
    *stop |= t->worker->size == 1 && asked_to_stop(run); /* others could not know */
    return SOTTO_OK;
}

static enum sotto_status save_now(struct loop *l)
{
    struct trainer *t = l->t;
    TRY(fail_in(trainer_save(t), "step %lld: ", (long long)t->step));
    l->saved = t->step;
    return SOTTO_OK;
}

/* What is due between two rounds is not the training's time. */
static enum sotto_status between_rounds(struct loop *l)
{
    struct trainer *t = l->t;
    const struct train_config *c = &t->run->config.train;
    bool last = t->step == c->steps;
    bool evaluates = due(t->step, c->eval_every) || last;
    bool saves = due(t->step, c->save_every) || last;
    l->pause = 0;
    if (!evaluates && !saves)
        return SOTTO_OK;
    const double begin = clock_now(&clock_real), before = clock_now(t->worker->clock);
    trainer_pause(t);
    if (evaluates)
        TRY(evaluate_now(l));
    if (saves)
        TRY(save_now(l));
    trainer_go_on(t);
    l->real += clock_now(&clock_real) - begin;
    l->pause = clock_now(t->worker->clock) - before;
    return SOTTO_OK;
}

/* Everybody's numbers, on rank 0. */
static enum sotto_status conclude(struct loop *l)
{
    struct trainer *t = l->t;
    struct run *run = t->run;
    struct worker_report mine = {.cost = t->spent};
    for (int c = 0; c < MEMORY_CATEGORIES; c++)
        mine.memory[c] = t->memory.peak[c];
    mine.memory_total = t->memory.total_peak;
    struct run_result result = {.step = t->step,
                                .tokens = t->tokens,
                                .samples = t->samples,
                                .seconds = mine.cost.seconds,
                                .loss =
                                    t->tail_reports ? t->tail_loss / (double)t->tail_reports : NAN,
                                .evaluation = t->evaluation};
    TRY(trainer_hash(t, &result.hash));
    result.worker = calloc((size_t)t->worker->size, sizeof *result.worker);
    if (!result.worker)
        return fail(SOTTO_ENOMEM, "no memory for the report of %d workers", t->worker->size);
    enum sotto_status st = comm_gather_bytes(t->worker->world, result.worker, &mine, sizeof mine);
    if (st == SOTTO_OK && leads(t))
        run->result = result;
    else
        free(result.worker);
    return st;
}

enum sotto_status trainer_loop(struct trainer *t)
{
    struct run *run = t->run;
    const struct train_config *c = &run->config.train;
    struct loop l = {.t = t, .tokens = t->tokens, .step = t->step, .since = t->spent};
    l.saved = *run->checkpoint ? t->step : -1;
    if (t->step <= tail_begin(c)) { /* a longer run than the one that it goes on from */
        t->tail_loss = 0;
        t->tail_reports = 0;
    }
    l.real = clock_now(&clock_real);
    double stops = asked_to_stop(run); /* one answer for all workers, as behind each round */
    TRY(comm_sum(t->worker->world, &stops, 1));
    bool stop = stops > 0;
    trainer_go_on(t);
    while (t->step < c->steps && !stop) {
        TRY(one_round(&l, &stop));
        TRY(between_rounds(&l));
    }
    trainer_pause(t);
    if (t->step != l.saved)
        TRY(save_now(&l));
    return conclude(&l);
}
