/* Workers of cyclic data parallelism that train a chain. */
#ifndef SOTTO_TESTS_STRATEGY_CDP_CDP_LAB_H
#define SOTTO_TESTS_STRATEGY_CDP_CDP_LAB_H

#include "strategy/cdp/cdp.h"
#include "strategy/cdp/chain.h"

struct cdp_case {
    const char *placement, *rule;
    int n;
    int kind; /* optimizer */
    bool tied, mixed, tokens;
    double clip;
    int64_t nan_at;
};

static inline int cdp_case_workers(const struct cdp_case *c)
{
    return strcmp(c->placement, "single") == 0 ? 1
           : strcmp(c->placement, "mp") == 0   ? c->n * (c->n + 1) / 2
                                               : c->n;
}

static inline void cdp_case_configure(const struct cdp_case *c, struct strategy_config *config,
                                      struct optim_config *optim)
{
    strategy_defaults(config);
    optim_defaults(optim);
    snprintf(config->preset, sizeof config->preset, "cdp");
    set_own(config, "cdp", "rule", "%s", c->rule);
    set_own(config, "cdp", "placement", "%s", c->placement);
    if (strcmp(c->placement, "single") == 0)
        set_own(config, "cdp", "stages", "%d", c->n);
    config->precision = c->mixed ? PRECISION_MIXED : PRECISION_FP32;
    config->weight = c->tokens ? WEIGHT_TOKENS : WEIGHT_MICROBATCH;
    optim->kind = c->kind;
    optim->momentum = c->kind == OPTIM_SGD ? 0.9 : 0;
    optim->weight_decay = 0.02;
    optim->clip = c->clip;
}

/* A worker with its method. */
struct seat {
    struct memory memory;
    struct device dev;
    struct strategy_config config;
    struct optim_config optim;
    struct mesh mesh;
    struct chain chain;
    struct strategy *s;
};

static inline enum sotto_status seat_open(struct seat *p, const struct cdp_case *c,
                                          struct worker *w)
{
    *p = (struct seat){0};
    cdp_case_configure(c, &p->config, &p->optim);
    TRY(strategy_resolve(&p->config, w->size));
    assert_int_equal(strategy_stages(&p->config), c->n);
    TRY(device_open(&p->dev, test_device(), &p->memory, 1));
    TRY(mesh_open(&p->mesh, w, 1, &p->dev));
    TRY(chain_open(&p->chain, &p->dev, w, c->n, strategy_slots(&p->config), c->tied));
    p->chain.alone = strcmp(c->placement, "pp") == 0 || strcmp(c->placement, "mp") == 0;
    p->chain.nan_at = c->nan_at;
    const struct strategy_setup setup = {.config = &p->config,
                                         .optim = &p->optim,
                                         .oracle = &p->chain.base,
                                         .dev = &p->dev,
                                         .mesh = &p->mesh};
    return strategy_open(&p->s, &setup);
}

static inline void seat_close(struct seat *p)
{
    if (p->s)
        p->s->ops->free(p->s);
    mesh_close(&p->mesh);
    chain_close(&p->chain);
    device_close(&p->dev);
}

#endif
