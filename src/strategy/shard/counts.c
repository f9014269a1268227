/* The counts of a round: micro-batches, targets and losses, of this worker and then of all. */
#include "strategy/shard/shard.h"

#include <math.h>

static enum sotto_status count_microbatch(struct shard *s, int slot, int64_t index,
                                          struct device *dev)
{
    struct oracle_result r;
    TRY(oracle_result(s->is.oracle, slot, dev, &r));
    if (!isfinite(r.loss))
        return fail(SOTTO_ENUMERIC, "the loss of micro-batch %lld is %f", (long long)index, r.loss);
    s->counts.loss += r.loss;
    s->counts.targets += (double)r.targets;
    s->counts.tokens += (double)r.tokens;
    s->counts.microbatches++;
    return SOTTO_OK;
}

enum sotto_status shard_count(struct shard *s, int slot, int64_t index)
{
    return count_microbatch(s, slot, index, NULL);
}

enum sotto_status counts_sum(const struct shard *s, struct counts *c)
{
    const struct mesh *mesh = s->is.mesh;
    double *all = (double *)c; /* parts, which follow, are not summed */
    const struct replicate_ops *r = s->replicate->ops;
    TRY(comm_sum(r->sums_gradient ? mesh->lane_world : mesh->lane_shard, all, COUNTS));
    c->parts = s->is.config->weight == WEIGHT_TOKENS ? c->targets : c->microbatches;
    if (r->in_step && !r->sums_gradient)
        TRY(comm_sum(mesh->lane_replicate, all, COUNTS));
    return SOTTO_OK;
}

static enum sotto_status sum_counts_job(void *arg)
{
    struct shard *s = arg;
    return counts_sum(s, &s->counts);
}

enum sotto_status shard_count_sum(struct shard *s)
{
    return lane_start(s->is.mesh->lane, sum_counts_job, s);
}

/* Reads the loss in the lane, after the backward of the last stage, while other stages run. */
static enum sotto_status count_last_job(void *arg)
{
    struct shard *s = arg;
    TRY(count_microbatch(s, 0, s->last, s->is.mesh->lane->dev));
    return sum_counts_job(s);
}

enum sotto_status shard_count_last(struct shard *s, int64_t index)
{
    s->last = index;
    return lane_start(s->is.mesh->lane, count_last_job, s);
}

void shard_fill_agreed(struct shard *s, const struct counts *c, struct round *out)
{
    const struct replicate *r = s->replicate;
    if (r->ops->in_step) {
        s->agreed = (struct agreed){.rounds = 1,
                                    .tokens = out->tokens,
                                    .microbatches = out->microbatches,
                                    .seconds = c->seconds / c->workers};
        out->agreed = &s->agreed;
        out->stop = c->votes.stop > 0;
        out->save = c->votes.save > 0;
    } else {
        out->agreed = r->outcome.agreed.rounds ? &r->outcome.agreed : NULL;
        out->stop = r->outcome.stop;
        out->save = r->outcome.save;
    }
}

/* Until groups exchange, the other groups are assumed to do the same work as this group. */
void shard_fill_round(struct shard *s, const struct counts *c, struct round *out)
{
    const struct replicate *r = s->replicate;
    const double groups = r->ops->in_step ? 1 : r->weights;
    out->targets = (int64_t)(groups * c->targets);
    out->tokens = (int64_t)(groups * c->tokens);
    out->microbatches = (int64_t)(groups * c->microbatches);
    out->own_tokens = (int64_t)c->tokens;
    out->own_microbatches = (int64_t)c->microbatches;
    out->loss = c->targets > 0 ? c->loss / c->targets : 0;
    out->whole = r->ops->in_step || s->is.mesh->n_r == 1;
    out->idle = r->idle;
    shard_fill_agreed(s, c, out);
}

void shard_pass_counts(struct shard *s, const struct counts *c)
{
    s->replicate->own = (struct replicate_own){.tokens = c->tokens,
                                               .microbatches = c->microbatches,
                                               .loss = c->loss,
                                               .targets = c->targets,
                                               .seconds = c->seconds / c->workers,
                                               .stop = c->votes.stop > 0,
                                               .save = c->votes.save > 0,
                                               .meet = c->votes.meet > 0};
}

double shard_scale(const struct shard *s, const struct counts *all)
{
    double parts = all->parts;
    if (shard_alone(s))
        parts = s->is.config->weight == WEIGHT_TOKENS ? all->targets : all->microbatches;
    return parts > 0 ? 1 / parts : 0;
}
