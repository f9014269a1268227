/* A shard method in which worker j of a group owns stage j and no other, and who is left owns
 * nothing; or, with runs = true, every |S|-th run of 2 elements across stages. Everybody sums all
 * gradients, steps what it owns and sends it to the others. */
#include "strategy/method.h"
#include "strategy/shard/shard.h"

#include <stdlib.h>

struct stages {
    struct shard shard;
    struct buffer theta, g; /* whole                   */
    struct buffer x;        /* the own stage, or empty */
};

struct stages_config {
    bool runs;
};

static const struct option options[] = {
    OPTION_BOOL(struct stages_config, runs, "false", "short ranges instead of stages"),
};

extern const struct method method_stages;

static enum sotto_status own_runs(struct owned *out, const struct table *table, int index, int of)
{
    const size_t count = table_count(table);
    for (size_t at = 2 * (size_t)index; at < count; at += 2 * (size_t)of)
        TRY(owned_add(out, at, at + 2 < count ? at + 2 : count));
    return SOTTO_OK;
}

static enum sotto_status own_stage(struct owned *out, const struct table *table, int index, int of)
{
    (void)of;
    return index < table->n_stage
               ? owned_add(out, table->stage_start[index], table->stage_start[index + 1])
               : SOTTO_OK;
}

static enum sotto_status sum_stage(void *arg)
{
    const struct stage_job *job = arg;
    struct shard *s = job->shard;
    struct view g = s->g_stage[job->k];
    return comm_allreduce(s->is.mesh->lane_shard, g, g,
                          table_stage_count(s->is.oracle->table, job->k));
}

static enum sotto_status complete(struct stages *z)
{
    struct shard *s = &z->shard;
    for (int k = 0; k < s->is.oracle->table->n_stage; k++)
        TRY(shard_complete(s, s->is.mesh->shard, k, s->theta_stage[k]));
    return SOTTO_OK;
}

static enum sotto_status run_round(struct strategy *strategy, const struct plan *plan,
                                   struct round *out)
{
    struct stages *z = (struct stages *)strategy;
    struct shard *s = &z->shard;
    *out = (struct round){.grad_norm = -1};
    TRY(shard_begin(s, plan, &z->g));
    TRY(shard_accumulate(s, sum_stage));
    TRY(shard_step(s, plan, shard_scale(s, &s->counts), out));
    TRY(complete(z));
    return device_check(s->is.dev);
}

static enum sotto_status import(struct strategy *s, const float *flat)
{
    TRY(shard_import((struct shard *)s, flat));
    return complete((struct stages *)s);
}

static enum sotto_status visit(struct strategy *s, struct state_visitor *v)
{
    TRY(shard_visit((struct shard *)s, v));
    return state_loading(v) ? complete((struct stages *)s) : SOTTO_OK;
}

static void free_stages(struct strategy *s)
{
    struct stages *z = (struct stages *)s;
    buffer_free(&z->theta);
    buffer_free(&z->g);
    buffer_free(&z->x);
    shard_free(&z->shard);
    free(z);
}

static const struct strategy_ops ops;

static enum sotto_status open(struct strategy **out, const struct strategy_setup *setup)
{
    const struct table *table = setup->oracle->table;
    const size_t count = table_count(table);
    const struct stages_config *config = method_own(setup->config, &method_stages);
    struct stages *z = calloc(1, sizeof *z);
    struct shard *s = &z->shard;
    enum sotto_status st;
    TRY_DONE(shard_init(s, &ops, setup, config->runs ? own_runs : own_stage));
    TRY_DONE(buffer_init(&z->theta, setup->dev, DTYPE_F32, count, MEMORY_PARAMETERS));
    TRY_DONE(buffer_init(&z->g, setup->dev, DTYPE_F32, count, MEMORY_GRADIENTS));
    TRY_DONE(buffer_init(&z->x, setup->dev, DTYPE_F32, s->own.count, MEMORY_OPTIMIZER));
    table_stages(table, z->theta.view, s->theta_stage);
    table_stages(table, z->g.view, s->g_stage);
    TRY_DONE(shard_replicate(s, z->x.view, NULL, shard_theta_at, shard_g_at));
    *out = &s->base;
done:
    if (st != SOTTO_OK)
        free_stages(&s->base);
    return st;
}

static const struct strategy_ops ops = {
    .open = open,
    .round = run_round,
    .gather = shard_theta,
    .export = shard_export,
    .import = import,
    .visit = visit,
    .free = free_stages,
};

const struct method method_stages = {
    .name = "stages",
    .axis = METHOD_SHARD,
    .about = "each worker of a group owns one stage",
    METHOD_OPTIONS(struct stages_config, options),
    .shard = &ops,
};
