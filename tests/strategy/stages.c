/* A shard method in which worker j of a group owns stage j and no other, and further workers own
 * nothing; or, with runs = true, every |S|-th run of 2 elements across stages. Every worker sums
 * all gradients, steps its own elements and sends them to the others. */
#include "strategy/method.h"
#include "strategy/shard/shard.h"
#include "tensor/shares.h"

struct stages_config {
    bool runs;
};

static const struct option options[] = {
    OPTION_BOOL(struct stages_config, runs, "false", "short ranges instead of stages"),
};

extern const struct method method_stages;

static enum sotto_status sum_stage(void *arg)
{
    const struct stage_job *job = arg;
    struct shard *s = job->shard;
    struct view g = s->g_stage[job->k];
    return comm_allreduce(s->is.mesh->lane_shard, g, g,
                          table_stage_count(s->is.oracle->table, job->k));
}

static enum sotto_status run_round(struct strategy *strategy, const struct plan *plan,
                                   struct round *out)
{
    struct shard *s = (struct shard *)strategy;
    *out = (struct round){.grad_norm = -1};
    TRY(shard_begin(s, plan, &s->g));
    TRY(shard_accumulate(s, sum_stage));
    TRY(shard_step(s, plan, shard_scale(s, &s->counts), out));
    TRY(shard_complete_theta(s));
    return device_check(s->is.dev);
}

static enum sotto_status import(struct strategy *s, const float *flat)
{
    TRY(shard_import(s, flat));
    return shard_complete_theta((struct shard *)s);
}

static enum sotto_status visit(struct strategy *strategy, struct state_visitor *v)
{
    struct shard *s = (struct shard *)strategy;
    TRY(shard_visit(s, v));
    return state_loading(v) ? shard_complete_theta(s) : SOTTO_OK;
}

static enum sotto_status init(struct strategy *strategy, const struct strategy_setup *setup)
{
    const struct stages_config *config = method_own(setup->config, &method_stages);
    struct shard *s = (struct shard *)strategy;
    TRY(shard_init(s, setup, config->runs ? own_runs : own_stage));
    TRY(shard_vectors(s, table_count(setup->oracle->table), true));
    return shard_replicate(s, NULL, shard_theta_at, shard_g_at);
}

static const struct strategy_ops ops = {
    .bytes = sizeof(struct shard),
    .init = init,
    .round = run_round,
    .gather = shard_theta,
    .export = shard_export,
    .import = import,
    .visit = visit,
    .free = shard_free,
};

const struct method method_stages = {
    .name = "stages",
    .axis = METHOD_SHARD,
    .about = "each worker of a group owns one stage",
    METHOD_OPTIONS(struct stages_config, options),
    .shard = &ops,
};
