/* Plain training by one worker: what every method must equal when it runs alone. */
#include "strategy/strategy.h"

#include <math.h>
#include <stdlib.h>

#include "tensor/ops.h"

struct plain {
    struct strategy base;
    const struct strategy_config *config;
    struct oracle *oracle;
    struct device *dev;
    struct buffer x;     /* fp32 truth                                */
    struct buffer theta; /* mixed: x rounded to bf16; fp32: not there */
    struct buffer g;
    struct view *theta_stage, *g_stage; /* (n_stage) */
    struct optim optim;
    int64_t next; /* micro-batch */
};

static enum sotto_status accumulate(struct plain *p, struct round *out)
{
    const bool sum = p->config->weight == WEIGHT_TOKENS;
    double loss = 0;
    for (int i = 0; i < p->config->accumulate; i++) {
        const int64_t index = p->next + i;
        struct oracle_result r;
        TRY(oracle_gradient(p->oracle, index, sum, p->theta_stage, p->g_stage,
                            &r)); /* g += grad f_i */
        if (!isfinite(r.loss))
            return fail(SOTTO_ENUMERIC, "the loss of micro-batch %lld is %f", (long long)index,
                        r.loss);
        loss += r.loss;
        out->targets += r.targets;
        out->tokens += r.tokens;
        out->microbatches++;
    }
    out->loss = out->targets ? loss / (double)out->targets : 0;
    return SOTTO_OK;
}

static enum sotto_status run_round(struct strategy *s, double lr, bool want_norm, struct round *out)
{
    struct plain *p = (struct plain *)s;
    const struct ops *ops = p->dev->ops;
    const struct optim_config *c = p->optim.config;
    *out = (struct round){.grad_norm = -1};
    ops->fill(p->dev, p->g.view, p->g.count, 0);
    TRY(accumulate(p, out));
    int64_t parts = p->config->weight == WEIGHT_TOKENS ? out->targets : out->microbatches;
    double scale = parts ? 1 / (double)parts : 0;
    if (c->clip > 0 || want_norm) {
        double squared = ops->sum_squares(p->dev, p->g.view, p->g.count) * scale * scale;
        out->grad_norm = sqrt(squared);
        if (!isfinite(out->grad_norm))
            return fail(SOTTO_ENUMERIC, "the gradient's norm is %f", out->grad_norm);
        scale *= optim_clip(c, squared);
    }
    optim_step(&p->optim, p->x.view, p->theta.view, p->g.view, lr, scale);
    p->next += out->microbatches;
    return device_check(p->dev);
}

static struct view parameters(struct strategy *s)
{
    return ((struct plain *)s)->x.view;
}

static void adopt(struct strategy *s)
{
    struct plain *p = (struct plain *)s;
    if (p->theta.dev)
        p->dev->ops->copy(p->dev, p->theta.view, p->x.view, p->x.count);
}

static enum sotto_status visit(struct strategy *s, struct state_visitor *v)
{
    struct plain *p = (struct plain *)s;
    TRY(state_int(v, "microbatch", &p->next));
    TRY(state_int(v, "optim.t", &p->optim.t));
    for (int i = 0; i < p->optim.ops->states; i++) {
        if (!p->optim.state[i].dev)
            continue;
        TRY(state_enter(v, p->optim.ops->state_name[i]));
        TRY(state_table(v, p->oracle->table, 0, 1, MEMORY_OPTIMIZER, p->dev,
                        p->optim.state[i].view));
        state_leave(v);
    }
    return SOTTO_OK;
}

static void free_plain(struct strategy *s)
{
    struct plain *p = (struct plain *)s;
    optim_free(&p->optim);
    buffer_free(&p->x);
    buffer_free(&p->theta);
    buffer_free(&p->g);
    free(p->theta_stage);
    free(p->g_stage);
    free(p);
}

static const struct strategy_ops plain_ops = {"plain", run_round, parameters,
                                              adopt,   visit,     free_plain};

enum sotto_status strategy_plain(struct strategy **out, const struct strategy_config *config,
                                 const struct optim_config *optim, struct oracle *oracle,
                                 struct device *dev)
{
    *out = NULL;
    const struct table *table = oracle->table;
    const size_t count = table_count(table);
    const bool mixed = config->precision == PRECISION_MIXED;
    const enum dtype type = mixed ? DTYPE_BF16 : DTYPE_F32;
    struct plain *p = calloc(1, sizeof *p);
    if (!p)
        return fail(SOTTO_ENOMEM, "no memory for the strategy");
    p->base.ops = &plain_ops;
    p->config = config;
    p->oracle = oracle;
    p->dev = dev;
    enum sotto_status st = SOTTO_OK;
    p->theta_stage = calloc((size_t)table->n_stage, sizeof *p->theta_stage);
    p->g_stage = calloc((size_t)table->n_stage, sizeof *p->g_stage);
    if (!p->theta_stage || !p->g_stage)
        st = fail(SOTTO_ENOMEM, "no memory for %d stages", table->n_stage);
    if (st == SOTTO_OK)
        st =
            buffer_init(&p->x, dev, DTYPE_F32, count, mixed ? MEMORY_OPTIMIZER : MEMORY_PARAMETERS);
    if (st == SOTTO_OK && mixed)
        st = buffer_init(&p->theta, dev, type, count, MEMORY_PARAMETERS);
    if (st == SOTTO_OK)
        st = buffer_init(&p->g, dev, type, count, MEMORY_GRADIENTS);
    if (st == SOTTO_OK)
        st = optim_init(&p->optim, optim, dev, table, 0, 1);
    if (st != SOTTO_OK) {
        free_plain(&p->base);
        return st;
    }
    table_stages(table, mixed ? p->theta.view : p->x.view, p->theta_stage);
    table_stages(table, p->g.view, p->g_stage);
    *out = &p->base;
    return SOTTO_OK;
}
