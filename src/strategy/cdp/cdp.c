/* Cyclic data parallelism (Fournier and Oyallon, 2024): micro-batches begin one behind the other
 * instead of together, so that activations of all of them take half the memory, and gradients and
 * parameters go from one worker to the next, a stage in a time step, without a collective. */
#include "strategy/cdp/cdp.h"

#include <stdlib.h>
#include <string.h>

#include "strategy/method.h"

#define S struct cdp_config
static const struct option options[] = {
    OPTION_ENUM(S, rule, "v2", cdp_rule_names,
                "which parameters a micro-batch is computed with: v2 the newest that exist, v1 "
                "those of the step before, sync the same for all, who then wait for each other"),
    OPTION_ENUM(S, placement, "dp", cdp_placement_names,
                "a worker has: dp a micro-batch and all stages, single everything, pp a stage, mp "
                "a stage and one micro-batch at a time, zero a micro-batch and one stage at a "
                "time; N stages are N workers, in mp N (N + 1) / 2"),
    OPTION_INT(S, stages, "0", 0, 1024,
               "single: stages, and micro-batches a step, 0: 4; the others have as many as follow "
               "from the workers"),
};
#undef S

static const struct option_only only[] = {
    {"stages", "placement", "single"},
};

static int stages(const void *own, const struct strategy_config *config)
{
    const struct cdp_config *c = own;
    if (c->placement == CDP_SINGLE)
        return c->stages ? c->stages : 4;
    return cdp_stages((enum cdp_placement)c->placement, config->workers);
}

/* A worker has one stage, and stages are not of the same work. */
static bool unlike(const void *own)
{
    const struct cdp_config *c = own;
    return c->placement == CDP_PP || c->placement == CDP_MP;
}

static struct cdp_schedule schedule_of(const struct cdp_config *c,
                                       const struct strategy_config *config)
{
    return (struct cdp_schedule){.placement = (enum cdp_placement)c->placement,
                                 .rule = (enum cdp_rule)c->rule,
                                 .n = stages(c, config),
                                 .steps = -1,
                                 .keep = true};
}

/* N stages are for so many workers. */
static enum sotto_status check_workers(const struct cdp_config *c, int workers)
{
    int n = 0;
    if (c->placement == CDP_SINGLE && workers != 1)
        return fail(SOTTO_EINVAL, "cdp.placement = single is for one worker, there are %d",
                    workers);
    while ((n + 1) * (n + 2) / 2 < workers)
        n++;
    if (c->placement == CDP_MP && cdp_stages(CDP_MP, workers) == 0)
        return fail(SOTTO_EINVAL,
                    "cdp.placement = mp: N stages are for N (N + 1) / 2 workers, and there are %d; "
                    "%d would do for %d stages, %d for %d",
                    workers, n * (n + 1) / 2, n, (n + 1) * (n + 2) / 2, n + 1);
    return SOTTO_OK;
}

static enum sotto_status resolve(void *own, const struct strategy_config *config)
{
    const struct cdp_config *c = own;
    if (!config->replicating->replicate->sums_gradient)
        return fail(SOTTO_EINVAL,
                    "cdp x %s: a stage is updated while others still compute with the one before, "
                    "so groups cannot step apart; strategy.replicate = sync",
                    config->replicating->name);
    if (config->groups != 1)
        return fail(SOTTO_EINVAL, "cdp is for one group of workers, strategy.mesh = %s has %d",
                    config->mesh, config->groups);
    if (config->accumulate != 1)
        return fail(SOTTO_EINVAL,
                    "strategy.accumulate = %d: a step of cdp has as many micro-batches as stages",
                    config->accumulate);
    TRY(check_workers(c, config->workers));
    const struct cdp_schedule s = schedule_of(c, config);
    return cdp_check(&s);
}

static int slots(const void *own, const struct strategy_config *config)
{
    const struct cdp_schedule s = schedule_of(own, config);
    return cdp_slots(&s, 0); /* nobody has more */
}

/* What only the model and the optimizer can tell. */
static enum sotto_status check(const struct cdp *c)
{
    const struct shard *s = &c->shard;
    const int n = c->is.n;
    if (s->is.oracle->table->n_stage != n)
        return fail(SOTTO_EINVAL, "cdp wants %d stages, there are %d", n,
                    s->is.oracle->table->n_stage);
    if (s->is.optim->clip > 0 && c->is.rule == CDP_V2 && n > 1)
        return fail(SOTTO_EINVAL,
                    "optim.clip = %g: with cdp.rule = v2 a stage is updated before the others' "
                    "gradients exist, so there is no norm of all of them; v1 and sync wait for it",
                    s->is.optim->clip);
    for (int j = 0; j < n; j++)
        for (int k = 0; k < n; k++)
            if (j != k && c->needs[j * n + k] && c->is.placement != CDP_SINGLE &&
                c->is.placement != CDP_DP)
                return fail(SOTTO_EINVAL,
                            "stage %d shares a tensor with stage %d, which cdp.placement = %s has "
                            "on another worker; single and dp can, or model.tied = no",
                            j + 1, k + 1, cdp_placement_names[c->is.placement]);
    return cdp_check(&c->is);
}

static enum sotto_status open_walk(struct cdp *c)
{
    struct oracle *o = c->shard.is.oracle;
    const size_t n = (size_t)o->table->n_stage, slots = (size_t)o->slots;
    c->needs = calloc(n * n, sizeof *c->needs);
    c->theta = calloc(n, sizeof *c->theta);
    c->grad = calloc(n, sizeof *c->grad);
    c->act = calloc(CDP_ACTS(n), sizeof *c->act);
    c->next = calloc(CDP_ACTS(n), sizeof *c->next);
    c->flight = calloc(slots, sizeof *c->flight);
    struct pool_block **apart = calloc(slots * n, sizeof(struct pool_block *));
    if (c->flight)
        c->flight->apart = apart;
    if (!c->needs || !c->theta || !c->grad || !c->act || !c->next || !c->flight || !apart)
        return fail(SOTTO_ENOMEM, "no memory for a schedule of %zu stages", n);
    for (size_t i = 0; i < slots; i++)
        c->flight[i] =
            (struct cdp_flight){.cdp = c, .slot = (int)i, .step = -1, .apart = apart + i * n};
    for (size_t j = 0; j < n; j++)
        oracle_needs(o, (int)j, c->needs + j * n);
    pool_init(&c->apart, c->shard.is.dev, MEMORY_GRADIENTS);
    return oracle_notes(o);
}

/* The optimizer's state is in the rooms of the stages, wherever they are. */
static enum sotto_status own_nothing(struct owned *out, const struct table *table, int i, int of)
{
    (void)table, (void)i, (void)of;
    out->sole = true;
    return SOTTO_OK;
}

static enum sotto_status init(struct strategy *strategy, const struct strategy_setup *setup)
{
    struct cdp *c = (struct cdp *)strategy;
    c->is = schedule_of(method_own(setup->config, &method_cdp), setup->config);
    c->is.together = setup->optim->clip > 0 && c->is.n > 1;
    c->device = setup->mesh->s;
    c->devices = setup->mesh->n_s;
    c->reported = -1;
    TRY(shard_init(&c->shard, setup, own_nothing));
    TRY(open_walk(c));
    TRY(check(c));
    TRY(cdp_store_open(c));
    return cdp_wire_open(c);
}

static void free_cdp(struct strategy *strategy)
{
    struct cdp *c = (struct cdp *)strategy;
    const int n = c->flight ? c->shard.is.oracle->slots * c->shard.is.oracle->table->n_stage : 0;
    (void)cdp_settle(c); /* nobody is left with a message that nobody takes */
    cdp_wire_free(c);
    for (int i = 0; i < n && c->flight->apart; i++)
        pool_give(&c->apart, c->flight->apart[i]);
    if (c->apart.dev)
        pool_free(&c->apart);
    cdp_store_free(c);
    if (c->flight)
        free(c->flight->apart);
    free(c->flight);
    free(c->act);
    free(c->next);
    free(c->needs);
    free(c->theta);
    free(c->grad);
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
        "cyclic data parallelism: the model is cut into as many stages as a step has "
        "micro-batches, which begin one behind the other; gradients and parameters go from worker "
        "to worker, a stage at a time, and nobody waits for everybody",
    METHOD_OPTIONS(struct cdp_config, options),
    METHOD_ONLY(only),
    .shard = &ops,
    .resolve = resolve,
    .stages = stages,
    .slots = slots,
    .unlike = unlike,
};
