#include "strategy/config.h"

#include <stdlib.h>
#include <string.h>

#include "optim/optim.h"
#include "strategy/method.h"

static const char *const precision_names[] = {"fp32", "mixed", NULL};
static const char *const grads_names[] = {"auto", "fp32", "bf16", NULL};
static const char *const weight_names[] = {"microbatch", "tokens", NULL};

#define S struct strategy_config
static const struct option options[] = {
    OPTION_TEXT(S, preset, "",
                "a method by its usual name, such as zero1, acco, local-sgd or diloco (--help "
                "methods); empty: ddp"),
    OPTION_TEXT(S, shard, "auto",
                "how one group of workers turns gradients into parameters: a method's name; auto: "
                "the preset's"),
    OPTION_TEXT(S, replicate, "auto",
                "how groups stay in agreement: a method's name; auto: the preset's"),
    OPTION_TEXT(
        S, mesh, "",
        "RxS: R groups of S workers; empty: one group or, if the replicate method is for slow "
        "links, a group a worker or, with a shard method other than ddp, a group a node"),
    OPTION_ENUM(
        S, precision, "fp32", precision_names,
        "mixed: bf16 parameters and gradients, and the true parameters in fp32; bf16 products if "
        "the processor has them"),
    OPTION_ENUM(S, grads, "auto", grads_names,
                "mixed: type of a worker's gradient sum (sent as bf16); auto: fp32 if a round has "
                "more than 4 micro-batches or, with dpu, acco-wp and acco, may have more"),
    OPTION_ENUM(S, weight, "microbatch", weight_names,
                "a round's gradient averages micro-batches, or target tokens (padded data)"),
    {OPTION_OF(S, accumulate, OPTION_TYPE_INT, "1",
               "micro-batches a worker and round; dpu, acco-wp and acco: the least number while an "
               "exchange runs"),
     .min = 1, .max = 1e6, .also = "gradient_accumulation_steps grad_accum"},
};
#undef S

static const struct option_only only[] = {
    {"grads", "precision", "mixed"},
};
enum { RULES = sizeof only / sizeof *only };

static struct option_section shared_section(struct strategy_config *c)
{
    struct option_section section =
        OPTION_SECTION("strategy", "the training method: by name, or part by part", options, c);
    section.only = only;
    section.n_only = RULES;
    return section;
}

/* The two methods of a configuration; NULL for unknown names. */
struct method_pair {
    const struct method *shard, *replicate;
};

/* Finds a pair by a method's own name, or a preset's. */
static struct method_pair find_preset(const char *name)
{
    struct method_pair p = {method_find(METHOD_SHARD, name), method_find(METHOD_REPLICATE, name)};
    const struct method_preset *preset = *name ? NULL : &method_plain;
    for (int i = 0; !preset && method_preset(i); i++)
        if (strcmp(method_preset(i)->name, name) == 0)
            preset = method_preset(i);
    if (preset)
        return (struct method_pair){preset->shard, preset->replicate};
    if (!p.shard && p.replicate)
        p.shard = method_plain.shard;
    else if (!p.replicate && p.shard)
        p.replicate = method_plain.replicate;
    return p;
}

static struct method_pair find_pair(const struct strategy_config *c)
{
    struct method_pair p = find_preset(c->preset);
    if (strcmp(c->shard, "auto") != 0)
        p.shard = method_find(METHOD_SHARD, c->shard);
    if (strcmp(c->replicate, "auto") != 0)
        p.replicate = method_find(METHOD_REPLICATE, c->replicate);
    return p;
}

static bool is_chosen(const struct strategy_config *c, const struct method *m)
{
    const struct method_pair p = find_pair(c);
    return p.shard == m || p.replicate == m;
}

static bool section_used(const void *config, const char *section)
{
    const struct method_pair p = find_pair(config);
    return (p.shard && strcmp(p.shard->name, section) == 0) ||
           (p.replicate && strcmp(p.replicate->name, section) == 0);
}

static struct option_section method_section(struct strategy_config *c, const struct method *m)
{
    return (struct option_section){.name = m->name,
                                   .about = m->about,
                                   .table = m->options,
                                   .count = m->n_options,
                                   .config = method_config(c, m),
                                   .used = section_used,
                                   .of = c,
                                   .only = m->only,
                                   .n_only = m->n_only};
}

void strategy_sections(struct strategy_config *c, struct option_section out[STRATEGY_SECTIONS])
{
    const struct method *m;
    int n = 0;
    out[n++] = shared_section(c);
    for (int i = 0; (m = method_at(i)); i++)
        if (m->n_options)
            out[n++] = method_section(c, m);
    while (n < STRATEGY_SECTIONS)
        out[n++] = (struct option_section){.name = "", .about = ""};
}

void strategy_defaults(struct strategy_config *c)
{
    struct option_section sections[STRATEGY_SECTIONS];
    *c = (struct strategy_config){0};
    strategy_sections(c, sections);
    option_defaults(sections, STRATEGY_SECTIONS);
}

const char *strategy_preset(int i)
{
    int n = 0;
    while (method_at(n))
        n++;
    if (i < n)
        return i < 0 ? NULL : method_at(i)->name;
    const struct method_preset *p = method_preset(i - n);
    return p ? p->name : NULL;
}

static enum sotto_status unknown_name(const char *key, const char *name, const char *const *names)
{
    const char *near = option_closest(name, names);
    return fail(SOTTO_EINVAL, "strategy.%s = %s: no such method%s%s%s", key, name,
                near ? "; did you mean '" : "; `sotto train --help methods` lists them",
                near ? near : "", near ? "'?" : "");
}

static enum sotto_status unknown_preset(const char *name)
{
    const char *names[2 * METHODS_MOST + 1] = {0};
    for (int i = 0; i < 2 * METHODS_MOST && strategy_preset(i); i++)
        names[i] = strategy_preset(i);
    return unknown_name("preset", name, names);
}

static enum sotto_status unknown_method(enum method_axis axis, const char *name)
{
    const char *names[METHODS_MOST + 1] = {0};
    const struct method *m;
    for (int i = 0, n = 0; (m = method_at(i)); i++)
        if (m->axis == axis)
            names[n++] = m->name;
    const enum method_axis other = axis == METHOD_SHARD ? METHOD_REPLICATE : METHOD_SHARD;
    if (method_find(other, name))
        return fail(SOTTO_EINVAL, "strategy.%s = %s: that is a method for strategy.%s",
                    axis == METHOD_SHARD ? "shard" : "replicate", name,
                    axis == METHOD_SHARD ? "replicate" : "shard");
    return unknown_name(axis == METHOD_SHARD ? "shard" : "replicate", name, names);
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

static enum sotto_status resolve_methods(struct strategy_config *c)
{
    const struct method_pair p = find_pair(c);
    if (!find_preset(c->preset).shard)
        return unknown_preset(c->preset);
    if (!p.shard)
        return unknown_method(METHOD_SHARD, c->shard);
    if (!p.replicate)
        return unknown_method(METHOD_REPLICATE, c->replicate);
    c->sharding = p.shard;
    c->replicating = p.replicate;
    return SOTTO_OK;
}

/* Refuses options of methods that are not chosen: they would have no effect. */
static enum sotto_status refuse_unused(struct strategy_config *c)
{
    const struct method *m;
    for (int i = 0; (m = method_at(i)); i++) {
        for (int k = 0; k < m->n_options && !is_chosen(c, m); k++) {
            char value[OPTION_ROOM];
            const void *own = method_own(c, m);
            if (!option_is_default(&m->options[k], own))
                return fail(SOTTO_EINVAL, "%s.%s = %.80s has no effect: the method is %s x %s",
                            m->name, m->options[k].key, option_print(&m->options[k], own, value),
                            c->sharding->name, c->replicating->name);
        }
    }
    return SOTTO_OK;
}

static enum sotto_status resolve_own(struct strategy_config *c, const struct method *m)
{
    const struct option_section section = method_section(c, m);
    TRY(option_only_check(&section, m->only, m->n_only));
    return m->resolve ? m->resolve(method_config(c, m), c) : SOTTO_OK;
}

enum sotto_status strategy_resolve(struct strategy_config *c, int workers)
{
    const struct option_section section = shared_section(c);
    TRY(resolve_methods(c));
    TRY(option_only_check(&section, only, RULES));
    TRY(refuse_unused(c));
    c->workers = workers;
    c->groups = strategy_groups(c, workers);
    if (*c->mesh)
        TRY(parse_mesh(c, workers));
    TRY(resolve_own(c, c->sharding));
    return resolve_own(c, c->replicating);
}

enum sotto_status strategy_optim(const struct strategy_config *c, struct optim_config *optim,
                                 const struct optim_config *base)
{
    const struct method *m = find_pair(c).replicate;
    if (!m || !m->optimizer)
        return SOTTO_OK;
    char key[OPTION_ROOM], value[OPTION_ROOM];
    strategy_optim_key(c, key, value);
    if (base && optim->kind == base->kind)
        optim->kind_said = false;
    return m->optimizer(method_own(c, m), key, optim);
}

/* Returns a method's option that chooses the optimizer; NULL if there is none. */
static const struct option *optimizer_option(const struct method *m)
{
    for (int i = 0; m && m->optimizer && i < m->n_options; i++)
        if (strcmp(m->options[i].key, m->optimizer_key) == 0)
            return &m->options[i];
    return NULL;
}

bool strategy_optim_key(const struct strategy_config *c, char key[OPTION_ROOM],
                        char value[OPTION_ROOM])
{
    const struct method *m = find_pair(c).replicate;
    const struct option *o = optimizer_option(m);
    char room[OPTION_ROOM];
    if (!o)
        return false;
    snprintf(key, OPTION_ROOM, "%s.%s", m->name, o->key);
    snprintf(value, OPTION_ROOM, "%s", option_print(o, method_own(c, m), room));
    return true;
}

bool strategy_optim_value(const struct strategy_config *c, int kind, char value[OPTION_ROOM])
{
    const struct method *m = find_pair(c).replicate;
    const struct option *o = optimizer_option(m);
    struct strategy_config other = *c;
    for (int i = 0; o && o->names && o->names[i]; i++) {
        const struct option_section own = method_section(&other, m);
        struct optim_config optim;
        optim_defaults(&optim);
        if (option_set(&own, 1, o->key, o->names[i]) == SOTTO_OK &&
            strategy_optim(&other, &optim, NULL) == SOTTO_OK && optim.kind == kind) {
            snprintf(value, OPTION_ROOM, "%s", o->names[i]);
            return true;
        }
    }
    return false;
}

bool strategy_unused(const struct strategy_config *c, const char *key)
{
    const struct method *m;
    for (int i = 0; (m = method_at(i)); i++) {
        const size_t length = strlen(m->name);
        if (strncmp(key, m->name, length) == 0 && key[length] == '.')
            return !is_chosen(c, m);
    }
    return false;
}

/* Resets options of a method that is not chosen, if `base` sets the same values. */
static void set_aside_method(struct strategy_config *c, const struct strategy_config *base,
                             const struct method *m)
{
    for (int k = 0; k < m->n_options; k++) {
        const struct option *o = &m->options[k];
        const struct option_section alone = OPTION_SECTION_OF("", "", o, 1, method_config(c, m));
        char mine[OPTION_ROOM], shared[OPTION_ROOM];
        if (strcmp(option_print(o, alone.config, mine),
                   option_print(o, method_own(base, m), shared)) == 0)
            option_defaults(&alone, 1);
    }
}

void strategy_set_aside(struct strategy_config *c, const struct strategy_config *base)
{
    const struct option_section section = shared_section(c);
    const struct method *m;
    option_only_set_aside(&section, only, RULES, base);
    for (int i = 0; (m = method_at(i)); i++) {
        const struct option_section own = method_section(c, m);
        if (is_chosen(c, m))
            option_only_set_aside(&own, m->only, m->n_only, method_own(base, m));
        else
            set_aside_method(c, base, m);
        if (is_chosen(c, m) && m->set_aside)
            m->set_aside(own.config, method_own(base, m));
    }
}

void strategy_unsay(struct strategy_config *c)
{
    const struct method *m;
    for (int i = 0; (m = method_at(i)); i++)
        for (int k = 0; k < m->n_options; k++)
            if (m->options[k].set_flag)
                *(bool *)((char *)method_config(c, m) + m->options[k].set_flag) = false;
}
