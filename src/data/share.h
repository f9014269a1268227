/* The sources that a worker reads, alone or with other workers, for all loaders. With at least one
 * source for each worker, sources are dealt out evenly in order; with fewer, worker r reads source
 * r mod sources and shares it. */
#ifndef SOTTO_DATA_SHARE_H
#define SOTTO_DATA_SHARE_H

#include "base/rng.h"
#include "data/config.h"

/* The reading of one worker: sources [first, last), shared with `members` - 1 other workers. */
struct share {
    int first, last;
    int member, members;
};

static inline struct share share_of(enum data_sharding sharding, int sources, int rank, int size)
{
    const int64_t n = sources;
    if (sharding == DATA_IID)
        return (struct share){0, sources, rank, size};
    if (n >= size)
        return (struct share){(int)(rank * n / size), (int)((rank + 1) * n / size), 0, 1};
    const int mine = rank % sources;
    return (struct share){mine, mine + 1, rank / sources, (size - 1 - mine) / sources + 1};
}

/* Streams of the generator, by purpose, readers and epoch. */
enum { DRAW_ORDER = 0xda71, DRAW_OFFSET = 0xda72, DRAW_CHANGE = 0xda73 };

static inline uint64_t share_draw(int what, struct share s, int64_t epoch)
{
    return (uint64_t)what << 48 ^ (uint64_t)s.first << 32 ^ (uint64_t)epoch;
}

/* Returns the item, of `count`, of the g-th visit of all members: each item once before the first
 * repetition, in a new order every time. */
static inline int64_t share_visit(struct share s, uint64_t seed, int64_t g, int64_t count)
{
    return (int64_t)rng_permute(seed, share_draw(DRAW_ORDER, s, g / count), (uint64_t)(g % count),
                                (uint64_t)count);
}

#endif
