/* Counts of a step of cyclic data parallelism, summed over the workers: each worker sends its
 * counts to the worker that computes the step's last loss as soon as they are complete, and that
 * worker sends the sum to all. Messages are in the mesh's lane, in parallel with the computing. A
 * worker waits for the sum before an update, so that nothing moves if a loss is not a number. */
#include "strategy/cdp/cdp.h"

#include <assert.h>
#include <math.h>

#include "tensor/ops.h"

static enum sotto_status start_report_job(struct cdp *c, lane_job *job, void *arg)
{
    TRY(lane_start(c->shard.is.mesh->lane, job, arg));
    c->sums.jobs++;
    return SOTTO_OK;
}

static enum sotto_status count_loss_job(void *arg)
{
    const struct cdp_flight *f = arg;
    struct cdp *c = f->cdp;
    struct counts *n = &c->sums.own[f->step & 1];
    struct oracle_result r;
    TRY(oracle_result(c->shard.is.oracle, f->slot, c->shard.is.mesh->lane->dev, &r));
    if (!isfinite(r.loss))
        return fail(SOTTO_ENUMERIC, "the loss of micro-batch %lld is %f",
                    (long long)(f->step * c->is.n + f->micro) / c->devices, r.loss);
    n->loss += r.loss;
    n->targets += (double)r.targets;
    n->tokens += (double)r.tokens;
    n->microbatches++;
    return SOTTO_OK;
}

enum sotto_status cdp_count_loss(struct cdp *c, struct cdp_flight *f)
{
    TRY(start_report_job(c, count_loss_job, f));
    f->counted = c->sums.jobs;
    return SOTTO_OK;
}

enum { COUNTS_BYTES = COUNTS * sizeof(double) }; /* of a message: the counts without `parts` */

static void add_counts(struct counts *sum, const struct counts *n)
{
    sum->loss += n->loss;
    sum->targets += n->targets;
    sum->tokens += n->tokens;
    sum->microbatches += n->microbatches;
    sum->votes.stop += n->votes.stop;
    sum->votes.save += n->votes.save;
    sum->workers += n->workers;
    sum->seconds += n->seconds;
}

/* Receives all counts in the order of devices, which in dp is the order of micro-batches. */
static enum sotto_status collect_counts(struct cdp *c, const struct counts *own,
                                        struct counts *total)
{
    struct comm *group = c->shard.is.mesh->lane_shard;
    struct counts sum = {0};
    for (int d = 0; d < c->devices; d++) {
        struct counts n = *own;
        if (d != c->device)
            TRY(comm_recv_bytes(group, &n, COUNTS_BYTES, d));
        add_counts(&sum, &n);
    }
    for (int d = 0; d < c->devices; d++)
        if (d != c->device)
            TRY(comm_send_bytes(group, &sum, COUNTS_BYTES, d));
    *total = sum;
    return SOTTO_OK;
}

static int last_device(const struct cdp *c, int64_t step)
{
    return cdp_device(&c->is, step, c->is.n - 1, c->is.n - 1);
}

/* Sends the counts of step `sending`: steps are reported in order. */
static enum sotto_status send_counts_job(void *arg)
{
    struct cdp *c = arg;
    const int64_t step = c->sums.sending++;
    struct counts *own = &c->sums.own[step & 1];
    const int last = last_device(c, step);
    if (c->device == last)
        TRY(collect_counts(c, own, &c->sums.total[step & 1]));
    else
        TRY(comm_send_bytes(c->shard.is.mesh->lane_shard, own, COUNTS_BYTES, last));
    *own = (struct counts){0};
    return SOTTO_OK;
}

static enum sotto_status receive_total_job(void *arg)
{
    struct cdp *c = arg;
    const int64_t step = c->sums.receiving++;
    struct counts *total = &c->sums.total[step & 1];
    const int last = last_device(c, step);
    if (c->device != last)
        TRY(comm_recv_bytes(c->shard.is.mesh->lane_shard, total, COUNTS_BYTES, last));
    total->parts = c->shard.is.config->weight == WEIGHT_TOKENS ? total->targets : c->is.n;
    return SOTTO_OK;
}

/* Called only for the step of the round, since lanes are at rest between rounds. */
enum sotto_status cdp_receive_total(struct cdp *c)
{
    TRY(start_report_job(c, receive_total_job, c));
    c->sums.total_job = c->sums.jobs;
    return SOTTO_OK;
}

enum sotto_status cdp_send_counts(struct cdp *c, int64_t step)
{
    struct counts *own = &c->sums.own[step & 1];
    const struct plan *plan = c->round.plan;
    assert(step == c->sums.reported + 1);
    /* The lane writes other fields of `own`, and reads these three after the start. */
    own->workers = 1;
    own->votes = (struct votes){.stop = plan && plan->stop, .save = plan && plan->save};
    own->seconds = plan ? plan->seconds : 0;
    TRY(start_report_job(c, send_counts_job, c));
    c->sums.reported = step;
    return step == c->t ? cdp_receive_total(c) : SOTTO_OK;
}

enum sotto_status cdp_wait_report(struct cdp *c, uint64_t job)
{
    return lane_wait_but(c->shard.is.mesh->lane, (size_t)(c->sums.jobs - job));
}

enum sotto_status cdp_wait_total(struct cdp *c)
{
    return cdp_wait_report(c, c->sums.total_job);
}

/* Runs on the worker's own line: the lane may be waiting for the following step. */
enum sotto_status cdp_sum_norm(struct cdp *c, struct round *out)
{
    struct comm *group = c->shard.is.mesh->shard;
    double sum = c->round.squares, theirs;
    if (c->device > 0)
        return comm_send_bytes(group, &sum, sizeof sum, 0);
    for (int d = 1; d < c->devices; d++) {
        TRY(comm_recv_bytes(group, &theirs, sizeof theirs, d));
        sum += theirs;
    }
    out->grad_norm = sqrt(sum);
    return isfinite(sum) ? SOTTO_OK
                         : fail(SOTTO_ENUMERIC, "the gradient's norm is %f", out->grad_norm);
}
