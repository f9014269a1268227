/* A stage's step in cyclic data parallelism: theta_{t+1} from theta_t and the sum of gradients,
 * made by the worker that has the optimizer's state in that step. */
#include "strategy/cdp/cdp.h"

#include <assert.h>
#include <math.h>

#include "tensor/ops.h"

/* Computes the factor that clips the updates of all stages, if stages wait for each other. */
static enum sotto_status clip_factor(struct cdp *c, double scale, double *factor)
{
    struct shard *s = &c->shard;
    double squared = 0;
    for (int k = 0; k < c->is.n; k++) {
        const struct cdp_stage *st = &c->stage[k];
        double sum;
        if (cdp_update_device(&c->is, c->t, k) != c->device)
            continue;
        TRY(work_sum_squares(
            &s->on, &(struct vector_pair){.x = st->g[c->t & 1], .count = st->count}, 1, &sum));
        squared += sum;
    }
    if (c->devices > 1 && c->is.placement != CDP_DP) /* in dp the last device has all sums */
        TRY(comm_sum(s->is.mesh->shard, &squared, 1));
    squared *= scale * scale;
    if (!isfinite(squared))
        return fail(SOTTO_ENUMERIC, "the gradient's norm is %f", sqrt(squared));
    *factor = optim_clip(s->is.optim, squared);
    return SOTTO_OK;
}

/* All gradients of the step are complete at the first update if stages wait for each other. */
enum sotto_status cdp_clip(struct cdp *c)
{
    if (c->round.clip > 0)
        return SOTTO_OK;
    TRY(cdp_wait_total(c));
    return clip_factor(c, 1 / c->sums.total[c->t & 1].parts, &c->round.clip);
}

struct cdp_step {
    struct optim *optim;
    struct part part;
    double lr, scale;
};

static enum sotto_status step_stage(void *arg)
{
    struct cdp_step *step = arg;
    optim_step_some(step->optim, &step->part, 1, step->lr, step->scale);
    return device_failed(step->optim->dev);
}

/* Makes the newest version the older one, and leaves a place to write the next. */
static enum sotto_status make_version_place(struct cdp *c, struct cdp_stage *st)
{
    const bool copied = st->room->x.dev;
    TRY(cdp_wait_message(&c->out, st->theta_sent[st->two && copied]));
    if (!st->two)
        return SOTTO_OK;
    if (copied) {
        cdp_advance_version(st, st->version);
        return SOTTO_OK;
    }
    TRY(cdp_wait_message(&c->out, st->theta_sent[1]));
    return work_copy(&c->shard.on, st->theta[1], st->theta[0], st->count);
}

/* Computes theta_{t+1} of a stage. */
enum sotto_status cdp_update(struct cdp *c, const struct cdp_update *u)
{
    struct shard *s = &c->shard;
    struct cdp_stage *st = &c->stage[u->stage];
    const struct view g = st->g[u->step & 1];
    assert(st->owned && st->room && st->version == u->step && u->step == c->t);
    TRY(cdp_wait_total(c));
    TRY(cdp_clip(c));
    const double scale = c->round.clip / c->sums.total[u->step & 1].parts;
    if (c->round.plan->want_norm) {
        double sum;
        TRY(work_sum_squares(&s->on, &(struct vector_pair){.x = g, .count = st->count}, 1, &sum));
        c->round.squares += sum * (scale / c->round.clip) * (scale / c->round.clip);
    }
    TRY(make_version_place(c, st));
    const bool copied = st->room->x.dev;
    struct cdp_step step = {.optim = &st->steps, .lr = c->round.plan->lr, .scale = scale};
    step.part = (struct part){.end = st->count,
                              .x = cdp_truth(st),
                              .theta = copied ? st->theta[0] : view_none,
                              .copied = copied,
                              .g = g};
    st->steps.t = s->replicate->optim.t;
    TRY(work_run(&s->on, step_stage, &step,
                 optim_bytes(&st->steps, st->count, g.type,
                             copied ? dtype_size(st->theta[0].type) : 0, false)));
    st->version++;
    return SOTTO_OK;
}
