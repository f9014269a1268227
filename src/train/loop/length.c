/* Estimates how many rounds a run takes, by the rounds so far and the workers' clocks. */
#include "train/loop/loop.h"

#include <math.h>

#include "base/log.h"

void loop_estimate_length(struct loop *l, const struct agreed *a)
{
    const struct run_config *c = l->t->config;
    struct budget_spent *spent = &l->spent;
    if (a) {
        spent->rounds += a->rounds;
        spent->tokens += a->tokens;
        spent->samples += a->microbatches * c->train.batch;
        if (!l->clock) {
            spent->timed = spent->rounds - 1; /* the clock was read before the last round */
            spent->seconds = a->seconds;
        }
    }
    if (l->length)
        return;
    /* Asynchronous groups divide their data by the length, which does not change. */
    const struct budget_spent none = {0};
    l->rounds =
        budget_rounds(&c->train, l->t->strategy->async ? &none : spent,
                      (int64_t)l->t->worker->size * c->strategy.accumulate * c->train.batch);
}

void loop_end_at(struct loop *l, int64_t step)
{
    struct best *b = &l->w->totals.best;
    l->length = l->rounds;
    l->rounds = b->ends = step;
    if (loop_leads(l))
        log_info("the held-out loss was lowest at step %lld, %.4f, and %lld evaluations since then "
                 "(train.patience = %lld) have found none below it: the run ends with step %lld",
                 (long long)b->step, b->loss, (long long)b->since,
                 (long long)l->t->config->train.patience, (long long)step);
}

bool run_warn_rare(const struct run *run, int64_t rounds)
{
    const struct strategy_config *c = &run->config.strategy;
    char key[OPTION_ROOM];
    bool meets = false;
    const int64_t every = strategy_every(c, key, &meets);
    if (c->groups == 1 || every <= rounds || rounds <= 0)
        return false;
    log_warn("%s = %lld is more than the %lld steps of this run: %s", key, (long long)every,
             (long long)rounds,
             strategy_async(c) ? "each group pushes once, when it is done"
             : meets           ? "its groups exchange once, at the end"
                     : "its groups train without an exchange, and the model is their mean");
    return true;
}

void run_warn_strategy(const struct run *run)
{
    const struct run_config *c = &run->config;
    strategy_warn(&c->strategy, c->train.oracle == ORACLE_NULL ? NULL : &c->optim,
                  table_count(run->table));
}

void loop_warn_rare(struct loop *l)
{
    if (loop_leads(l) && !l->warned)
        l->warned = run_warn_rare(l->run, l->rounds);
}

enum sotto_status loop_read_clocks(struct loop *l)
{
    struct training *t = l->t;
    const double mine = meter_read(&t->meter).seconds;
    TRY(comm_gather_bytes(t->worker->world, l->clock, &mine, sizeof mine));
    l->spent.timed = t->step;
    l->spent.seconds = 0;
    for (int i = 0; i < t->worker->size; i++)
        l->spent.seconds = fmax(l->spent.seconds, l->clock[i]);
    return SOTTO_OK;
}

enum sotto_status loop_compare_clocks(struct loop *l)
{
    struct training *t = l->t;
    if (!l->clock || t->step < l->compare || t->step >= l->rounds)
        return SOTTO_OK;
    const double before = clock_now(t->worker->clock);
    TRY(loop_read_clocks(l));
    loop_estimate_length(l, NULL);
    if (l->rounds <= t->step)
        l->rounds = t->step + 1;
    if (t->step > 1) /* the first round takes longer */
        loop_warn_rare(l);
    l->compare = budget_compare(t->step, l->rounds);
    l->between = clock_now(t->worker->clock) - before;
    return SOTTO_OK;
}
