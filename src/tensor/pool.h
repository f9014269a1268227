/* Buffers that come and go in a fixed rhythm (activations of the micro-batches in flight). What is
 * given back is kept for the next taker, so after the first round nothing is allocated, and what
 * was allocated is what the schedule really needed at once, and what rests. Belongs to one line of
 * work. */
#ifndef SOTTO_TENSOR_POOL_H
#define SOTTO_TENSOR_POOL_H

#include "tensor/device.h"

struct pool {
    struct device *dev;
    enum memory_category category;
    struct pool_block *idle; /* blocks waiting for a taker, who was given back last in front */
    struct pool_block *made; /* all */
    size_t live;             /* bytes that takers have asked for and not given back */
    size_t peak;             /* the most of them at once */
    size_t high;             /* ... since somebody set it to `live` */
};

struct pool_block {
    struct buffer buffer;
    size_t asked;                    /* bytes; the block may be larger */
    struct pool_block *next, *older; /* idle; made before */
};

void pool_init(struct pool *pool, struct device *dev, enum memory_category category);
void pool_free(struct pool *pool); /* every block must have been given back */

/* A block of at least `count` elements, contents undefined. */
enum sotto_status pool_take(struct pool *pool, enum dtype type, size_t count,
                            struct pool_block **out);
void pool_give(struct pool *pool, struct pool_block *block); /* NULL is fine */

/* A block of exactly this size, of those that are idle the one that was given back longest ago: for
 * many threads, of which each would wait until all others have let go of what they have just read
 * there. So that it has rested it makes POOL_RESTING more than the one, all at once. */
enum { POOL_RESTING = 5 };
enum sotto_status pool_take_rested(struct pool *pool, enum dtype type, size_t count,
                                   struct pool_block **out);

#endif
