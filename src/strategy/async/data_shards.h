/* Who gets which data. There are as many data shards as groups, of T steps each; a group that pulls
 * takes its next steps from the one of which the fewest were given out, be they done or under way,
 * so slow groups hold nobody's data back, and no step is given out twice. */
#ifndef SOTTO_STRATEGY_ASYNC_DATA_SHARDS_H
#define SOTTO_STRATEGY_ASYNC_DATA_SHARDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Steps [first, first + steps) of a data shard; steps = 0: none. */
struct async_span {
    int64_t shard, first, steps;
};

struct async_shard {
    int64_t given;     /* steps that were given out and not given back */
    int64_t next;      /* the first one that never was                 */
    int64_t under_way; /* spans                                        */
};

struct async_shards {
    int n;
    int64_t steps;             /* T                                               */
    struct async_shard *shard; /* (n) owned                                       */
    /* (room) Given back, or never given out, and not at their shard's end; owned. Each was a
     * group's, so they are not more than groups, but for what another run says (replay). */
    struct async_span *hole;
    int holes, room;
};

enum sotto_status shards_init(struct async_shards *s, int n, int64_t steps);

/* Nothing was given out yet: so many of each were done before. */
void shards_begin(struct async_shards *s, int64_t done);
void shards_free(struct async_shards *s);

/* The next steps, at the most `most`; none where nothing is left for who asks. */
struct async_span shards_take(struct async_shards *s, int64_t most);

/* Whether there are any. */
bool shards_left(const struct async_shards *s);

/* These, as another run has given them out. */
enum sotto_status shards_take_this(struct async_shards *s, struct async_span span);

/* They are done; they are not going to be done. */
void shards_done(struct async_shards *s, struct async_span span);
void shards_give_back(struct async_shards *s, struct async_span span);

/* Only the first `steps` of them are going to be done, which *span becomes. */
void shards_cut(struct async_shards *s, struct async_span *span, int64_t steps);

#endif
