/* What is told of a run: to its watcher, in its metrics, and in the end. */
#include "train/loop/loop.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

const char *const loop_metrics[] = {
    "train/loss",          "train/lr",
    "train/grad_norm",     "train/tokens",
    "train/samples",       "speed/tokens_per_s",
    "speed/seconds",       "time/seconds",
    "time/compute",        "time/update",
    "time/wire",           "time/waited_others",
    "time/waited_wire",    "comm/bytes",
    "comm/inside",         "comm/between",
    "eval/loss",           "eval/perplexity",
    "eval/accuracy",       "eval/top5",
    "speed/samples_per_s", "async/pushes",
    "async/staleness",     "async/idle",
    "outer/cosine",        NULL,
};

static const char *listed(const char *name)
{
    int i = 0;
    while (loop_metrics[i] && strcmp(loop_metrics[i], name) != 0)
        i++;
    assert(loop_metrics[i]);
    return name;
}

static void put(struct metrics *m, const char *name, double value)
{
    metrics_put(m, listed(name), value);
}

static void put_int(struct metrics *m, const char *name, int64_t value)
{
    metrics_put_int(m, listed(name), value);
}

/* A full disk must not end a run that could still free itself: the first failure is said, training
 * goes on. */
static void write_metrics(struct run *run)
{
    if (metrics_end(&run->metrics) != SOTTO_OK)
        log_warn("metrics are not written: %s", sotto_error());
}

/* All that is cumulative counts from the run's beginning, so that curves can be drawn over it. */
static void report(struct trainer *t, const struct run_step *s, const struct cost *all)
{
    struct metrics *m = &t->run->metrics;
    metrics_begin(m, s->step);
    put(m, "train/loss", s->round.loss);
    put(m, "train/lr", s->lr);
    if (s->round.grad_norm >= 0)
        put(m, "train/grad_norm", s->round.grad_norm);
    const bool sequences = run_kind(t->run)->sequences;
    if (sequences)
        put_int(m, "train/tokens", s->tokens);
    put_int(m, "train/samples", s->samples);
    put(m, sequences ? "speed/tokens_per_s" : "speed/samples_per_s", s->tokens_per_s);
    put(m, "speed/seconds", s->seconds);
    put(m, "time/seconds", s->slowest);
    if (s->cosine.n)
        put(m, "outer/cosine", s->cosine.mean);
    if (s->pushes.n) {
        put_int(m, "async/pushes", s->pushes.all);
        put(m, "async/staleness", s->pushes.staleness);
        put(m, "async/idle", s->pushes.idle);
        write_metrics(t->run);
        return;
    }
    put(m, "time/compute", all->compute);
    put(m, "time/update", all->update);
    put(m, "time/wire", all->wire);
    put(m, "time/waited_others", all->waited_others);
    put(m, "time/waited_wire", all->waited_wire);
    put_int(m, "comm/bytes", all->inside + all->between);
    put_int(m, "comm/inside", all->inside);
    put_int(m, "comm/between", all->between);
    write_metrics(t->run);
}

void loop_count_cosine(struct loop *l, double cosine)
{
    if (!isfinite(cosine))
        return;
    l->cosine.sum += cosine;
    l->cosine.n++;
    l->t->cosine += cosine;
    l->t->cosines++;
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
    struct trainer *t = l->t;
    struct cost_joint all = {0};
    struct cost *each = calloc((size_t)t->worker->size, sizeof *each);
    l->own = meter_read(&t->meter);
    if (!each)
        return fail(SOTTO_ENOMEM, "no memory for the costs of %d workers", t->worker->size);
    const enum sotto_status st = comm_gather_bytes(t->worker->world, each, &l->own, sizeof *each);
    for (int i = 0; i < t->worker->size; i++)
        cost_join(&all, &each[i]);
    free(each);
    l->since = cost_mean(&all);
    l->slowest = all.slowest;
    return st;
}

/* The numbers of a round, and the time that is left. What one worker tells counts from its own. */
void loop_tell(struct loop *l, struct run_step *s)
{
    struct trainer *t = l->t;
    const struct cost all = s->cost;
    const double seconds = s->slowest - (s->report ? l->slowest : l->own.seconds);
    cost_add(&s->cost, s->report ? &l->since : &l->own, -1);
    s->tokens_per_s = seconds > 0 ? (double)(s->tokens - l->tokens) / seconds : 0;
    s->eta = pace_seconds(&l->pace, s->step, clock_now(&clock_real)) * (double)(s->steps - s->step);
    s->trainer = t;
    if (t->run->watch.step)
        t->run->watch.step(t->run->watch.arg, s);
    if (!s->report)
        return;
    report(t, s, &all);
    l->since = all;
    l->own = s->own;
    l->slowest = s->slowest;
    l->tokens = s->tokens;
    l->step = s->step;
}

int64_t loop_tail(const struct loop *l)
{
    const struct trainer *t = l->t;
    return t->rounds - t->rounds / 10 - t->run->config.train.log_every;
}

enum sotto_status loop_tell_reported(struct loop *l, bool wait)
{
    struct trainer *t = l->t;
    struct run_step s;
    for (bool found = true; found;) {
        TRY(round_totals_next(l->totals, wait, &s, &found));
        if (!found)
            break;
        if (s.step > loop_tail(l)) {
            t->tail_loss += s.round.loss;
            t->tail_reports++;
        }
        loop_tell(l, &s);
    }
    return SOTTO_OK;
}

void loop_tell_evaluation(struct loop *l, int64_t step, double seconds, const struct evaluation *e)
{
    struct run *run = l->t->run;
    struct metrics *m = &run->metrics;
    char score[32];
    metrics_begin(m, step);
    if (seconds >= 0)
        put(m, "time/seconds", seconds);
    snprintf(score, sizeof score, "eval/%s", run_kind(run)->score);
    put(m, "eval/loss", e->loss);
    put(m, score, evaluation_score(e));
    put(m, "eval/accuracy", (double)e->hits / (double)e->targets);
    write_metrics(run);
    if (run->watch.evaluated)
        run->watch.evaluated(run->watch.arg, step, e);
}

enum sotto_status loop_evaluate(struct loop *l, double seconds)
{
    struct trainer *t = l->t;
    struct run *run = t->run;
    if (!run->valid)
        return SOTTO_OK;
    TRY(trainer_evaluate(t, t->worker->world, &t->evaluation));
    if (loop_leads(l))
        loop_tell_evaluation(l, t->step, seconds, &t->evaluation);
    return SOTTO_OK;
}

/* Tasks under way at the end of the time, of a run that follows another one, which has not pushed
 * them there. */
static void warn_under_way(const struct loop *l)
{
    const struct trainer *t = l->t;
    const struct run_config *c = &t->run->config;
    const int64_t samples = t->samples - t->pushed_samples;
    const int64_t step = (int64_t)t->mesh.n_s * c->strategy.accumulate * c->train.batch;
    if (!l->late || samples <= 0)
        return;
    log_warn("train.seconds = %g ended the run in the middle of tasks: %lld steps of its %d groups "
             "that were not pushed are in the checkpoint, and not in the model%s; with more "
             "seconds the run goes on with them",
             c->train.seconds, (long long)(samples / step), t->mesh.n_r,
             t->pushed_samples > 0 ? "" : ", which is as it was at the start");
}

/* Of groups without common rounds: what is in the model, and what each has brought. */
static enum sotto_status count_pushes(const struct loop *l, struct run_result *result)
{
    const struct trainer *t = l->t;
    if (!t->strategy->async || !loop_leads(l))
        return SOTTO_OK;
    warn_under_way(l);
    result->tokens = t->pushed_tokens;
    result->samples = t->pushed_samples;
    result->group = calloc((size_t)t->mesh.n_r, sizeof *result->group);
    if (!result->group)
        return fail(SOTTO_ENOMEM, "no memory for the report of %d groups", t->mesh.n_r);
    return async_totals(t->strategy->async, result->group);
}

enum sotto_status loop_conclude(struct loop *l)
{
    struct trainer *t = l->t;
    struct run *run = t->run;
    TRY(mesh_rest(&t->mesh)); /* what was sent is counted, also where nobody waited for it */
    struct worker_report mine = {.cost = meter_read(&t->meter)};
    for (int c = 0; c < MEMORY_CATEGORIES; c++)
        mine.memory[c] = t->memory.peak[c];
    mine.memory_total = t->memory.total_peak;
    mine.live = t->oracle == &t->null_oracle.base ? mine.memory[MEMORY_ACTIVATIONS] : t->pool.peak;
    struct run_result result = {.complete = t->step >= t->rounds,
                                .rounds = t->step - l->began,
                                .step = t->step,
                                .steps = t->rounds > t->step ? t->rounds : t->step,
                                .tokens = t->tokens,
                                .samples = t->samples,
                                .loss =
                                    t->tail_reports ? t->tail_loss / (double)t->tail_reports : NAN,
                                .cosine = t->cosines ? t->cosine / (double)t->cosines : NAN,
                                .evaluation = t->evaluation,
                                .best = t->best};
    if (run_keeps(run))
        TRY(trainer_hash(t, &result.hash));
    result.worker = calloc((size_t)t->worker->size, sizeof *result.worker);
    if (!result.worker)
        return fail(SOTTO_ENOMEM, "no memory for the report of %d workers", t->worker->size);
    enum sotto_status st = comm_gather_bytes(t->worker->world, result.worker, &mine, sizeof mine);
    for (int i = 0; i < t->worker->size; i++)
        result.seconds = fmax(result.seconds, result.worker[i].cost.seconds);
    if (st == SOTTO_OK)
        st = count_pushes(l, &result);
    if (st == SOTTO_OK && loop_leads(l)) {
        run->result = result;
        return SOTTO_OK;
    }
    free(result.worker);
    free(result.group);
    return st;
}
