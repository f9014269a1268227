/* The data of each task. The data are as many shards as there are groups, of T steps each. A group
 * that pulls takes its next steps from the shard with the fewest steps given out, done or in
 * progress: slow groups hold no data back, and no step is given out twice. */
#ifndef SOTTO_STRATEGY_ASYNC_DATA_SHARDS_H
#define SOTTO_STRATEGY_ASYNC_DATA_SHARDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Steps [first, first + steps) of a data shard; steps = 0: no steps. */
struct async_span {
    int64_t shard, first, steps;
};

struct async_shard {
    int64_t given;       /* steps given out and not given back */
    int64_t next;        /* first step that was never given out */
    int64_t in_progress; /* spans in progress */
};

struct async_shards {
    int n;
    int64_t steps;             /* T */
    struct async_shard *shard; /* (n) owned */
    /* (room) Spans before their shard's `next` that were given back, or skipped by a replay; owned.
     * Without a replay each hole was a group's task, so there are at most n. */
    struct async_span *hole;
    int holes, room;
};

enum sotto_status shards_init(struct async_shards *s, int n, int64_t steps);

/* Begins after `done` steps of each shard, which another method has made; no step is given out. */
void shards_begin(struct async_shards *s, int64_t done);
void shards_free(struct async_shards *s);

/* Gives out the next steps, at most `most`; returns no steps if none are left. */
struct async_span shards_take(struct async_shards *s, int64_t most);

/* True if steps are left. */
bool shards_left(const struct async_shards *s);

/* Gives out these steps, as another run did (replay). */
enum sotto_status shards_take_this(struct async_shards *s, struct async_span span);

/* Takes a span in progress back as done, or as steps to be given out again. */
void shards_done(struct async_shards *s, struct async_span span);
void shards_give_back(struct async_shards *s, struct async_span span);

/* Shortens a span in progress to its first `steps`; the remaining steps are to be given out again.
 */
void shards_truncate(struct async_shards *s, struct async_span *span, int64_t steps);

#endif
