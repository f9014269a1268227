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
    pool->made = NULL;
}

static void lend_block(struct pool *pool, struct pool_block *block, size_t bytes)
{
    block->asked = bytes;
    pool->live += bytes;
    pool->peak = pool->live > pool->peak ? pool->live : pool->peak;
    pool->high = pool->live > pool->high ? pool->live : pool->high;
}

/* Takes the block at *idle out of the list of idle blocks. */
static void take_idle(struct pool *pool, struct pool_block **idle, size_t bytes,
                      struct pool_block **out)
{
    *out = *idle;
    *idle = (*idle)->next;
    carve_limit((*out)->buffer.view, bytes,
                (*out)->buffer.count * dtype_size((*out)->buffer.view.type));
    lend_block(pool, *out, bytes);
}

static enum sotto_status take_new(struct pool *pool, enum dtype type, size_t count,
                                  struct pool_block **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return fail(SOTTO_ENOMEM, "no memory for a pool block");
    enum sotto_status st = buffer_init(&(*out)->buffer, pool->dev, type, count, pool->category);
    if (st == SOTTO_OK) {
        (*out)->older = pool->made;
        pool->made = *out;
        lend_block(pool, *out, count * dtype_size(type));
    } else {
        free(*out);
        *out = NULL;
    }
    return st;
}

enum sotto_status pool_take(struct pool *pool, enum dtype type, size_t count,
                            struct pool_block **out)
{
    /* The smallest idle block that is large enough, and at most twice as large: a taker that
     * needs a larger block would else have to make another. */
    struct pool_block **best = NULL;
    for (struct pool_block **p = &pool->idle; *p; p = &(*p)->next)
        if ((*p)->buffer.view.type == type && (*p)->buffer.count >= count &&
            (*p)->buffer.count <= 2 * count &&
            (!best || (*p)->buffer.count < (*best)->buffer.count))
            best = p;
    if (!best)
        return take_new(pool, type, count, out);
    take_idle(pool, best, count * dtype_size(type), out);
    return SOTTO_OK;
}

static bool is_of(const struct pool_block *block, enum dtype type, size_t count)
{
    return block->buffer.view.type == type && block->buffer.count == count;
}

static int made_of(const struct pool *pool, enum dtype type, size_t count)
{
    int n = 0;
    for (const struct pool_block *b = pool->made; b; b = b->older)
        n += is_of(b, type, count);
    return n;
}

/* Returns the last idle block of this type and size in the list; NULL: none. */
static struct pool_block **longest_idle_of(struct pool *pool, enum dtype type, size_t count)
{
    struct pool_block **last = NULL;
    for (struct pool_block **p = &pool->idle; *p; p = &(*p)->next)
        if (is_of(*p, type, count))
            last = p;
    return last;
}

/* The number of blocks made depends on the most that are lent at once, not on the number lent at
 * this call, which depends on timing if blocks travel to other workers. */
enum sotto_status pool_take_rested(struct pool *pool, enum dtype type, size_t count,
                                   struct pool_block **out)
{
    struct pool_block **last;
    while (!(last = longest_idle_of(pool, type, count)) ||
           made_of(pool, type, count) <= POOL_RESTING) {
        TRY(take_new(pool, type, count, out));
        pool_give(pool, *out);
    }
    take_idle(pool, last, count * dtype_size(type), out);
    return SOTTO_OK;
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
