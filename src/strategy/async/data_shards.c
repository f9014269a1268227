#include "strategy/async/data_shards.h"

#include <assert.h>
#include <stdlib.h>

enum sotto_status shards_init(struct async_shards *s, int n, int64_t steps)
{
    *s = (struct async_shards){.n = n, .steps = steps};
    s->shard = calloc((size_t)n, sizeof *s->shard);
    s->room = 2 * n + 2;
    s->hole = calloc((size_t)s->room, sizeof *s->hole);
    return s->shard && s->hole ? SOTTO_OK : fail(SOTTO_ENOMEM, "no memory for %d data shards", n);
}

void shards_begin(struct async_shards *s, int64_t done)
{
    for (int i = 0; i < s->n; i++)
        s->shard[i].given = s->shard[i].next = done;
}

void shards_free(struct async_shards *s)
{
    free(s->shard);
    free(s->hole);
    *s = (struct async_shards){0};
}

/* The first hole of a shard; NULL: it has none. */
static struct async_span *hole_of(struct async_shards *s, int64_t shard)
{
    struct async_span *found = NULL;
    for (int i = 0; i < s->holes; i++)
        if (s->hole[i].shard == shard && (!found || s->hole[i].first < found->first))
            found = &s->hole[i];
    return found;
}

static int64_t end_of(struct async_span span)
{
    return span.first + span.steps;
}

/* The hole that these steps are in; NULL: none. */
static struct async_span *hole_around(struct async_shards *s, struct async_span span)
{
    for (int i = 0; i < s->holes; i++)
        if (s->hole[i].shard == span.shard && s->hole[i].first <= span.first &&
            end_of(s->hole[i]) >= end_of(span))
            return &s->hole[i];
    return NULL;
}

static void add_hole(struct async_shards *s, int64_t shard, int64_t first, int64_t end)
{
    if (end > first)
        s->hole[s->holes++] = (struct async_span){shard, first, end - first};
}

/* What is left around steps that are taken is a hole, also where they are beyond the next one. */
static void take(struct async_shards *s, struct async_span span)
{
    struct async_shard *shard = &s->shard[span.shard];
    struct async_span *hole = hole_around(s, span);
    struct async_span around = {span.shard, shard->next, end_of(span) - shard->next};
    if (hole) {
        around = *hole;
        *hole = s->hole[--s->holes];
    } else {
        shard->next = end_of(span);
    }
    add_hole(s, span.shard, around.first, span.first);
    add_hole(s, span.shard, end_of(span), end_of(around));
    shard->given += span.steps;
    shard->under_way++;
}

bool shards_left(const struct async_shards *s)
{
    for (int i = 0; i < s->n; i++)
        if (s->shard[i].given < s->steps)
            return true;
    return false;
}

struct async_span shards_take(struct async_shards *s, int64_t most)
{
    int64_t behind = -1; /* ties to the lower one */
    for (int i = 0; i < s->n; i++)
        if (s->shard[i].given < s->steps &&
            (behind < 0 || s->shard[i].given < s->shard[behind].given))
            behind = i;
    if (behind < 0)
        return (struct async_span){0};
    const struct async_span *hole = hole_of(s, behind);
    const int64_t first = hole ? hole->first : s->shard[behind].next;
    const int64_t left = hole ? hole->steps : s->steps - first;
    const struct async_span span = {behind, first, most < left ? most : left};
    take(s, span);
    return span;
}

enum sotto_status shards_take_this(struct async_shards *s, struct async_span span)
{
    const bool known = span.shard >= 0 && span.shard < s->n && span.first >= 0 && span.steps > 0;
    const int64_t next = known ? s->shard[span.shard].next : 0;
    const bool ahead = span.first >= next && span.first <= s->steps - span.steps;
    if (!known || s->holes + 1 >= s->room || (!ahead && !hole_around(s, span)))
        return fail(SOTTO_EINVAL,
                    "%lld steps from step %lld of data shard %lld on are not to be had: of %d such "
                    "shards of %lld steps, this one is at step %lld",
                    (long long)span.steps, (long long)span.first, (long long)span.shard, s->n,
                    (long long)s->steps, (long long)next);
    take(s, span);
    return SOTTO_OK;
}

void shards_done(struct async_shards *s, struct async_span span)
{
    s->shard[span.shard].under_way--;
}

/* They are to be given out again, together with holes beside them. */
static void open_again(struct async_shards *s, struct async_span span)
{
    struct async_shard *shard = &s->shard[span.shard];
    shard->given -= span.steps;
    for (int i = s->holes - 1; i >= 0; i--) {
        const struct async_span hole = s->hole[i];
        if (hole.shard != span.shard || (hole.first != end_of(span) && end_of(hole) != span.first))
            continue;
        span.first = hole.first < span.first ? hole.first : span.first;
        span.steps += hole.steps;
        s->hole[i] = s->hole[--s->holes];
    }
    if (shard->next == end_of(span))
        shard->next = span.first;
    else
        add_hole(s, span.shard, span.first, end_of(span));
    assert(s->holes < s->room);
}

void shards_give_back(struct async_shards *s, struct async_span span)
{
    open_again(s, span);
    s->shard[span.shard].under_way--;
}

void shards_cut(struct async_shards *s, struct async_span *span, int64_t steps)
{
    const struct async_span rest = {span->shard, span->first + steps, span->steps - steps};
    span->steps = steps;
    open_again(s, rest);
}
