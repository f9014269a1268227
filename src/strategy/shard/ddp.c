/* Data parallelism: every worker has all parameters, gradients are averaged over all workers, and
 * everybody makes the same step. The sum of a stage starts as soon as its backward is done and
 * overlaps the rest of backward.
 *
 * Alone (no mesh) it is plain training, which every method must equal when it runs with one worker.
 */
#include "strategy/strategy.h"

#include <math.h>
#include <stdlib.h>

#include "tensor/ops.h"

struct ddp;

/* The sum of one stage's gradient over the workers, in the lane. */
struct stage_sum {
    struct ddp *ddp;
    int k;
};

struct ddp {
    struct strategy base;
    const struct strategy_config *config;
    struct oracle *oracle;
    struct device *dev;
    struct buffer x;     /* fp32 truth                                */
    struct buffer theta; /* mixed: x rounded to bf16; fp32: not there */
    struct buffer g;
    struct view *theta_stage, *g_stage; /* (n_stage) */
    struct optim optim;
    int64_t next;          /* micro-batch                        */
    struct mesh *mesh;     /* not owned; NULL: one worker, alone */
    struct stage_sum *sum; /* (n_stage)                          */
};

static enum sotto_status sum_stage(void *arg)
{
    const struct stage_sum *job = arg;
    const struct ddp *d = job->ddp;
    struct view g = d->g_stage[job->k];
    return comm_allreduce(d->mesh->lane_world, g, g, table_stage_count(d->oracle->table, job->k));
}

/* g += grad f_i; after the last micro-batch a stage is complete here and its sum over the workers
 * begins. */
static enum sotto_status add_gradient(struct ddp *d, int64_t index, bool last,
                                      struct oracle_result *r)
{
    const int n = d->oracle->table->n_stage;
    TRY(oracle_begin(d->oracle, index, d->config->weight == WEIGHT_TOKENS));
    for (int k = 0; k < n; k++)
        TRY(oracle_forward(d->oracle, k, d->theta_stage));
    for (int k = n - 1; k >= 0; k--) {
        TRY(oracle_backward(d->oracle, k, d->theta_stage, d->g_stage)); /* g_k complete         */
        if (last && d->mesh)
            TRY(lane_start(d->mesh->lane, sum_stage, &d->sum[k])); /* overlaps backward k-1 */
    }
    *r = d->oracle->ops->result(d->oracle);
    if (!isfinite(r->loss))
        return fail(SOTTO_ENUMERIC, "the loss of micro-batch %lld is %f", (long long)index,
                    r->loss);
    return SOTTO_OK;
}

/* The counts of all workers, and their losses. */
static enum sotto_status sum_counts(struct ddp *d, double *loss, struct round *out)
{
    double all[4] = {*loss, (double)out->targets, (double)out->tokens, (double)out->microbatches};
    TRY(comm_sum(d->mesh->worker->world, all, 4));
    *loss = all[0];
    out->targets = (int64_t)all[1];
    out->tokens = (int64_t)all[2];
    out->microbatches = (int64_t)all[3];
    return SOTTO_OK;
}

static enum sotto_status accumulate(struct ddp *d, struct round *out)
{
    const int n = d->config->accumulate;
    double loss = 0;
    for (int i = 0; i < n; i++) {
        struct oracle_result r;
        TRY(add_gradient(d, d->next + i, i == n - 1, &r));
        loss += r.loss;
        out->targets += r.targets;
        out->tokens += r.tokens;
        out->microbatches++;
    }
    if (d->mesh) {
        TRY(sum_counts(d, &loss, out));
        TRY(lane_wait(d->mesh->lane)); /* g = sum_i g_i */
    }
    out->loss = out->targets ? loss / (double)out->targets : 0;
    return SOTTO_OK;
}

static enum sotto_status one_round(struct ddp *d, double lr, bool want_norm, struct round *out)
{
    const struct ops *ops = d->dev->ops;
    const struct optim_config *c = d->optim.config;
    *out = (struct round){.grad_norm = -1};
    ops->fill(d->dev, d->g.view, d->g.count, 0);
    TRY(accumulate(d, out));
    int64_t parts = d->config->weight == WEIGHT_TOKENS ? out->targets : out->microbatches;
    double scale = parts ? 1 / (double)parts : 0;
    if (c->clip > 0 || want_norm) {
        double squared = ops->sum_squares(d->dev, d->g.view, d->g.count) * scale * scale;
        out->grad_norm = sqrt(squared);
        if (!isfinite(out->grad_norm))
            return fail(SOTTO_ENUMERIC, "the gradient's norm is %f", out->grad_norm);
        scale *= optim_clip(c, squared);
    }
    optim_step(&d->optim, d->x.view, d->theta.view, d->g.view, lr, scale);
    d->next += d->config->accumulate;
    return device_check(d->dev);
}

static enum sotto_status run_round(struct strategy *s, double lr, bool want_norm, struct round *out)
{
    struct ddp *d = (struct ddp *)s;
    enum sotto_status st = one_round(d, lr, want_norm, out);
    return st != SOTTO_OK && d->mesh ? mesh_abort(d->mesh, st) : st;
}

static enum sotto_status gather(struct strategy *s, const struct view **theta)
{
    *theta = ((struct ddp *)s)->theta_stage;
    return SOTTO_OK;
}

static enum sotto_status export(struct strategy *s, float *flat) {
    struct ddp *d = (struct ddp *)s; d->dev->ops->read(d->dev, flat, d->x.view, d->x.count);
    return device_check(d->dev);
}

static enum sotto_status import(struct strategy *s, const float *flat)
{
    struct ddp *d = (struct ddp *)s;
    d->dev->ops->write(d->dev, d->x.view, flat, d->x.count);
    if (d->theta.dev)
        d->dev->ops->copy(d->dev, d->theta.view, d->x.view, d->x.count);
    return device_check(d->dev);
}

static enum sotto_status visit(struct strategy *s, struct state_visitor *v)
{
    struct ddp *d = (struct ddp *)s;
    TRY(state_int(v, "microbatch", &d->next));
    TRY(state_int(v, "optim.t", &d->optim.t));
    for (int i = 0; i < d->optim.ops->states; i++) {
        if (!d->optim.state[i].dev)
            continue;
        TRY(state_enter(v, d->optim.ops->state_name[i]));
        TRY(state_table(v, d->oracle->table, 0, 1, MEMORY_OPTIMIZER, d->dev,
                        d->optim.state[i].view));
        state_leave(v);
    }
    return SOTTO_OK;
}

static void free_ddp(struct strategy *s)
{
    struct ddp *d = (struct ddp *)s;
    optim_free(&d->optim);
    buffer_free(&d->x);
    buffer_free(&d->theta);
    buffer_free(&d->g);
    free(d->theta_stage);
    free(d->g_stage);
    free(d->sum);
    free(d);
}

static const struct strategy_ops ddp_ops = {
    .name = "ddp",
    .round = run_round,
    .gather = gather,
    .export = export,
    .import = import,
    .visit = visit,
    .free = free_ddp,
};

enum sotto_status strategy_ddp(struct strategy **out, const struct strategy_config *config,
                               const struct optim_config *optim, struct oracle *oracle,
                               struct device *dev, struct mesh *mesh)
{
    *out = NULL;
    const struct table *table = oracle->table;
    const size_t count = table_count(table);
    const bool mixed = config->precision == PRECISION_MIXED;
    const enum dtype type = mixed ? DTYPE_BF16 : DTYPE_F32;
    struct ddp *d = calloc(1, sizeof *d);
    if (!d)
        return fail(SOTTO_ENOMEM, "no memory for the strategy");
    d->base.ops = &ddp_ops;
    d->config = config;
    d->oracle = oracle;
    d->dev = dev;
    d->mesh = mesh;
    enum sotto_status st = SOTTO_OK;
    d->theta_stage = calloc((size_t)table->n_stage, sizeof *d->theta_stage);
    d->g_stage = calloc((size_t)table->n_stage, sizeof *d->g_stage);
    d->sum = calloc((size_t)table->n_stage, sizeof *d->sum);
    if (!d->theta_stage || !d->g_stage || !d->sum)
        st = fail(SOTTO_ENOMEM, "no memory for %d stages", table->n_stage);
    if (st == SOTTO_OK)
        st =
            buffer_init(&d->x, dev, DTYPE_F32, count, mixed ? MEMORY_OPTIMIZER : MEMORY_PARAMETERS);
    if (st == SOTTO_OK && mixed)
        st = buffer_init(&d->theta, dev, type, count, MEMORY_PARAMETERS);
    if (st == SOTTO_OK)
        st = buffer_init(&d->g, dev, type, count, MEMORY_GRADIENTS);
    if (st == SOTTO_OK)
        st = optim_init(&d->optim, optim, dev, table, 0, 1);
    if (st != SOTTO_OK) {
        free_ddp(&d->base);
        return st;
    }
    table_stages(table, mixed ? d->theta.view : d->x.view, d->theta_stage);
    table_stages(table, d->g.view, d->g_stage);
    for (int k = 0; k < table->n_stage; k++)
        d->sum[k] = (struct stage_sum){d, k};
    *out = &d->base;
    return SOTTO_OK;
}
