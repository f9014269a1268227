/* The loop over rounds: when to report, evaluate, save and stop. */
#include "train/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "train/budget.h"

struct loop {
    struct trainer *t;
    struct cost since; /* at the last report */
    double slowest;    /* worker's seconds then */
    int64_t tokens, step;
    int64_t began; /* at this step */
    double real;   /* real time, for what is left */
    int64_t saved; /* step of the newest checkpoint, -1: none */
    double pause;  /* between the last two rounds, in the worker's time */
    struct budget_spent spent;
    double *clock;   /* (workers) NULL: clocks are told with every round */
    int64_t compare; /* behind this round clocks are compared */
    bool warned;
    bool abandoned; /* the last round: the run is as it was before it */
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
    metrics_begin(m, s->step);
    metrics_put(m, "train/loss", s->round.loss);
    metrics_put(m, "train/lr", s->lr);
    metrics_put(m, "train/grad_norm", s->round.grad_norm);
    metrics_put_int(m, "train/tokens", s->tokens);
    metrics_put_int(m, "train/samples", s->samples);
    metrics_put(m, "speed/tokens_per_s", s->tokens_per_s);
    metrics_put(m, "speed/seconds", s->seconds);
    metrics_put(m, "time/seconds", s->slowest);
    metrics_put(m, "time/compute", all->compute);
    metrics_put(m, "time/update", all->update);
    metrics_put(m, "time/wire", all->wire);
    metrics_put(m, "time/waited_others", all->waited_others);
    metrics_put(m, "time/waited_wire", all->waited_wire);
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

/* The numbers of a round, and the time that is left. */
static void tell(struct loop *l, struct run_step *s)
{
    struct trainer *t = l->t;
    const struct cost all = s->cost;
    const double seconds = s->slowest - l->slowest;
    const double real = clock_now(&clock_real);
    cost_add(&s->cost, &l->since, -1);
    s->tokens_per_s = seconds > 0 ? (double)(s->tokens - l->tokens) / seconds : 0;
    s->eta = (real - l->real) / (double)(s->step - l->step) * (double)(s->steps - s->step);
    s->trainer = t;
    if (t->run->watch.step)
        t->run->watch.step(t->run->watch.arg, s);
    if (!s->report)
        return;
    report(t, s, &all);
    l->since = all;
    l->slowest = s->slowest;
    l->tokens = s->tokens;
    l->step = s->step;
    l->real = real;
}

/* The reports after this step make the run's loss: those of its last tenth. */
static int64_t tail_begin(const struct trainer *t)
{
    return t->rounds - t->rounds / 10 - t->run->config.train.log_every;
}

/* Rank 0 tells of the rounds that all workers have done; `wait`: of all that were reported. */
static enum sotto_status tell_reported(struct loop *l, bool wait)
{
    struct trainer *t = l->t;
    struct run_step s;
    for (bool found = true; found;) {
        TRY(roundup_next(t->roundup, wait, &s, &found));
        if (!found)
            break;
        if (s.step > tail_begin(t)) {
            t->tail_loss += s.round.loss;
            t->tail_reports++;
        }
        tell(l, &s);
    }
    return SOTTO_OK;
}

/* What the workers have agreed on is the pace of the run, which tells how long it will be. */
static void learn(struct loop *l, const struct agreed *a)
{
    struct trainer *t = l->t;
    const struct run_config *c = &t->run->config;
    struct budget_spent *spent = &l->spent;
    if (a) {
        spent->rounds += a->rounds;
        spent->tokens += a->tokens;
        spent->samples += a->microbatches * c->train.batch;
        if (!l->clock) {
            spent->timed = spent->rounds - 1; /* the clock was read before the last one */
            spent->seconds = a->seconds;
        }
    }
    t->rounds = budget_rounds(&c->train, spent,
                              (int64_t)t->worker->size * c->strategy.accumulate * c->train.batch);
}

static void count(struct trainer *t, const struct round *r)
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

static enum sotto_status one_round(struct loop *l, bool *stop)
{
    struct trainer *t = l->t;
    struct run *run = t->run;
    const struct train_config *c = &run->config.train;
    struct run_step s = {0};
    const bool last = t->step + 1 >= t->rounds;
    s.lr = optim_lr(&run->config.optim, t->step, t->rounds);
    s.report = due(t->step + 1, c->log_every) || last;
    struct plan plan = {.lr = s.lr,
                        .next_lr = optim_lr(&run->config.optim, t->step + 1, t->rounds),
                        .want_norm = s.report,
                        .stop = asked_to_stop(run),
                        .asked = run->watch.stop,
                        .last = last,
                        .pause = l->pause,
                        .seconds = meter_read(&t->meter).seconds};
    const double before = clock_now(t->worker->clock);
    enum sotto_status st = t->strategy->ops->round(t->strategy, &plan, &s.round);
    if (st != SOTTO_OK)
        return fail_in(st, "step %lld: ", (long long)t->step + 1);
    if (s.round.abandoned) {
        *stop = l->abandoned = true;
        return SOTTO_OK;
    }
    t->step++;
    count(t, &s.round);
    *stop = s.round.stop;
    learn(l, s.round.agreed);
    s.step = t->step;
    s.steps = t->rounds > t->step ? t->rounds : t->step; /* it was expected to be shorter */
    s.tokens = t->tokens;
    s.samples = t->samples;
    s.own_tokens = t->own_tokens;
    s.own_samples = t->own_samples;
    s.report |= t->step >= t->rounds;
    s.seconds = clock_now(t->worker->clock) - before;
    s.cost = meter_read(&t->meter);
    s.slowest = s.cost.seconds;
    if (s.report)
        TRY(roundup_start(t->roundup, &s, t->mesh.s == 0));
    TRY(tell_reported(l, false));
    if (leads(t) && !s.report && t->step > l->step) {
        s.tokens += s.own_tokens * t->mesh.n_r; /* as if all groups were like this one */
        s.samples += s.own_samples * t->mesh.n_r;
        tell(l, &s);
    }
    *stop |= t->worker->size == 1 && asked_to_stop(run); /* others could not know */
    return SOTTO_OK;
}

static enum sotto_status save_now(struct loop *l)
{
    struct trainer *t = l->t;
    TRY(count_groups(t));
    TRY(fail_in(trainer_save(t), "step %lld: ", (long long)t->step));
    l->saved = t->step;
    return SOTTO_OK;
}

/* Training goes on behind a pause, where it is simulated with each worker's lead over the others.
 */
static enum sotto_status go_on(struct trainer *t)
{
    struct worker *w = t->worker;
    if (w->ops->go_on) {
        TRY(w->ops->go_on(w, meter_read(&t->meter).seconds));
        meter_owe(&t->meter);
        if (t->step < t->rounds) /* who waits for the lanes else? */
            meter_keep_lanes(&t->meter);
    }
    meter_start(&t->meter);
    return SOTTO_OK;
}

/* What is due between two rounds is not the training's time. */
static enum sotto_status between_rounds(struct loop *l)
{
    struct trainer *t = l->t;
    const struct train_config *c = &t->run->config.train;
    bool last = t->step >= t->rounds;
    bool evaluates = due(t->step, c->eval_every) || last;
    bool saves = due(t->step, c->save_every) || last;
    l->pause = 0;
    if (!evaluates && !saves)
        return SOTTO_OK;
    const double begin = clock_now(&clock_real), before = clock_now(t->worker->clock);
    meter_stop(&t->meter);
    if (t->worker->ops->pause)
        t->worker->ops->pause(t->worker);
    TRY(tell_reported(l, true)); /* lines of the metrics are in the order of steps */
    if (evaluates)
        TRY(evaluate_now(l));
    if (saves)
        TRY(save_now(l));
    TRY(comm_barrier(t->worker->world)); /* nobody trains while rank 0 still writes */
    TRY(go_on(t));
    l->real += clock_now(&clock_real) - begin;
    l->pause = clock_now(t->worker->clock) - before;
    return SOTTO_OK;
}

/* Everybody's numbers, on rank 0. */
static enum sotto_status conclude(struct loop *l)
{
    struct trainer *t = l->t;
    struct run *run = t->run;
    TRY(count_groups(t));
    TRY(mesh_rest(&t->mesh)); /* what was sent is counted, also where nobody waited for it */
    struct worker_report mine = {.cost = meter_read(&t->meter)};
    for (int c = 0; c < MEMORY_CATEGORIES; c++)
        mine.memory[c] = t->memory.peak[c];
    mine.memory_total = t->memory.total_peak;
    struct run_result result = {.complete = t->step >= t->rounds,
                                .rounds = t->step - l->began,
                                .step = t->step,
                                .steps = t->rounds > t->step ? t->rounds : t->step,
                                .tokens = t->tokens,
                                .samples = t->samples,
                                .loss =
                                    t->tail_reports ? t->tail_loss / (double)t->tail_reports : NAN,
                                .evaluation = t->evaluation};
    TRY(trainer_hash(t, &result.hash));
    result.worker = calloc((size_t)t->worker->size, sizeof *result.worker);
    if (!result.worker)
        return fail(SOTTO_ENOMEM, "no memory for the report of %d workers", t->worker->size);
    enum sotto_status st = comm_gather_bytes(t->worker->world, result.worker, &mine, sizeof mine);
    for (int i = 0; i < t->worker->size; i++)
        result.seconds = fmax(result.seconds, result.worker[i].cost.seconds);
    if (st == SOTTO_OK && leads(t))
        run->result = result;
    else
        free(result.worker);
    return st;
}

/* Groups that would exchange for the first time behind the end: it is said what becomes of that. */
static void warn_rare(struct loop *l)
{
    const struct trainer *t = l->t;
    const struct strategy_config *c = &t->run->config.strategy;
    char key[OPTION_ROOM];
    bool meets = false;
    const int64_t every = strategy_every(c, key, &meets);
    if (!leads(t) || c->groups == 1 || every <= t->rounds || t->rounds <= 0 || l->warned)
        return;
    l->warned = true;
    log_warn("%s = %lld is more than the %lld steps of this run: %s", key, (long long)every,
             (long long)t->rounds,
             meets ? "its groups exchange once, at the end"
                   : "its groups train without an exchange, and the model is their mean");
}

static enum sotto_status read_clocks(struct loop *l)
{
    struct trainer *t = l->t;
    const double mine = meter_read(&t->meter).seconds;
    TRY(comm_gather_bytes(t->worker->world, l->clock, &mine, sizeof mine));
    l->spent.timed = t->step;
    l->spent.seconds = 0;
    for (int i = 0; i < t->worker->size; i++)
        l->spent.seconds = fmax(l->spent.seconds, l->clock[i]);
    return SOTTO_OK;
}

/* Groups that train apart may not meet before the time is up. They compare their clocks in few
 * rounds, the same for all; a run that is late ends with the next round, with its last exchange. */
static enum sotto_status compare_clocks(struct loop *l)
{
    struct trainer *t = l->t;
    if (!l->clock || t->step < l->compare || t->step >= t->rounds)
        return SOTTO_OK;
    const double before = clock_now(t->worker->clock);
    TRY(read_clocks(l));
    learn(l, NULL);
    if (t->rounds <= t->step)
        t->rounds = t->step + 1;
    if (t->step > 1) /* the first round is not like the others */
        warn_rare(l);
    l->compare = budget_compare(t->step, t->rounds);
    l->pause += clock_now(t->worker->clock) - before;
    return SOTTO_OK;
}

/* One answer for all workers, as behind each round, and where the budget stands. */
static enum sotto_status begin(struct loop *l, bool *stop)
{
    struct trainer *t = l->t;
    const struct run_config *c = &t->run->config;
    double asked = asked_to_stop(t->run);
    TRY(comm_sum(t->worker->world, &asked, 1));
    *stop = asked > 0;
    l->spent = (struct budget_spent){.rounds = t->step, .tokens = t->tokens, .samples = t->samples};
    TRY(read_clocks(l));
    if (c->train.seconds <= 0 || strategy_in_step(&c->strategy)) {
        free(l->clock);
        l->clock = NULL;
    }
    learn(l, NULL);
    l->compare = t->step > 0 ? budget_compare(t->step, t->rounds) : 1;
    l->warned = t->step > 0;
    warn_rare(l);
    if (t->step <= tail_begin(t)) { /* a longer run than the one that it goes on from */
        t->tail_loss = 0;
        t->tail_reports = 0;
    }
    l->real = clock_now(&clock_real);
    return SOTTO_OK;
}

static enum sotto_status go(struct loop *l)
{
    struct trainer *t = l->t;
    bool stop;
    TRY(begin(l, &stop));
    TRY(go_on(t));
    while (t->step < t->rounds && !stop) {
        TRY(one_round(l, &stop));
        if (l->abandoned) /* what is due here was done before it */
            break;
        TRY(between_rounds(l));
        TRY(compare_clocks(l));
    }
    meter_stop(&t->meter);
    TRY(tell_reported(l, true));
    if (t->step != l->saved)
        TRY(save_now(l));
    return conclude(l);
}

enum sotto_status trainer_loop(struct trainer *t)
{
    struct loop l = {.t = t,
                     .tokens = t->tokens,
                     .step = t->step,
                     .began = t->step,
                     .since = meter_read(&t->meter)};
    l.slowest = l.since.seconds;
    l.saved = *t->run->checkpoint ? t->step : -1;
    l.clock = calloc((size_t)t->worker->size, sizeof *l.clock);
    if (!l.clock)
        return fail(SOTTO_ENOMEM, "no memory for the clocks of %d workers", t->worker->size);
    enum sotto_status st = go(&l);
    free(l.clock);
    return st;
}
