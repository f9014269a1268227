/* Reports of a run while it trains: to its watcher, and in its metrics. */
#include "train/loop/loop.h"

#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "train/report/keys.h"

static void put_real(struct metrics *m, const char *name, double value)
{
    metrics_put(m, key_listed(metric_keys, name), value);
}

static void put_int(struct metrics *m, const char *name, int64_t value)
{
    metrics_put_int(m, key_listed(metric_keys, name), value);
}

/* Ends a line of the metrics. A full disk only makes a warning: training continues, and the disk
 * may get room again. */
static void write_metrics(struct run *run)
{
    if (metrics_end(&run->metrics) != SOTTO_OK)
        log_warn("metrics are not written: %s", sotto_error());
}

/* Writes a round's line. Cumulative numbers count from the run's beginning, so that curves can be
 * drawn over them. */
static void write_step(struct run *run, const struct run_step *s, const struct cost *all)
{
    struct metrics *m = &run->metrics;
    metrics_begin(m, s->step);
    put_real(m, "train/loss", s->round.loss);
    put_real(m, "train/lr", s->lr);
    if (s->round.grad_norm >= 0)
        put_real(m, "train/grad_norm", s->round.grad_norm);
    const bool sequences = run_kind(run)->sequences;
    if (sequences)
        put_int(m, "train/tokens", s->tokens);
    put_int(m, "train/samples", s->samples);
    put_real(m, sequences ? "speed/tokens_per_s" : "speed/samples_per_s", s->tokens_per_s);
    put_real(m, "speed/seconds", s->seconds);
    put_real(m, "time/seconds", s->slowest);
    if (s->cosine.n)
        put_real(m, "outer/cosine", s->cosine.mean);
    if (s->pushes.n) {
        put_int(m, "async/pushes", s->pushes.all);
        put_real(m, "async/staleness", s->pushes.staleness);
        put_real(m, "async/idle", s->pushes.idle);
        write_metrics(run);
        return;
    }
    put_real(m, "time/compute", all->compute);
    put_real(m, "time/update", all->update);
    put_real(m, "time/wire", all->wire);
    put_real(m, "time/waited_others", all->waited_others);
    put_real(m, "time/waited_wire", all->waited_wire);
    put_int(m, "comm/bytes", all->inside + all->between);
    put_int(m, "comm/inside", all->inside);
    put_int(m, "comm/between", all->between);
    write_metrics(run);
}

void loop_add_cosine(struct loop *l, double cosine)
{
    if (!isfinite(cosine))
        return;
    l->cosine.sum += cosine;
    l->cosine.n++;
    l->w->totals.cosine += cosine;
    l->w->totals.cosines++;
}

void loop_take_cosine(struct loop *l, struct run_step *s)
{
    if (l->cosine.n) {
        s->cosine.n = l->cosine.n;
        s->cosine.mean = l->cosine.sum / (double)l->cosine.n;
    }
    l->cosine.sum = 0;
    l->cosine.n = 0;
}

enum sotto_status loop_read_costs(struct loop *l)
{
    const struct worker *w = l->t->worker;
    struct cost_joint all = {0};
    const struct cost own = meter_read(&l->t->meter);
    struct cost *each = calloc((size_t)w->size, sizeof *each);
    if (!each)
        return fail(SOTTO_ENOMEM, "no memory for the costs of %d workers", w->size);
    const enum sotto_status st = comm_gather_bytes(w->world, each, &own, sizeof *each);
    for (int i = 0; i < w->size; i++)
        cost_join(&all, &each[i]);
    free(each);
    l->reported.own = own;
    l->reported.mean = cost_mean(&all);
    l->reported.slowest = all.slowest;
    return st;
}

void loop_report_step(struct loop *l, struct run_step *s)
{
    const struct run_watch *watch = &l->run->watch;
    const struct cost all = s->cost;
    const double before = s->report ? l->reported.slowest : l->reported.own.seconds;
    const double seconds = s->slowest - before;
    cost_add(&s->cost, s->report ? &l->reported.mean : &l->reported.own, -1);
    s->tokens_per_s = seconds > 0 ? (double)(s->tokens - l->reported.tokens) / seconds : 0;
    s->eta = pace_seconds(&l->pace, s->step, clock_now(&clock_real)) * (double)(s->steps - s->step);
    s->worker = l->w;
    if (watch->step)
        watch->step(watch->arg, s);
    if (!s->report)
        return;
    write_step(l->run, s, &all);
    l->reported.mean = all;
    l->reported.own = s->own;
    l->reported.slowest = s->slowest;
    l->reported.tokens = s->tokens;
    l->reported.step = s->step;
}

/* The reports after this step make the run's loss: those of its last tenth. */
static int64_t tail_begin(const struct loop *l)
{
    return l->rounds - l->rounds / 10 - l->t->config->train.log_every;
}

void loop_add_tail(struct loop *l, const struct run_step *s)
{
    if (s->step <= tail_begin(l))
        return;
    l->w->totals.tail_loss += s->round.loss;
    l->w->totals.tail_reports++;
}

void loop_forget_tail(struct loop *l)
{
    if (l->t->step > tail_begin(l))
        return;
    l->w->totals.tail_loss = 0;
    l->w->totals.tail_reports = 0;
}

enum sotto_status loop_report_rounds(struct loop *l, bool wait)
{
    struct run_step s;
    for (bool found = true; found;) {
        TRY(round_totals_next(l->totals, wait, &s, &found));
        if (!found)
            break;
        loop_add_tail(l, &s);
        loop_report_step(l, &s);
    }
    return SOTTO_OK;
}

void loop_report_evaluation(struct loop *l, int64_t step, double seconds,
                            const struct evaluation *e)
{
    struct run *run = l->run;
    struct metrics *m = &run->metrics;
    char score[32];
    metrics_begin(m, step);
    if (seconds >= 0)
        put_real(m, "time/seconds", seconds);
    snprintf(score, sizeof score, "eval/%s", run_kind(run)->score);
    put_real(m, "eval/loss", e->loss);
    put_real(m, score, evaluation_score(e));
    put_real(m, "eval/accuracy", (double)e->hits / (double)e->targets);
    write_metrics(run);
    if (run->watch.evaluated)
        run->watch.evaluated(run->watch.arg, step, e);
}

enum sotto_status loop_evaluate(struct loop *l, double seconds)
{
    struct evaluation *e = &l->w->totals.evaluation;
    if (!l->run->valid)
        return SOTTO_OK;
    TRY(run_worker_evaluate(l->w, l->t->worker->world, e));
    if (loop_leads(l))
        loop_report_evaluation(l, l->t->step, seconds, e);
    return SOTTO_OK;
}
