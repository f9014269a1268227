#include "strategy/strategy.h"

#include <stdlib.h>

#include "strategy/method.h"

enum sotto_status strategy_open(struct strategy **out, const struct strategy_setup *setup)
{
    const struct strategy_ops *ops = setup->config->sharding->shard;
    const int slots = strategy_slots(setup->config);
    *out = NULL;
    if (setup->oracle->slots < slots)
        return fail(SOTTO_EINVAL, "%s has %d micro-batches in flight at once, the oracle holds %d",
                    setup->config->sharding->name, slots, setup->oracle->slots);
    struct strategy *s = calloc(1, ops->bytes);
    if (!s)
        return fail(SOTTO_ENOMEM, "no memory for the strategy");
    s->ops = ops;
    enum sotto_status st = ops->init(s, setup);
    if (st != SOTTO_OK)
        ops->free(s);
    else
        *out = s;
    return st;
}
