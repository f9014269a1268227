/* The results of a run: what rank 0 leaves in run->result for its report. */
#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "train/checkpoint/save.h"
#include "train/loop/loop.h"

/* Warns of tasks in progress at the end of train.seconds: a resumed run trains the tasks that the
 * shorter run would have pushed. */
static void warn_of_tasks(const struct loop *l)
{
    const struct training *t = l->t;
    const struct run_config *c = t->config;
    const int64_t pushed = l->w->totals.pushed_samples, samples = t->count.samples - pushed;
    const int64_t step = (int64_t)t->mesh.n_s * c->strategy.accumulate * c->train.batch;
    if (!l->late || samples <= 0)
        return;
    log_warn("train.seconds = %g ended the run in the middle of tasks: %lld steps of its %d groups "
             "that were not pushed are in the checkpoint, and not in the model%s; with more "
             "seconds the run continues them",
             c->train.seconds, (long long)(samples / step), t->mesh.n_r,
             pushed > 0 ? "" : ", which is as it was at the start");
}

/* Of asynchronous groups: counts the samples of the model, and each group's pushes. */
static enum sotto_status count_pushes(const struct loop *l, struct run_result *result)
{
    const struct training *t = l->t;
    if (!t->strategy->async || !loop_leads(l))
        return SOTTO_OK;
    warn_of_tasks(l);
    result->tokens = l->w->totals.pushed_tokens;
    result->samples = l->w->totals.pushed_samples;
    result->group = calloc((size_t)t->mesh.n_r, sizeof *result->group);
    if (!result->group)
        return fail(SOTTO_ENOMEM, "no memory for the report of %d groups", t->mesh.n_r);
    return async_totals(t->strategy->async, result->group);
}

/* Bytes: the peak of the activations in use. */
static size_t live_activations(const struct run_worker *w)
{
    const bool null = w->training.oracle == &w->oracle.null.base;
    return null ? w->training.memory.peak[MEMORY_ACTIVATIONS] : w->oracle.pool.peak;
}

static struct run_result run_result_of(const struct loop *l)
{
    const struct training *t = l->t;
    const struct run_totals *s = &l->w->totals;
    return (struct run_result){
        .complete = t->step >= l->rounds,
        .rounds = t->step - l->began,
        .step = t->step,
        .steps = l->rounds > t->step ? l->rounds : t->step,
        .tokens = t->count.tokens,
        .samples = t->count.samples,
        .loss = s->tail_reports ? s->tail_loss / (double)s->tail_reports : NAN,
        .cosine = s->cosines ? s->cosine / (double)s->cosines : NAN,
        .evaluation = s->evaluation,
        .best = s->best,
    };
}

enum sotto_status loop_sum_up(struct loop *l)
{
    const int size = l->t->worker->size;
    struct run_result result = run_result_of(l);
    result.worker = calloc((size_t)size, sizeof *result.worker);
    if (!result.worker)
        return fail(SOTTO_ENOMEM, "no memory for the report of %d workers", size);
    enum sotto_status st = training_report(l->t, live_activations(l->w), result.worker);
    if (st == SOTTO_OK && run_keeps(l->run))
        st = checkpoint_hash(l->w, &result.hash);
    for (int i = 0; i < size; i++)
        result.seconds = fmax(result.seconds, result.worker[i].cost.seconds);
    if (st == SOTTO_OK)
        st = count_pushes(l, &result);
    if (st == SOTTO_OK && loop_leads(l)) {
        l->run->result = result;
        return SOTTO_OK;
    }
    free(result.worker);
    free(result.group);
    return st;
}
