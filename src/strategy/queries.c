/* Properties of a configuration with resolved methods. */
#include "strategy/config.h"

#include "strategy/method.h"
#include "strategy/replicate/replicate.h"

enum dtype strategy_type(const struct strategy_config *c)
{
    return c->precision == PRECISION_MIXED ? DTYPE_BF16 : DTYPE_F32;
}

/* Returns the type of gradient sums. A bf16 sum loses half a percent with each term and stops
 * growing after 256 terms of the same sign. The network decides the number of micro-batches of
 * elastic methods. */
enum dtype strategy_grad_type(const struct strategy_config *c)
{
    enum { FEW = 4 };
    if (c->precision == PRECISION_FP32 || c->grads == GRADS_FP32)
        return DTYPE_F32;
    if (c->grads == GRADS_BF16)
        return DTYPE_BF16;
    const bool many = c->accumulate > FEW || strategy_stages(c) > FEW;
    return strategy_elastic(c) || many ? DTYPE_F32 : DTYPE_BF16;
}

bool strategy_shares(const struct strategy_config *c)
{
    return !c->sharding->shard->owns_all;
}

bool strategy_owns_all(const struct strategy_config *c)
{
    return c->groups == c->workers || !strategy_shares(c);
}

bool strategy_elastic(const struct strategy_config *c)
{
    return c->sharding->shard->history != NULL;
}

bool strategy_timed(const struct strategy_config *c)
{
    const struct method *m = c->sharding;
    return m->timed && m->timed(method_own(c, m));
}

bool strategy_varies(const struct strategy_config *c)
{
    const struct method *m = c->replicating;
    const bool meets =
        !strategy_in_step(c); /* elastic groups make different numbers of rounds between meetings */
    return strategy_async(c) || (meets && strategy_elastic(c)) ||
           (m->varies && m->varies(method_own(c, m)));
}

int strategy_slots(const struct strategy_config *c)
{
    const struct method *m = c->sharding;
    return m->slots ? m->slots(method_own(c, m), c) : 1;
}

bool strategy_unlike(const struct strategy_config *c)
{
    const struct method *m = c->sharding;
    return m->unlike && m->unlike(method_own(c, m));
}

int strategy_stages(const struct strategy_config *c)
{
    const struct method *m = c->sharding;
    return m->stages ? m->stages(method_own(c, m), c) : 0;
}

bool strategy_in_step(const struct strategy_config *c)
{
    return c->replicating->replicate->in_step;
}

bool strategy_async(const struct strategy_config *c)
{
    return c->replicating->replicate->async;
}

int64_t strategy_every(const struct strategy_config *c, char key[OPTION_ROOM], bool *meets_at_end)
{
    const struct method *m = c->replicating;
    if (!m->every)
        return 0;
    snprintf(key, OPTION_ROOM, "%s.%s", m->name, m->every_key);
    *meets_at_end = m->meets_at_end;
    return m->every(method_own(c, m));
}

void strategy_warn(const struct strategy_config *c, const struct optim_config *optim,
                   size_t parameters)
{
    const struct method *m = c->replicating;
    const int slices = strategy_owns_all(c) ? 1 : c->workers / c->groups;
    if (m->warn && c->groups > 1)
        m->warn(method_own(c, m), optim, parameters / (size_t)slices);
}

void strategy_dry_run(struct strategy_config *c, int groups)
{
    c->workers = c->workers / c->groups * groups;
    c->groups = groups;
    if (c->sharding->dry_run)
        c->sharding->dry_run(method_config(c, c->sharding));
    if (c->replicating->dry_run)
        c->replicating->dry_run(method_config(c, c->replicating));
}

void strategy_describe(const struct strategy_config *c, char out[OPTION_ROOM])
{
    if (c->groups > 1 || c->replicating->replicate->init) /* one group has outer steps, too */
        snprintf(out, OPTION_ROOM, "%s x %s", c->sharding->name, c->replicating->name);
    else
        snprintf(out, OPTION_ROOM, "%s", c->sharding->name);
}

double strategy_rounds_to_stop(const struct strategy_config *c)
{
    if (strategy_async(c)) /* asynchronous groups poll for meeting requests between two rounds */
        return 1;
    if (c->groups > 1 && !strategy_in_step(c)) {
        char key[OPTION_ROOM];
        bool meets;
        const int64_t every = strategy_every(c, key, &meets);
        return every > 0 ? (double)every : 1;
    }
    return c->sharding->shard->abandons ? 1.0 / c->accumulate : 1;
}

int strategy_groups(const struct strategy_config *c, int workers)
{
    if (c->replicating->replicate->sums_gradient)
        return 1;
    return c->nodes > 1 && strategy_shares(c) ? c->nodes : workers;
}
