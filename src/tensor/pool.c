#include "tensor/pool.h"

#include <stdlib.h>

#include "tensor/carve.h"

void pool_init(struct pool *pool, struct device *dev, enum memory_category category)
{
    *pool = (struct pool){.dev = dev, .category = category};
}

void pool_free(struct pool *pool)
{
    while (pool->idle) {
        struct pool_block *block = pool->idle;
        pool->idle = block->next;
        buffer_free(&block->buffer);
        free(block);
    }
}

static void lend(struct pool *pool, struct pool_block *block, size_t bytes)
{
    block->asked = bytes;
    pool->live += bytes;
    pool->peak = pool->live > pool->peak ? pool->live : pool->peak;
    pool->high = pool->live > pool->high ? pool->live : pool->high;
}

enum sotto_status pool_take(struct pool *pool, enum dtype type, size_t count,
                            struct pool_block **out)
{
    /* The smallest idle block that is large enough, but no giant: its own taker would have to make
     * another. */
    struct pool_block **best = NULL;
    for (struct pool_block **p = &pool->idle; *p; p = &(*p)->next)
        if ((*p)->buffer.view.type == type && (*p)->buffer.count >= count &&
            (*p)->buffer.count <= 2 * count &&
            (!best || (*p)->buffer.count < (*best)->buffer.count))
            best = p;
    if (best) {
        *out = *best;
        *best = (*best)->next;
        carve_limit((*out)->buffer.view, count * dtype_size(type),
                    (*out)->buffer.count * dtype_size(type));
        lend(pool, *out, count * dtype_size(type));
        return SOTTO_OK;
    }
    *out = calloc(1, sizeof **out);
    if (!*out)
        return fail(SOTTO_ENOMEM, "no memory for a pool block");
    enum sotto_status st = buffer_init(&(*out)->buffer, pool->dev, type, count, pool->category);
    if (st == SOTTO_OK) {
        lend(pool, *out, count * dtype_size(type));
    } else {
        free(*out);
        *out = NULL;
    }
    return st;
}

void pool_give(struct pool *pool, struct pool_block *block)
{
    if (!block)
        return;
    carve_limit(block->buffer.view, 0, block->buffer.count * dtype_size(block->buffer.view.type));
    pool->live -= block->asked;
    block->next = pool->idle;
    pool->idle = block;
}
