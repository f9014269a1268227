/* Buffers that are taken and given back in a fixed rhythm (activations of the micro-batches in
 * flight). A given block is kept for a later take, so nothing is allocated after the first
 * round, and the pool has the memory that the schedule needs at once, and resting blocks.
 * Belongs to one sequence of work. */
#ifndef SOTTO_TENSOR_POOL_H
#define SOTTO_TENSOR_POOL_H

#include "tensor/device.h"

struct pool {
    struct device *dev;
    enum memory_category category;
    struct pool_block *idle; /* idle blocks, the last given first */
    struct pool_block *made; /* all blocks */
    size_t live;             /* bytes taken and not given back */
    size_t peak;             /* highest `live` */
    size_t high;             /* highest `live` since a caller set `high` to `live` */
};

struct pool_block {
    struct buffer buffer;
    size_t asked;                    /* bytes taken; the block may be larger */
    struct pool_block *next, *older; /* next idle block; block made before */
};

void pool_init(struct pool *pool, struct device *dev, enum memory_category category);
void pool_free(struct pool *pool); /* the caller has given back every block */

/* Takes a block of at least `count` elements, contents undefined. */
enum sotto_status pool_take(struct pool *pool, enum dtype type, size_t count,
                            struct pool_block **out);
void pool_give(struct pool *pool, struct pool_block *block); /* NULL is fine */

/* Takes the block of exactly this size that has been idle longest. A thread that writes a block
 * waits until the threads that have just read the block drop its cache lines. With many threads,
 * blocks therefore rest before they are written again: the pool makes POOL_RESTING blocks in
 * addition to the taken block, all at once. */
enum { POOL_RESTING = 5 };
enum sotto_status pool_take_rested(struct pool *pool, enum dtype type, size_t count,
                                   struct pool_block **out);

#endif
