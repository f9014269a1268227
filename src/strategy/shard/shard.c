#include "strategy/shard/shard.h"

#include <math.h>
#include <stdlib.h>

#include "tensor/ops.h"

enum sotto_status shard_init(struct shard *s, const struct strategy_ops *ops,
                             const struct strategy_config *config, struct oracle *oracle,
                             struct device *dev, struct mesh *mesh)
{
    const int n = oracle->table->n_stage;
    s->base.ops = ops;
    s->config = config;
    s->oracle = oracle;
    s->dev = dev;
    s->mesh = mesh;
    s->theta_stage = calloc((size_t)n, sizeof *s->theta_stage);
    s->g_stage = calloc((size_t)n, sizeof *s->g_stage);
    s->job = calloc((size_t)n, sizeof *s->job);
    if (!s->theta_stage || !s->g_stage || !s->job)
        return fail(SOTTO_ENOMEM, "no memory for %d stages", n);
    for (int k = 0; k < n; k++)
        s->job[k] = (struct stage_job){s, k};
    return SOTTO_OK;
}

void shard_free(struct shard *s)
{
    free(s->theta_stage);
    free(s->g_stage);
    free(s->job);
}

enum sotto_status shard_finite(int64_t index, const struct oracle_result *r)
{
    if (!isfinite(r->loss))
        return fail(SOTTO_ENUMERIC, "the loss of micro-batch %lld is %f", (long long)index,
                    r->loss);
    return SOTTO_OK;
}

/* g += grad f_i; after the last micro-batch a stage is complete here and its sum over the workers
 * begins. */
static enum sotto_status add_gradient(struct shard *s, int64_t index, lane_job *complete,
                                      struct oracle_result *r)
{
    const int n = s->oracle->table->n_stage;
    TRY(oracle_begin(s->oracle, index, s->config->weight == WEIGHT_TOKENS));
    for (int k = 0; k < n; k++)
        TRY(oracle_forward(s->oracle, k, s->theta_stage));
    for (int k = n - 1; k >= 0; k--) {
        TRY(oracle_backward(s->oracle, k, s->theta_stage, s->g_stage)); /* g_k complete         */
        if (complete)
            TRY(lane_start(s->mesh->lane, complete, &s->job[k])); /* overlaps backward k-1 */
    }
    *r = s->oracle->ops->result(s->oracle);
    return shard_finite(index, r);
}

void shard_count(struct round *out, double *loss, const struct oracle_result *r)
{
    *loss += r->loss;
    out->targets += r->targets;
    out->tokens += r->tokens;
    out->microbatches++;
}

enum sotto_status shard_sum_counts(struct shard *s, double loss, struct round *out)
{
    double all[4] = {loss, (double)out->targets, (double)out->tokens, (double)out->microbatches};
    if (s->mesh)
        TRY(comm_sum(s->mesh->worker->world, all, 4));
    out->targets = (int64_t)all[1];
    out->tokens = (int64_t)all[2];
    out->microbatches = (int64_t)all[3];
    out->loss = out->targets ? all[0] / all[1] : 0;
    return SOTTO_OK;
}

enum sotto_status shard_accumulate(struct shard *s, lane_job *complete, struct round *out)
{
    const int n = s->config->accumulate;
    double loss = 0;
    for (int i = 0; i < n; i++) {
        struct oracle_result r;
        bool last = i == n - 1 && s->mesh;
        TRY(add_gradient(s, s->next + i, last ? complete : NULL, &r));
        shard_count(out, &loss, &r);
    }
    TRY(shard_sum_counts(s, loss, out));
    return s->mesh ? lane_wait(s->mesh->lane) : SOTTO_OK; /* g = sum_i g_i */
}

double shard_scale(const struct shard *s, const struct round *round)
{
    int64_t parts = s->config->weight == WEIGHT_TOKENS ? round->targets : round->microbatches;
    return parts ? 1 / (double)parts : 0;
}

enum sotto_status shard_norm(const struct optim_config *c, double squared, struct round *out,
                             double *scale)
{
    out->grad_norm = sqrt(squared);
    if (!isfinite(out->grad_norm))
        return fail(SOTTO_ENUMERIC, "the gradient's norm is %f", out->grad_norm);
    *scale *= optim_clip(c, squared);
    return SOTTO_OK;
}

enum sotto_status shard_finish(struct shard *s, enum sotto_status st)
{
    return st != SOTTO_OK && s->mesh ? mesh_abort(s->mesh, st) : st;
}

enum sotto_status shard_visit(struct shard *s, struct optim *optim, int index, int parts,
                              struct state_visitor *v)
{
    TRY(state_int(v, "microbatch", &s->next));
    TRY(state_int(v, "optim.t", &optim->t));
    for (int i = 0; i < optim->ops->states; i++) {
        if (!optim->state[i].dev)
            continue;
        TRY(state_enter(v, optim->ops->state_name[i]));
        TRY(state_table(v, s->oracle->table, index, parts, MEMORY_OPTIMIZER, s->dev,
                        optim->state[i].view));
        state_leave(v);
    }
    return SOTTO_OK;
}

struct slice shard_slice(const struct shard *s, int k)
{
    const struct table *table = s->oracle->table;
    const size_t parts = (size_t)s->mesh->n_s;
    const size_t count = table_stage_count(table, k) / parts;
    return (struct slice){count, count * (size_t)s->mesh->s, table->stage_start[k] / parts};
}

enum sotto_status shard_check(const struct table *table, const struct mesh *mesh)
{
    for (int k = 0; k < table->n_stage; k++)
        if (table_stage_count(table, k) % (size_t)mesh->n_s)
            return fail(SOTTO_EINVAL, "stage %d of %zu elements cannot be cut into %d slices", k,
                        table_stage_count(table, k), mesh->n_s);
    return SOTTO_OK;
}

enum sotto_status shard_export(const struct shard *s, struct view x, float *flat)
{
    const struct table *table = s->oracle->table;
    for (int k = 0; k < table->n_stage; k++) {
        struct slice at = shard_slice(s, k);
        float *stage = flat + table->stage_start[k];
        s->dev->ops->read(s->dev, stage + at.in_stage, view_at(x, at.in_own), at.count);
        TRY(device_check(s->dev));
        TRY(comm_allgather(s->mesh->shard, (struct view){stage, DTYPE_F32},
                           (struct view){stage + at.in_stage, DTYPE_F32},
                           table_stage_count(table, k)));
    }
    return SOTTO_OK;
}

void shard_import(const struct shard *s, struct view x, const float *flat)
{
    for (int k = 0; k < s->oracle->table->n_stage; k++) {
        struct slice at = shard_slice(s, k);
        s->dev->ops->write(s->dev, view_at(x, at.in_own),
                           flat + s->oracle->table->stage_start[k] + at.in_stage, at.count);
    }
}
