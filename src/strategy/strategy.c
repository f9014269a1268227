#include "strategy/strategy.h"

#include <stdlib.h>
#include <string.h>

#include "base/option_only.h"

static const char *const shard_names[] = {"auto", "ddp",     "zero1", "fsdp",
                                          "dpu",  "acco-wp", "acco",  NULL};
static const char *const replicate_names[] = {"auto",   "sync", "local",  "overlap-local",
                                              "slowmo", "co2",  "diloco", NULL};
static const char *const penalty_names[] = {"elementwise", "norm", "off", NULL};
static const char *const outer_names[] = {"nesterov", "sgd", "adam", NULL};
static const char *const precision_names[] = {"fp32", "mixed", NULL};
static const char *const grads_names[] = {"auto", "fp32", "bf16", NULL};
static const char *const weight_names[] = {"microbatch", "tokens", NULL};

#define S struct strategy_config
const struct option strategy_options[] = {
    OPTION_TEXT(S, preset, "",
                "a method by its usual name: ddp, zero1, fsdp, dpu, acco-wp, acco, local-sgd, "
                "overlap-local-sgd, slowmo, co2, diloco"),
    OPTION_ENUM(S, shard, "auto", shard_names,
                "how one group of workers turns gradients into parameters"),
    OPTION_ENUM(S, replicate, "auto", replicate_names, "how groups stay in agreement"),
    OPTION_TEXT(S, mesh, "",
                "RxS: R groups of S workers; empty: one group, or as many as workers where the "
                "replicate method is meant for slow links"),
    OPTION_ENUM(
        S, precision, "fp32", precision_names,
        "mixed: parameters and gradients bf16, the fp32 truth kept beside them; products of bf16 "
        "where the processor has them"),
    OPTION_ENUM(S, grads, "auto", grads_names,
                "mixed: what a worker adds its gradients up in (they are sent as bf16); auto: fp32 "
                "where a round has more than 4 micro-batches or, with dpu, acco-wp and acco, may"),
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
    OPTION_TEXT(S, tau, "12",
                "local, overlap-local, slowmo, co2: steps between agreements; co2 also auto: the "
                "fewest that hide one"),
    OPTION_REAL(S, alpha, "-1", -1, 100,
                "overlap-local: pull towards the anchor (0.6); slowmo, co2: outer learning rate "
                "(1); negative: the method's own"),
    OPTION_REAL(S, beta, "-1", -1, 1,
                "overlap-local: momentum of the anchor (0.7); slowmo, co2: outer momentum (0.5); "
                "negative: the method's own"),
    OPTION_REAL(S, phi, "0", 0, 1e30, "co2: largest value of the outer momentum; 0: not clipped"),
    OPTION_ENUM(S, penalty, "elementwise", penalty_names, "co2: penalty for staleness"),
    OPTION_LONG(S, H, "500", 1, 1e15, "diloco: steps between exchanges"),
    OPTION_ENUM(S, outer, "nesterov", outer_names, "diloco: outer optimizer"),
    OPTION_REAL(S, outer_lr, "0.7", 0, 100, "diloco: outer learning rate"),
    OPTION_REAL(S, outer_momentum, "0.9", 0, 1, "diloco: outer momentum"),
    OPTION_REAL(S, prune, "0", 0, 1,
                "diloco: share of the outer gradient, the smallest of every row, that is not sent"),
    OPTION_REAL(S, drop, "0", 0, 1, "diloco: probability that a group misses an exchange"),
    OPTION_LONG(S, drop_seed, "1", 0, 1e15, "diloco: of the drops"),
    OPTION_TEXT(S, replicas, "",
                "diloco: groups that train and for how many rounds, \"8x1000,4x1000\"; empty: all"),
};
#undef S
const int strategy_options_count = sizeof strategy_options / sizeof *strategy_options;

enum {
    DELAYED = 1 << SHARD_DPU | 1 << SHARD_ACCO_WP | 1 << SHARD_ACCO,
    OUTER_STEP = 1 << REPLICATE_OVERLAP_LOCAL | 1 << REPLICATE_SLOWMO | 1 << REPLICATE_CO2,
    EVERY_TAU = OUTER_STEP | 1 << REPLICATE_LOCAL,
    CO2 = 1 << REPLICATE_CO2,
    DILOCO = 1 << REPLICATE_DILOCO,
};

static const struct option_only only[] = {
    {"grads", "precision", 1 << PRECISION_MIXED},
    {"warmup", "shard", 1 << SHARD_DPU},
    {"replay", "shard", DELAYED},
    {"tau", "replicate", EVERY_TAU},
    {"alpha", "replicate", OUTER_STEP},
    {"beta", "replicate", OUTER_STEP},
    {"phi", "replicate", CO2},
    {"penalty", "replicate", CO2},
    {"H", "replicate", DILOCO},
    {"outer", "replicate", DILOCO},
    {"outer_lr", "replicate", DILOCO},
    {"outer_momentum", "replicate", DILOCO},
    {"outer_momentum", "outer", 1 << OUTER_NESTEROV | 1 << OUTER_ADAM},
    {"prune", "replicate", DILOCO},
    {"drop", "replicate", DILOCO},
    {"drop_seed", "replicate", DILOCO},
    {"replicas", "replicate", DILOCO},
};
enum { RULES = sizeof only / sizeof *only };

static struct option_section section_of(struct strategy_config *c)
{
    return (struct option_section){"strategy", "", strategy_options, strategy_options_count, c};
}

static const struct strategy_ops *const members[] = {
    [SHARD_DDP] = &strategy_ddp, [SHARD_ZERO1] = &strategy_zero1,     [SHARD_FSDP] = &strategy_fsdp,
    [SHARD_DPU] = &strategy_dpu, [SHARD_ACCO_WP] = &strategy_acco_wp, [SHARD_ACCO] = &strategy_acco,
};

static const struct preset {
    const char *name;
    enum strategy_shard shard;
    enum strategy_replicate replicate;
} presets[] = {
    {"ddp", SHARD_DDP, REPLICATE_SYNC},
    {"zero1", SHARD_ZERO1, REPLICATE_SYNC},
    {"fsdp", SHARD_FSDP, REPLICATE_SYNC},
    {"dpu", SHARD_DPU, REPLICATE_SYNC},
    {"acco-wp", SHARD_ACCO_WP, REPLICATE_SYNC},
    {"acco", SHARD_ACCO, REPLICATE_SYNC},
    {"local-sgd", SHARD_DDP, REPLICATE_LOCAL},
    {"overlap-local-sgd", SHARD_DDP, REPLICATE_OVERLAP_LOCAL},
    {"slowmo", SHARD_DDP, REPLICATE_SLOWMO},
    {"co2", SHARD_DDP, REPLICATE_CO2},
    {"diloco", SHARD_DDP, REPLICATE_DILOCO},
};
enum { PRESETS = sizeof presets / sizeof *presets };

const char *strategy_preset(int i)
{
    return i >= 0 && i < PRESETS ? presets[i].name : NULL;
}

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

/* A bf16 sum loses half a percent with each term and stops growing at 256 that point the same way.
 * How many micro-batches the delayed methods put into one is up to the network. */
enum dtype strategy_grad_type(const struct strategy_config *c)
{
    enum { FEW = 4 };
    if (c->precision == PRECISION_FP32 || c->grads == GRADS_FP32)
        return DTYPE_F32;
    if (c->grads == GRADS_BF16)
        return DTYPE_BF16;
    return DELAYED >> c->shard & 1 || c->accumulate > FEW ? DTYPE_F32 : DTYPE_BF16;
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

static enum sotto_status parse_tau(struct strategy_config *c)
{
    char *end;
    c->tau_steps = strtoll(c->tau, &end, 10);
    if (strcmp(c->tau, "auto") == 0 && c->replicate == REPLICATE_CO2)
        c->tau_steps = 0;
    else if (end == c->tau || *end || c->tau_steps < 1)
        return fail(SOTTO_EINVAL, "strategy.tau = %s: want a number of steps%s", c->tau,
                    c->replicate == REPLICATE_CO2 ? ", or auto" : "");
    return SOTTO_OK;
}

/* "8x1000,4x1000" */
static enum sotto_status parse_replicas(struct strategy_config *c)
{
    c->n_phase = 0;
    for (const char *at = c->replicas; *at;) {
        char *end;
        long groups = strtol(at, &end, 10);
        long long steps = *end == 'x' ? strtoll(end + 1, &end, 10) : 0;
        if (groups < 1 || steps < 1 || (*end && *end != ',') || c->n_phase == STRATEGY_PHASES)
            return fail(SOTTO_EINVAL,
                        "strategy.replicas = %s: want groups x rounds with commas, at most %d",
                        c->replicas, STRATEGY_PHASES);
        if (groups > c->groups)
            return fail(SOTTO_EINVAL, "strategy.replicas = %s: there are only %d groups",
                        c->replicas, c->groups);
        c->phase[c->n_phase].groups = (int)groups;
        c->phase[c->n_phase++].steps = steps;
        at = *end ? end + 1 : end;
    }
    return SOTTO_OK;
}

/* The replicate method's own. */
static double own_alpha(const struct strategy_config *c)
{
    return c->replicate == REPLICATE_OVERLAP_LOCAL ? 0.6 : 1;
}

static double own_beta(const struct strategy_config *c)
{
    return c->replicate == REPLICATE_OVERLAP_LOCAL ? 0.7 : 0.5;
}

static void own_defaults(struct strategy_config *c)
{
    if (!(OUTER_STEP >> c->replicate & 1))
        return;
    if (c->alpha < 0)
        c->alpha = own_alpha(c);
    if (c->beta < 0)
        c->beta = own_beta(c);
}

static enum sotto_status refuse(const struct strategy_config *c)
{
    if (*c->replicas && c->shard >= SHARD_DPU)
        return fail(SOTTO_EINVAL,
                    "strategy.replicas: groups that sit out need rounds in step, "
                    "which %s has not",
                    shard_names[c->shard]);
    if (c->prune >= 1)
        return fail(SOTTO_EINVAL, "strategy.prune = 1 sends nothing");
    return SOTTO_OK;
}

static enum sotto_status resolve_methods(struct strategy_config *c)
{
    const struct preset *p = &presets[0];
    if (*c->preset)
        TRY(find_preset(c->preset, &p));
    if (c->shard == SHARD_AUTO)
        c->shard = (int)p->shard;
    if (c->replicate == REPLICATE_AUTO)
        c->replicate = (int)p->replicate;
    return SOTTO_OK;
}

void strategy_unresolve(struct strategy_config *c)
{
    const struct preset *p = &presets[0];
    if (*c->preset && find_preset(c->preset, &p) != SOTTO_OK)
        return;
    if (c->alpha == own_alpha(c))
        c->alpha = -1;
    if (c->beta == own_beta(c))
        c->beta = -1;
    if (c->shard == (int)p->shard)
        c->shard = SHARD_AUTO;
    if (c->replicate == (int)p->replicate)
        c->replicate = REPLICATE_AUTO;
}

enum sotto_status strategy_forget(struct strategy_config *c, const struct strategy_config *base)
{
    struct strategy_config resolved = *c;
    const struct option_section section = section_of(&resolved);
    const int shard = c->shard, replicate = c->replicate;
    TRY(resolve_methods(&resolved));
    option_only_forget(&section, only, RULES, base);
    *c = resolved;
    c->shard = shard;
    c->replicate = replicate;
    return SOTTO_OK;
}

enum sotto_status strategy_resolve(struct strategy_config *c, int workers)
{
    const struct option_section section = section_of(c);
    TRY(resolve_methods(c));
    TRY(option_only_check(&section, only, RULES));
    c->groups = c->replicate == REPLICATE_SYNC ? 1 : workers;
    if (*c->mesh)
        TRY(parse_mesh(c, workers));
    own_defaults(c);
    TRY(parse_tau(c));
    TRY(parse_replicas(c));
    return refuse(c);
}

void strategy_describe(const struct strategy_config *c, char out[OPTION_ROOM])
{
    if (c->groups > 1)
        snprintf(out, OPTION_ROOM, "%s x %s", shard_names[c->shard], replicate_names[c->replicate]);
    else
        snprintf(out, OPTION_ROOM, "%s", shard_names[c->shard]);
}

double strategy_rounds_to_stop(const struct strategy_config *c)
{
    if (c->groups > 1 && c->replicate == REPLICATE_DILOCO)
        return (double)c->H;
    if (c->groups > 1 && c->replicate != REPLICATE_SYNC)
        return c->tau_steps > 0 ? (double)c->tau_steps : 1;
    return c->shard == SHARD_DDP || c->shard == SHARD_ZERO1 ? 1.0 / c->accumulate : 1;
}

enum sotto_status strategy_open(struct strategy **out, const struct strategy_setup *setup)
{
    *out = NULL;
    return members[setup->config->shard]->open(out, setup);
}
