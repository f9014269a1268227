/* Cyclic data parallelism (Fournier and Oyallon, 2024): micro-batches begin one after the other
 * instead of together, so that all activations together take half the memory, and gradients and
 * parameters move from one worker to the next, a stage in a time step, without a collective. */
#include "strategy/cdp/cdp.h"

#include <stdlib.h>
#include <string.h>

#include "strategy/method.h"

#define S struct cdp_config
static const struct option options[] = {
    OPTION_ENUM(S, rule, "v2", cdp_rule_names,
                "version of the parameters that a micro-batch is computed with: v2 the newest, v1 "
                "the version of the step before, sync the same version for all micro-batches, "
                "which then wait for each other"),
    OPTION_ENUM(S, placement, "dp", cdp_placement_names,
                "share of a worker: dp a micro-batch and all stages, single all of both, pp a "
                "stage, mp a stage and one micro-batch at a time, zero a micro-batch and one stage "
                "at a time; N stages need N workers, in mp N (N + 1) / 2"),
    OPTION_INT(S, stages, "0", 0, 1024,
               "single: number of stages, and of micro-batches a step, 0: 4; in other placements "
               "both follow from the number of workers"),
};
#undef S

static const struct option_only only[] = {
    {"stages", "placement", "single"},
};

static int want_stages(const void *own, const struct strategy_config *config)
{
    const struct cdp_config *c = own;
    if (c->placement == CDP_SINGLE)
        return c->stages ? c->stages : 4;
    return cdp_stages((enum cdp_placement)c->placement, config->workers);
}

/* True if a worker has one stage: the work of workers then differs. */
static bool has_unlike_stages(const void *own)
{
    const struct cdp_config *c = own;
    return c->placement == CDP_PP || c->placement == CDP_MP;
}

static struct cdp_schedule schedule_of(const struct cdp_config *c,
                                       const struct strategy_config *config)
{
    return (struct cdp_schedule){.placement = (enum cdp_placement)c->placement,
                                 .rule = (enum cdp_rule)c->rule,
                                 .n = want_stages(c, config),
                                 .steps = -1,
                                 .keep = true};
}

/* Checks the number of workers. SOTTO_EINVAL if no number of stages fits. */
static enum sotto_status check_workers(const struct cdp_config *c, int workers)
{
    int n = 0;
    if (c->placement == CDP_SINGLE && workers != 1)
        return fail(SOTTO_EINVAL, "cdp.placement = single needs one worker, there are %d", workers);
    while ((n + 1) * (n + 2) / 2 < workers)
        n++;
    if (c->placement == CDP_MP && cdp_stages(CDP_MP, workers) == 0)
        return fail(SOTTO_EINVAL,
                    "cdp.placement = mp: N stages need N (N + 1) / 2 workers, and there are %d; "
                    "take %d workers for %d stages, or %d for %d",
                    workers, n * (n + 1) / 2, n, (n + 1) * (n + 2) / 2, n + 1);
    return SOTTO_OK;
}

static enum sotto_status resolve(void *own, const struct strategy_config *config)
{
    const struct cdp_config *c = own;
    if (!config->replicating->replicate->sums_gradient)
        return fail(SOTTO_EINVAL,
                    "cdp x %s: a stage is updated while other stages still compute with the "
                    "version before, so groups cannot step on their own; set strategy.replicate = "
                    "sync",
                    config->replicating->name);
    if (config->groups != 1)
        return fail(SOTTO_EINVAL, "cdp needs one group of workers, strategy.mesh = %s has %d",
                    config->mesh, config->groups);
    if (config->accumulate != 1)
        return fail(SOTTO_EINVAL,
                    "strategy.accumulate = %d: a step of cdp has one micro-batch a stage; set "
                    "strategy.accumulate = 1",
                    config->accumulate);
    TRY(check_workers(c, config->workers));
    const struct cdp_schedule s = schedule_of(c, config);
    return cdp_check(&s);
}

static int want_slots(const void *own, const struct strategy_config *config)
{
    const struct cdp_schedule s = schedule_of(own, config);
    return cdp_slots(&s, 0); /* device 0 has the largest number */
}

/* Checks what depends on the model and the optimizer. */
static enum sotto_status check_model(const struct cdp *c)
{
    const struct shard *s = &c->shard;
    const int n = c->is.n;
    if (s->is.oracle->table->n_stage != n)
        return fail(SOTTO_EINVAL, "cdp needs %d stages, the model has %d", n,
                    s->is.oracle->table->n_stage);
    if (s->is.optim->clip > 0 && c->is.rule == CDP_V2 && n > 1)
        return fail(SOTTO_EINVAL,
                    "optim.clip = %g: with cdp.rule = v2 a stage is updated before the gradients "
                    "of all stages exist, so their norm is not known; set cdp.rule = v1 or sync",
                    s->is.optim->clip);
    for (int j = 0; j < n; j++)
        for (int k = 0; k < n; k++)
            if (j != k && c->needs[j * n + k] && c->is.placement != CDP_SINGLE &&
                c->is.placement != CDP_DP)
                return fail(SOTTO_EINVAL,
                            "stage %d shares a tensor with stage %d, which cdp.placement = %s puts "
                            "on another worker; set cdp.placement = single or dp, or model.tied = "
                            "no",
                            j + 1, k + 1, cdp_placement_names[c->is.placement]);
    return cdp_check(&c->is);
}

static enum sotto_status open_walk(struct cdp *c)
{
    struct oracle *o = c->shard.is.oracle;
    const size_t n = (size_t)o->table->n_stage, slots = (size_t)o->slots;
    c->needs = calloc(n * n, sizeof *c->needs);
    c->walk.theta = calloc(n, sizeof *c->walk.theta);
    c->walk.grad = calloc(n, sizeof *c->walk.grad);
    c->walk.act = calloc(CDP_ACTS(n), sizeof *c->walk.act);
    c->walk.next = calloc(CDP_ACTS(n), sizeof *c->walk.next);
    c->flight = calloc(slots, sizeof *c->flight);
    struct pool_block **own_grad = calloc(slots * n, sizeof(struct pool_block *));
    if (c->flight)
        c->flight->own_grad = own_grad;
    if (!c->needs || !c->walk.theta || !c->walk.grad || !c->walk.act || !c->walk.next ||
        !c->flight || !own_grad)
        return fail(SOTTO_ENOMEM, "no memory for a schedule of %zu stages", n);
    for (size_t i = 0; i < slots; i++)
        c->flight[i] =
            (struct cdp_flight){.cdp = c, .slot = (int)i, .step = -1, .own_grad = own_grad + i * n};
    for (size_t j = 0; j < n; j++)
        oracle_needs(o, (int)j, c->needs + j * n);
    pool_init(&c->own_grads, c->shard.is.dev, MEMORY_GRADIENTS);
    return oracle_notes(o);
}

/* Owns nothing: the optimizer's state is in the rooms of the stages. */
static enum sotto_status own_nothing(struct owned *out, const struct table *table, int i, int of)
{
    (void)table, (void)i, (void)of;
    out->sole = true;
    return SOTTO_OK;
}

/* Opens the replicate method over no parts: the method counts steps and shows the optimizer's
 * state. */
static enum sotto_status open_replicate(struct cdp *c)
{
    struct shard *s = &c->shard;
    TRY(shard_replicate(s, NULL, NULL, shard_g_at));
    s->replicate->is.show = cdp_show_optimizer;
    s->replicate->is.owner = c;
    return SOTTO_OK;
}

static enum sotto_status init(struct strategy *strategy, const struct strategy_setup *setup)
{
    struct cdp *c = (struct cdp *)strategy;
    c->is = schedule_of(method_own(setup->config, &method_cdp), setup->config);
    c->is.together = setup->optim->clip > 0 && c->is.n > 1;
    c->device = setup->mesh->s;
    c->devices = setup->mesh->n_s;
    c->sums.reported = -1;
    TRY(shard_init(&c->shard, setup, own_nothing));
    TRY(open_walk(c));
    TRY(check_model(c));
    TRY(cdp_store_open(c));
    TRY(cdp_rooms_open(c));
    TRY(open_replicate(c));
    return cdp_transfer_open(c);
}

static void free_cdp(struct strategy *strategy)
{
    struct cdp *c = (struct cdp *)strategy;
    const int n = c->flight ? c->shard.is.oracle->slots * c->shard.is.oracle->table->n_stage : 0;
    (void)cdp_settle(c); /* other workers may wait for messages of this one */
    cdp_transfer_free(c);
    for (int i = 0; i < n && c->flight->own_grad; i++)
        pool_give(&c->own_grads, c->flight->own_grad[i]);
    if (c->own_grads.dev)
        pool_free(&c->own_grads);
    cdp_store_free(c);
    cdp_rooms_free(c);
    if (c->flight)
        free(c->flight->own_grad);
    free(c->flight);
    free(c->walk.act);
    free(c->walk.next);
    free(c->needs);
    free(c->walk.theta);
    free(c->walk.grad);
    shard_free(strategy);
}

static const struct strategy_ops ops = {
    .bytes = sizeof(struct cdp),
    .init = init,
    .round = cdp_round,
    .gather = cdp_gather,
    .export = cdp_export,
    .import = cdp_import,
    .visit = cdp_visit,
    .free = free_cdp,
};

const struct method method_cdp = {
    .name = "cdp",
    .axis = METHOD_SHARD,
    .about =
        "cyclic data parallelism: the model is cut into n stages, and the n micro-batches of a "
        "step begin one after the other; gradients and parameters move from worker to worker, a "
        "stage at a time, and no worker waits for all others",
    METHOD_OPTIONS(struct cdp_config, options),
    METHOD_ONLY(only),
    .shard = &ops,
    .resolve = resolve,
    .stages = want_stages,
    .slots = want_slots,
    .unlike = has_unlike_stages,
};
