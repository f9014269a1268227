#include "strategy/strategy.h"

#include <stdlib.h>
#include <string.h>

static const char *const shard_names[] = {"auto", "ddp",     "zero1", "fsdp",
                                          "dpu",  "acco-wp", "acco",  NULL};
static const char *const replicate_names[] = {"auto", "sync", NULL};
static const char *const precision_names[] = {"fp32", "mixed", NULL};
static const char *const weight_names[] = {"microbatch", "tokens", NULL};

#define S struct strategy_config
const struct option strategy_options[] = {
    OPTION_TEXT(S, preset, "", "a method by its usual name: ddp, zero1, fsdp, dpu, acco-wp, acco"),
    OPTION_ENUM(S, shard, "auto", shard_names,
                "how one group of workers turns gradients into parameters"),
    OPTION_ENUM(S, replicate, "auto", replicate_names, "how groups stay in agreement"),
    OPTION_TEXT(S, mesh, "",
                "RxS: R groups of S workers; empty: one group, or as many as workers where the "
                "replicate method is meant for slow links"),
    OPTION_ENUM(S, precision, "fp32", precision_names,
                "mixed: parameters and gradients bf16, the fp32 truth kept beside them"),
    OPTION_ENUM(S, weight, "microbatch", weight_names,
                "a round's gradient averages micro-batches, or target tokens (padded data)"),
    OPTION_INT(
        S, accumulate, "1", 1, 1e6,
        "micro-batches a worker and round; dpu, acco-wp and acco: at least so many each time "
        "they compute beside communication"),
    OPTION_LONG(S, warmup, "0", 0, 1e15, "dpu: rounds without delay at first"),
    OPTION_TEXT(S, replay, "",
                "dpu, acco-wp, acco: compute as many micro-batches as this file says (a run's "
                "counts.tsv), which gives the bits of that run"),
};
#undef S
const int strategy_options_count = sizeof strategy_options / sizeof *strategy_options;

static const struct strategy_ops *const members[] = {
    [SHARD_DDP] = &strategy_ddp, [SHARD_ZERO1] = &strategy_zero1,     [SHARD_FSDP] = &strategy_fsdp,
    [SHARD_DPU] = &strategy_dpu, [SHARD_ACCO_WP] = &strategy_acco_wp, [SHARD_ACCO] = &strategy_acco,
};

static const struct preset {
    const char *name;
    enum strategy_shard shard;
    enum strategy_replicate replicate;
} presets[] = {
    {"ddp", SHARD_DDP, REPLICATE_SYNC},         {"zero1", SHARD_ZERO1, REPLICATE_SYNC},
    {"fsdp", SHARD_FSDP, REPLICATE_SYNC},       {"dpu", SHARD_DPU, REPLICATE_SYNC},
    {"acco-wp", SHARD_ACCO_WP, REPLICATE_SYNC}, {"acco", SHARD_ACCO, REPLICATE_SYNC},
};
enum { PRESETS = sizeof presets / sizeof *presets };

static enum sotto_status find_preset(const char *name, const struct preset **out)
{
    const char *names[PRESETS + 1] = {0};
    for (int i = 0; i < PRESETS; i++) {
        *out = &presets[i];
        names[i] = presets[i].name;
        if (strcmp(names[i], name) == 0)
            return SOTTO_OK;
    }
    const char *near = option_closest(name, names);
    return fail(SOTTO_EINVAL, "strategy.preset = %s: no such method%s%s%s", name,
                near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* "2x4" */
static enum sotto_status parse_mesh(struct strategy_config *c, int workers)
{
    char *end;
    long r = strtol(c->mesh, &end, 10), s = *end == 'x' ? strtol(end + 1, &end, 10) : 0;
    if (r < 1 || s < 1 || *end)
        return fail(SOTTO_EINVAL, "strategy.mesh = %s: want RxS, groups times workers of a group",
                    c->mesh);
    if (r > workers || s > workers || r * s != workers)
        return fail(SOTTO_EINVAL, "strategy.mesh = %s needs %ld workers, there are %d", c->mesh,
                    r * s, workers);
    c->groups = (int)r;
    return SOTTO_OK;
}

enum sotto_status strategy_resolve(struct strategy_config *c, int workers)
{
    const struct preset *p = &presets[0];
    if (*c->preset)
        TRY(find_preset(c->preset, &p));
    if (c->shard == SHARD_AUTO)
        c->shard = (int)p->shard;
    if (c->replicate == REPLICATE_AUTO)
        c->replicate = (int)p->replicate;
    if (*c->replay && c->shard < SHARD_DPU)
        return fail(SOTTO_EINVAL, "strategy.replay is for methods that depend on timing: dpu, "
                                  "acco-wp, acco");
    if (c->warmup && c->shard != SHARD_DPU)
        return fail(SOTTO_EINVAL, "strategy.warmup is dpu's; the learning rate's is optim.warmup");
    c->groups = c->replicate == REPLICATE_SYNC ? 1 : workers;
    return *c->mesh ? parse_mesh(c, workers) : SOTTO_OK;
}

void strategy_describe(const struct strategy_config *c, char out[OPTION_ROOM])
{
    if (c->groups > 1)
        snprintf(out, OPTION_ROOM, "%s x %s", shard_names[c->shard], replicate_names[c->replicate]);
    else
        snprintf(out, OPTION_ROOM, "%s", shard_names[c->shard]);
}

enum sotto_status strategy_open(struct strategy **out, const struct strategy_setup *setup)
{
    *out = NULL;
    return members[setup->config->shard]->open(out, setup);
}
