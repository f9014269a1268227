/* The ledger's state in a checkpoint. */
#include <math.h>
#include <stdlib.h>

#include "strategy/async/ledger.h"

/* Structs of 8-byte numbers are stored as arrays of such numbers. */
enum {
    GROUP = sizeof(struct async_group) / sizeof(int64_t),
    SHARD = sizeof(struct async_shard) / sizeof(int64_t),
    SPAN = sizeof(struct async_span) / sizeof(int64_t),
};
_Static_assert(GROUP == 13 && SHARD == 3 && SPAN == 3, "all numbers are stored");

static bool is_count(int64_t value, int64_t most)
{
    return value >= 0 && value <= most;
}

static bool is_duration(double seconds)
{
    return seconds >= 0 && isfinite(seconds);
}

static bool is_span(struct async_span s, int groups)
{
    return is_count(s.shard, groups - 1) && is_count(s.first, STATE_STEPS) &&
           is_count(s.steps, STATE_STEPS);
}

static enum sotto_status check_ledger_group(const struct async_ledger *l, int64_t i)
{
    const struct async_group *g = &l->group[i];
    if (is_count(g->state, ASYNC_LEFT) && g->task.group == i &&
        is_span(g->task.span, l->rules.groups) && is_count(g->task.version, l->version) &&
        is_count(g->order, l->version) && is_count(g->pushes, STATE_STEPS) &&
        is_count(g->steps, STATE_STEPS) && is_count(g->staleness, STATE_TOTAL) &&
        is_duration(g->seconds) && is_duration(g->idle) && is_duration(g->speed) &&
        (g->state != ASYNC_TRAINS || g->task.span.steps > 0))
        return SOTTO_OK;
    return fail(SOTTO_EFORMAT, "the server's ledger of group %lld is inconsistent", (long long)i);
}

static enum sotto_status check_ledger_shard(const struct async_ledger *l, int64_t i)
{
    const struct async_shard *d = &l->shards.shard[i];
    int64_t in_progress = 0;
    for (int g = 0; g < l->rules.groups; g++)
        in_progress += l->group[g].state == ASYNC_TRAINS && l->group[g].task.span.shard == i;
    if (is_count(d->next, STATE_STEPS) && is_count(d->given, d->next) &&
        d->in_progress == in_progress)
        return SOTTO_OK;
    return fail(SOTTO_EFORMAT, "the server's ledger of data shard %lld is inconsistent",
                (long long)i);
}

static enum sotto_status check_ledger(const struct async_ledger *l)
{
    for (int i = 0; i < l->rules.groups; i++) {
        TRY(check_ledger_group(l, i));
        TRY(check_ledger_shard(l, i));
    }
    for (int i = 0; i < l->shards.holes; i++)
        if (!is_span(l->shards.hole[i], l->rules.groups) || l->shards.hole[i].steps < 1)
            return fail(SOTTO_EFORMAT,
                        "the server's ledger of steps to be given out again is inconsistent");
    return SOTTO_OK;
}

/* Refuses a file of another number of groups. */
static enum sotto_status check_ledger_size(const struct async_ledger *l,
                                           const struct state_visitor *v)
{
    const size_t groups = state_stored(v, "groups") / GROUP;
    if (groups == (size_t)l->rules.groups)
        return SOTTO_OK;
    return fail(SOTTO_EINVAL,
                "the checkpoint has %zu groups, and this run has %d: asynchronous groups have "
                "tasks in progress, so a run resumes with the same number of groups",
                groups, l->rules.groups);
}

static enum sotto_status visit_ledger_counts(struct async_ledger *l, struct state_visitor *v)
{
    TRY(state_count(v, "version", &l->version, STATE_STEPS));
    TRY(state_count(v, "ready", &l->ready, STATE_STEPS));
    TRY(state_count(v, "steps", &l->steps, STATE_TOTAL));
    TRY(state_count(v, "microbatches", &l->microbatches, STATE_TOTAL));
    TRY(state_count(v, "tokens", &l->tokens, STATE_TOTAL));
    return state_count(v, "T", &l->shards.steps,
                       STATE_TOTAL); /* no upper limit: the run may end by time */
}

/* Hashes the groups without times, which differ from run to run. */
static enum sotto_status hash_ledger_groups(const struct async_ledger *l, struct state_visitor *v)
{
    const size_t K = (size_t)l->rules.groups;
    struct async_group *timeless = calloc(K, sizeof *timeless);
    if (!timeless)
        return fail(SOTTO_ENOMEM, "no memory for %zu groups", K);
    for (size_t i = 0; i < K; i++) {
        timeless[i] = l->group[i];
        timeless[i].seconds = timeless[i].idle = timeless[i].speed = 0;
    }
    const enum sotto_status st = state_ints(v, "groups", &timeless->state, K * GROUP);
    free(timeless);
    return st;
}

static enum sotto_status visit_ledger_groups(struct async_ledger *l, struct state_visitor *v)
{
    if (state_hashing(v))
        return hash_ledger_groups(l, v);
    TRY(state_within(v, "grace_left", &l->left, -1, 1e15));
    return state_ints(v, "groups", &l->group->state, (size_t)l->rules.groups * GROUP);
}

enum sotto_status ledger_visit(struct async_ledger *l, struct state_visitor *v)
{
    const size_t K = (size_t)l->rules.groups;
    int64_t holes = l->shards.holes;
    if (state_loading(v))
        TRY(check_ledger_size(l, v));
    TRY(visit_ledger_counts(l, v));
    TRY(visit_ledger_groups(l, v));
    TRY(state_ints(v, "shards", &l->shards.shard->given, K * SHARD));
    TRY(state_count(v, "holes", &holes, l->shards.room - 1));
    if (holes > 0)
        TRY(state_ints(v, "hole", &l->shards.hole->shard, (size_t)holes * SPAN));
    TRY(journal_visit(&l->journal, v, l->rules.groups));
    if (!state_loading(v))
        return SOTTO_OK;
    l->shards.holes = (int)holes;
    l->deadline = INFINITY;
    if (l->journal.n != l->version)
        return fail(SOTTO_EFORMAT, "%lld pushes were applied, and the journal has %lld",
                    (long long)l->version, (long long)l->journal.n);
    return check_ledger(l);
}
