/* What a step of cyclic data parallelism has counted, and how everybody comes to know it: each
 * worker sends its few numbers to the one that computes the last loss as soon as it has them, and
 * that one sends their sum to all. They are in the mesh's lane, beside the computing; who makes an
 * update has them first, so that nothing moves when a loss is no number. */
#include "strategy/cdp/cdp.h"

#include <assert.h>
#include <math.h>

#include "tensor/ops.h"

static enum sotto_status tell(struct cdp *c, lane_job *job, void *arg)
{
    TRY(lane_start(c->shard.is.mesh->lane, job, arg));
    c->told++;
    return SOTTO_OK;
}

static enum sotto_status count(void *arg)
{
    const struct cdp_flight *f = arg;
    struct cdp *c = f->cdp;
    struct counts *n = &c->own[f->step & 1];
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

enum sotto_status cdp_note(struct cdp *c, struct cdp_flight *f)
{
    TRY(tell(c, count, f));
    f->counted = c->told;
    return SOTTO_OK;
}

/* Doubles travel as pairs of floats. */
static struct view numbers(struct counts *n)
{
    return view_of(n, DTYPE_F32);
}
enum { WORDS = COUNTS * sizeof(double) / sizeof(float) };

static void add(struct counts *sum, const struct counts *n)
{
    sum->loss += n->loss;
    sum->targets += n->targets;
    sum->tokens += n->tokens;
    sum->microbatches += n->microbatches;
    sum->stop += n->stop;
    sum->workers += n->workers;
    sum->seconds += n->seconds;
}

/* In the order of devices, which in dp is that of micro-batches. */
static enum sotto_status collect(struct cdp *c, const struct counts *own, struct counts *total)
{
    struct comm *group = c->shard.is.mesh->lane_shard;
    struct counts sum = {0};
    for (int d = 0; d < c->devices; d++) {
        struct counts n = *own;
        if (d != c->device)
            TRY(comm_recv(group, numbers(&n), WORDS, d));
        add(&sum, &n);
    }
    for (int d = 0; d < c->devices; d++)
        if (d != c->device)
            TRY(comm_send(group, numbers(&sum), WORDS, d));
    *total = sum;
    return SOTTO_OK;
}

static int last_device(const struct cdp *c, int64_t step)
{
    return cdp_device(&c->is, step, c->is.n - 1, c->is.n - 1);
}

/* Steps are reported one behind the other, so the lane knows which it is. */
static enum sotto_status report(void *arg)
{
    struct cdp *c = arg;
    const int64_t step = c->telling++;
    struct counts *own = &c->own[step & 1];
    const int last = last_device(c, step);
    if (c->device == last)
        TRY(collect(c, own, &c->total[step & 1]));
    else
        TRY(comm_send(c->shard.is.mesh->lane_shard, numbers(own), WORDS, last));
    *own = (struct counts){0};
    return SOTTO_OK;
}

static enum sotto_status hear(void *arg)
{
    struct cdp *c = arg;
    const int64_t step = c->hearing++;
    struct counts *total = &c->total[step & 1];
    const int last = last_device(c, step);
    if (c->device != last)
        TRY(comm_recv(c->shard.is.mesh->lane_shard, numbers(total), WORDS, last));
    total->parts = c->shard.is.config->weight == WEIGHT_TOKENS ? total->targets : c->is.n;
    return SOTTO_OK;
}

/* Only of the step that the round makes: between rounds lanes come to rest. */
enum sotto_status cdp_hear(struct cdp *c)
{
    TRY(tell(c, hear, c));
    c->agreed = c->told;
    return SOTTO_OK;
}

enum sotto_status cdp_report(struct cdp *c, int64_t step)
{
    struct counts *own = &c->own[step & 1];
    assert(step == c->reported + 1);
    own->workers = 1; /* the lane adds to other fields, and reads these behind its start */
    own->stop = c->plan ? c->plan->stop + (c->plan->save ? STOP_SAVE : 0) : 0;
    own->seconds = c->plan ? c->plan->seconds : 0;
    TRY(tell(c, report, c));
    c->reported = step;
    return step == c->t ? cdp_hear(c) : SOTTO_OK;
}

enum sotto_status cdp_counted(struct cdp *c, uint64_t job)
{
    return lane_wait_but(c->shard.is.mesh->lane, (size_t)(c->told - job));
}

enum sotto_status cdp_agree(struct cdp *c)
{
    return cdp_counted(c, c->agreed);
}

/* The lane may be waiting for the step behind this one, so this is on the worker's own line. */
enum sotto_status cdp_norm(struct cdp *c, struct round *out)
{
    struct comm *group = c->shard.is.mesh->shard;
    double sum = c->squares, theirs;
    enum { PAIR = sizeof(double) / sizeof(float) };
    if (c->device > 0)
        return comm_send(group, view_of(&sum, DTYPE_F32), PAIR, 0);
    for (int d = 1; d < c->devices; d++) {
        TRY(comm_recv(group, view_of(&theirs, DTYPE_F32), PAIR, d));
        sum += theirs;
    }
    out->grad_norm = sqrt(sum);
    return isfinite(sum) ? SOTTO_OK
                         : fail(SOTTO_ENUMERIC, "the gradient's norm is %f", out->grad_norm);
}
