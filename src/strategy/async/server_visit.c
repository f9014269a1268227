/* What survives of the server's book. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "strategy/async/server.h"

/* Arrays of structs that have numbers of 8 bytes and nothing else are stored as they are. */
enum {
    GROUP = sizeof(struct async_group) / sizeof(int64_t),
    SHARD = sizeof(struct async_shard) / sizeof(int64_t),
    SPAN = sizeof(struct async_span) / sizeof(int64_t),
};
_Static_assert(GROUP == 13 && SHARD == 3 && SPAN == 3, "all of it survives");

static bool counts(int64_t value, int64_t most)
{
    return value >= 0 && value <= most;
}

static bool lasts(double seconds)
{
    return seconds >= 0 && isfinite(seconds);
}

static bool spans(struct async_span s, int groups)
{
    return counts(s.shard, groups - 1) && counts(s.first, STATE_STEPS) &&
           counts(s.steps, STATE_STEPS);
}

static enum sotto_status check_group(const struct async_server *s, int64_t i)
{
    const struct async_group *g = &s->group[i];
    if (counts(g->state, ASYNC_LEFT) && g->task.group == i &&
        spans(g->task.span, s->rules.groups) && counts(g->task.version, s->version) &&
        counts(g->order, s->version) && counts(g->pushes, STATE_STEPS) &&
        counts(g->steps, STATE_STEPS) && counts(g->staleness, STATE_TOTAL) && lasts(g->seconds) &&
        lasts(g->idle) && lasts(g->speed) && (g->state != ASYNC_TRAINS || g->task.span.steps > 0))
        return SOTTO_OK;
    return fail(SOTTO_EFORMAT, "the server's book of group %lld makes no sense", (long long)i);
}

static enum sotto_status check_shard(const struct async_server *s, int64_t i)
{
    const struct async_shard *d = &s->shards.shard[i];
    int64_t under_way = 0;
    for (int g = 0; g < s->rules.groups; g++)
        under_way += s->group[g].state == ASYNC_TRAINS && s->group[g].task.span.shard == i;
    if (counts(d->next, STATE_STEPS) && counts(d->given, d->next) && d->under_way == under_way)
        return SOTTO_OK;
    return fail(SOTTO_EFORMAT, "the server's book of data shard %lld makes no sense", (long long)i);
}

static enum sotto_status check(const struct async_server *s)
{
    for (int i = 0; i < s->rules.groups; i++) {
        TRY(check_group(s, i));
        TRY(check_shard(s, i));
    }
    for (int i = 0; i < s->shards.holes; i++)
        if (!spans(s->shards.hole[i], s->rules.groups) || s->shards.hole[i].steps < 1)
            return fail(SOTTO_EFORMAT,
                        "the server's book of steps to be done again makes no sense");
    return SOTTO_OK;
}

/* A file of as many groups as there are. */
static enum sotto_status check_size(const struct async_server *s, const struct state_visitor *v)
{
    const size_t groups = state_stored(v, "groups") / GROUP;
    if (groups == (size_t)s->rules.groups)
        return SOTTO_OK;
    return fail(SOTTO_EINVAL,
                "the checkpoint is of %zu groups, and this run has %d: as each has a task under "
                "way, asynchronous groups go on in the same number",
                groups, s->rules.groups);
}

static enum sotto_status visit_counts(struct async_server *s, struct state_visitor *v)
{
    TRY(state_count(v, "version", &s->version, STATE_STEPS));
    TRY(state_count(v, "ready", &s->ready, STATE_STEPS));
    TRY(state_count(v, "steps", &s->steps, STATE_TOTAL));
    TRY(state_count(v, "microbatches", &s->microbatches, STATE_TOTAL));
    TRY(state_count(v, "tokens", &s->tokens, STATE_TOTAL));
    return state_count(v, "T", &s->shards.steps, STATE_TOTAL); /* no end: one by time */
}

/* Of the groups all but the times. */
static enum sotto_status hash_groups(const struct async_server *s, struct state_visitor *v)
{
    const size_t K = (size_t)s->rules.groups;
    struct async_group *timeless = calloc(K, sizeof *timeless);
    if (!timeless)
        return fail(SOTTO_ENOMEM, "no memory for %zu groups", K);
    for (size_t i = 0; i < K; i++) {
        timeless[i] = s->group[i];
        timeless[i].seconds = timeless[i].idle = timeless[i].speed = 0;
    }
    const enum sotto_status st = state_ints(v, "groups", &timeless->state, K * GROUP);
    free(timeless);
    return st;
}

static enum sotto_status visit_groups(struct async_server *s, struct state_visitor *v)
{
    if (state_hashing(v))
        return hash_groups(s, v);
    TRY(state_within(v, "grace_left", &s->left, -1, 1e15));
    return state_ints(v, "groups", &s->group->state, (size_t)s->rules.groups * GROUP);
}

enum sotto_status server_visit(struct async_server *s, struct state_visitor *v)
{
    const size_t K = (size_t)s->rules.groups;
    int64_t holes = s->shards.holes;
    if (state_loading(v))
        TRY(check_size(s, v));
    TRY(visit_counts(s, v));
    TRY(visit_groups(s, v));
    TRY(state_ints(v, "shards", &s->shards.shard->given, K * SHARD));
    TRY(state_count(v, "holes", &holes, s->shards.room - 1));
    if (holes > 0)
        TRY(state_ints(v, "hole", &s->shards.hole->shard, (size_t)holes * SPAN));
    TRY(journal_visit(&s->journal, v, s->rules.groups));
    if (!state_loading(v))
        return SOTTO_OK;
    s->shards.holes = (int)holes;
    s->deadline = INFINITY;
    if (s->journal.n != s->version)
        return fail(SOTTO_EFORMAT, "%lld pushes were applied, and the journal has %lld",
                    (long long)s->version, (long long)s->journal.n);
    return check(s);
}
