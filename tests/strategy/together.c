/* A shard method with all micro-batches of a round in flight at once: all forwards are done before
 * the first backward. Gradients are added in ddp's order, so the bits are ddp's. */
#include "strategy/method.h"
#include "strategy/shard/shard.h"

extern const struct method method_ddp, method_together;

static int slots(const void *own, const struct strategy_config *config)
{
    (void)own;
    return config->accumulate;
}

static enum sotto_status sum_stage(void *arg)
{
    const struct stage_job *job = arg;
    struct shard *s = job->shard;
    struct view g = s->g_stage[job->k];
    return comm_allreduce(s->is.mesh->lane_world, g, g,
                          table_stage_count(s->is.oracle->table, job->k));
}

static enum sotto_status gradients(struct shard *s)
{
    struct oracle *o = s->is.oracle;
    const int n = s->is.config->accumulate, n_stage = o->table->n_stage;
    for (int i = 0; i < n; i++) {
        TRY(oracle_begin(o, i, s->next + i, o->rank, false));
        for (int k = 0; k < n_stage; k++)
            TRY(oracle_forward(o, i, k, s->theta_stage));
    }
    for (int i = 0; i < n; i++) {
        for (int k = n_stage - 1; k >= 0; k--)
            TRY(oracle_backward(o, i, k, s->theta_stage, s->g_stage));
        TRY(shard_count(s, i, s->next + i));
    }
    if (shard_alone(s))
        return SOTTO_OK;
    TRY(shard_count_sum(s));
    for (int k = n_stage - 1; k >= 0; k--)
        TRY(lane_start(s->is.mesh->lane, sum_stage, &s->job[k]));
    return lane_wait(s->is.mesh->lane);
}

static enum sotto_status run_round(struct strategy *strategy, const struct plan *plan,
                                   struct round *out)
{
    struct shard *s = (struct shard *)strategy;
    *out = (struct round){.grad_norm = -1};
    TRY(shard_begin(s, plan, &s->g));
    TRY(shard_clear(s)); /* all are added */
    TRY(gradients(s));
    TRY(shard_step(s, plan, shard_scale(s, &s->counts), out));
    return device_check(s->is.dev);
}

/* Opens the vectors of ddp. */
static enum sotto_status init(struct strategy *s, const struct strategy_setup *setup)
{
    return method_ddp.shard->init(s, setup);
}

static enum sotto_status visit(struct strategy *s, struct state_visitor *v)
{
    return method_ddp.shard->visit(s, v);
}

static const struct strategy_ops ops = {
    .owns_all = true,
    .bytes = sizeof(struct shard),
    .init = init,
    .round = run_round,
    .gather = shard_theta,
    .export = shard_export,
    .import = shard_import,
    .visit = visit,
    .free = shard_free,
};

const struct method method_together = {
    .name = "together",
    .axis = METHOD_SHARD,
    .about = "all micro-batches of a round are under way at once",
    .shard = &ops,
    .slots = slots,
};
