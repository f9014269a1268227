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

/* Returns the first hole of a shard; NULL if there is none. */
static struct async_span *first_hole(struct async_shards *s, int64_t shard)
{
    struct async_span *found = NULL;
    for (int i = 0; i < s->holes; i++)
        if (s->hole[i].shard == shard && (!found || s->hole[i].first < found->first))
            found = &s->hole[i];
    return found;
}

static int64_t span_end(struct async_span span)
{
    return span.first + span.steps;
}

/* Returns the hole with all of these steps; NULL if there is none. */
static struct async_span *find_hole(struct async_shards *s, struct async_span span)
{
    for (int i = 0; i < s->holes; i++)
        if (s->hole[i].shard == span.shard && s->hole[i].first <= span.first &&
            span_end(s->hole[i]) >= span_end(span))
            return &s->hole[i];
    return NULL;
}

static void add_hole(struct async_shards *s, int64_t shard, int64_t first, int64_t end)
{
    if (end > first)
        s->hole[s->holes++] = (struct async_span){shard, first, end - first};
}

/* Takes steps. Steps around them that are left become holes, also steps before a span beyond
 * `next`. */
static void take_span(struct async_shards *s, struct async_span span)
{
    struct async_shard *shard = &s->shard[span.shard];
    struct async_span *hole = find_hole(s, span);
    struct async_span around = {span.shard, shard->next, span_end(span) - shard->next};
    if (hole) {
        around = *hole;
        *hole = s->hole[--s->holes];
    } else {
        shard->next = span_end(span);
    }
    add_hole(s, span.shard, around.first, span.first);
    add_hole(s, span.shard, span_end(span), span_end(around));
    shard->given += span.steps;
    shard->in_progress++;
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
    int64_t last = -1; /* on ties the lower number */
    for (int i = 0; i < s->n; i++)
        if (s->shard[i].given < s->steps && (last < 0 || s->shard[i].given < s->shard[last].given))
            last = i;
    if (last < 0)
        return (struct async_span){0};
    const struct async_span *hole = first_hole(s, last);
    const int64_t first = hole ? hole->first : s->shard[last].next;
    const int64_t left = hole ? hole->steps : s->steps - first;
    const struct async_span span = {last, first, most < left ? most : left};
    take_span(s, span);
    return span;
}

enum sotto_status shards_take_this(struct async_shards *s, struct async_span span)
{
    const bool known = span.shard >= 0 && span.shard < s->n && span.first >= 0 && span.steps > 0;
    const int64_t next = known ? s->shard[span.shard].next : 0;
    const bool ahead = span.first >= next && span.first <= s->steps - span.steps;
    if (!known || s->holes + 1 >= s->room || (!ahead && !find_hole(s, span)))
        return fail(
            SOTTO_EINVAL,
            "%lld steps from step %lld of data shard %lld on are not available: there are %d "
            "shards of %lld steps, and the next step of this shard is %lld",
            (long long)span.steps, (long long)span.first, (long long)span.shard, s->n,
            (long long)s->steps, (long long)next);
    take_span(s, span);
    return SOTTO_OK;
}

void shards_done(struct async_shards *s, struct async_span span)
{
    s->shard[span.shard].in_progress--;
}

/* Makes steps available again, joined with adjacent holes. */
static void reopen_span(struct async_shards *s, struct async_span span)
{
    struct async_shard *shard = &s->shard[span.shard];
    shard->given -= span.steps;
    for (int i = s->holes - 1; i >= 0; i--) {
        const struct async_span hole = s->hole[i];
        if (hole.shard != span.shard ||
            (hole.first != span_end(span) && span_end(hole) != span.first))
            continue;
        span.first = hole.first < span.first ? hole.first : span.first;
        span.steps += hole.steps;
        s->hole[i] = s->hole[--s->holes];
    }
    if (shard->next == span_end(span))
        shard->next = span.first;
    else
        add_hole(s, span.shard, span.first, span_end(span));
    assert(s->holes < s->room);
}

void shards_give_back(struct async_shards *s, struct async_span span)
{
    reopen_span(s, span);
    s->shard[span.shard].in_progress--;
}

void shards_truncate(struct async_shards *s, struct async_span *span, int64_t steps)
{
    const struct async_span rest = {span->shard, span->first + steps, span->steps - steps};
    span->steps = steps;
    reopen_span(s, rest);
}
