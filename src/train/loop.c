/* The loop over rounds: when to report, evaluate, save and stop. */
#include "train/run.h"

#include <math.h>

#include "base/log.h"

/* A full disk must not end a run that could still free itself: the first failure is said, training
 * goes on. */
static void write_metrics(struct run *run)
{
    if (metrics_end(&run->metrics) != SOTTO_OK)
        log_warn("metrics are not written: %s", sotto_error());
}

static enum sotto_status evaluate_now(struct run *run)
{
    if (!run->valid)
        return SOTTO_OK;
    const struct train_config *t = &run->config.train;
    struct evaluation e;
    const struct view *theta;
    TRY(run->strategy->ops->gather(run->strategy, &theta));
    TRY(evaluate(&run->model, &run->dev, &run->pool, theta, run->valid, t->batch, t->seq,
                 t->eval_batches, &e));
    metrics_begin(&run->metrics, run->step);
    metrics_put(&run->metrics, "eval/loss", e.loss);
    metrics_put(&run->metrics, "eval/perplexity", exp(e.loss));
    metrics_put(&run->metrics, "eval/accuracy", (double)e.hits / (double)e.targets);
    write_metrics(run);
    if (run->watch.evaluated)
        run->watch.evaluated(run->watch.arg, run->step, &e);
    return SOTTO_OK;
}

static void report(struct run *run, const struct run_step *s)
{
    metrics_begin(&run->metrics, run->step);
    metrics_put(&run->metrics, "train/loss", s->round.loss);
    metrics_put(&run->metrics, "train/lr", s->lr);
    metrics_put(&run->metrics, "train/grad_norm", s->round.grad_norm);
    metrics_put_int(&run->metrics, "train/tokens", run->tokens);
    metrics_put(&run->metrics, "speed/tokens_per_s", s->tokens_per_s);
    metrics_put(&run->metrics, "speed/seconds", s->seconds);
    write_metrics(run);
}

static bool due(int64_t step, int64_t every)
{
    return every > 0 && step % every == 0;
}

/* Speed over the rounds since the last report. */
struct pace {
    double since;
    int64_t tokens, step;
};

static enum sotto_status one_round(struct run *run, struct pace *pace)
{
    const struct train_config *t = &run->config.train;
    const double before = clock_now(&clock_real);
    struct run_step s = {.steps = t->steps};
    s.lr = optim_lr(&run->config.optim, run->step, t->steps);
    s.report = due(run->step + 1, t->log_every) || run->step + 1 == t->steps;
    enum sotto_status st = run->strategy->ops->round(run->strategy, s.lr, s.report, &s.round);
    if (st != SOTTO_OK)
        return fail_in(st, "step %lld: ", (long long)run->step + 1);
    run->step++;
    run->tokens += s.round.tokens;
    const double now = clock_now(&clock_real);
    s.step = run->step;
    s.seconds = now - before;
    double elapsed = now - pace->since;
    s.tokens_per_s = elapsed > 0 ? (double)(run->tokens - pace->tokens) / elapsed : 0;
    s.eta = elapsed / (double)(run->step - pace->step) * (double)(t->steps - run->step);
    if (run->watch.step)
        run->watch.step(run->watch.arg, &s);
    if (s.report) {
        report(run, &s);
        *pace = (struct pace){now, run->tokens, run->step};
    }
    return SOTTO_OK;
}

static enum sotto_status save_now(struct run *run)
{
    return fail_in(run_save(run), "step %lld: ", (long long)run->step);
}

static bool asked_to_stop(const struct run *run)
{
    return run->watch.stop && *run->watch.stop;
}

enum sotto_status run_train(struct run *run)
{
    const struct train_config *t = &run->config.train;
    struct pace pace = {clock_now(&clock_real), run->tokens, run->step};
    int64_t saved = run->resumed ? run->step : -1; /* the step of the newest checkpoint */
    while (run->step < t->steps && !asked_to_stop(run)) {
        TRY(one_round(run, &pace));
        bool last = run->step == t->steps;
        if (due(run->step, t->eval_every) || last) {
            double begin = clock_now(&clock_real);
            TRY(evaluate_now(run));
            pace.since += clock_now(&clock_real) - begin; /* not the training's time */
        }
        if (due(run->step, t->save_every) || last) {
            double begin = clock_now(&clock_real);
            TRY(save_now(run));
            saved = run->step;
            pace.since += clock_now(&clock_real) - begin;
        }
    }
    if (run->step != saved)
        TRY(save_now(run));
    if (run->step >= t->steps)
        return SOTTO_OK;
    return fail(SOTTO_ESTOPPED, "stopped at step %lld of %lld; everything is saved in %s",
                (long long)run->step, (long long)t->steps, t->out);
}
