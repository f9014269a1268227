#include "strategy/async/server.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

enum sotto_status server_init(struct async_server *s, const struct async_rules *rules,
                              const char *replay)
{
    *s = (struct async_server){.rules = *rules, .deadline = INFINITY, .left = -1};
    TRY(rules_check(rules));
    TRY(shards_init(&s->shards, rules->groups, rules->steps));
    s->group = calloc((size_t)rules->groups, sizeof *s->group);
    s->gone = calloc((size_t)rules->groups, sizeof *s->gone);
    if (!s->group || !s->gone)
        return fail(SOTTO_ENOMEM, "no memory for %d groups", rules->groups);
    return replay && *replay ? journal_read(&s->replay, replay, rules->groups) : SOTTO_OK;
}

void server_free(struct async_server *s)
{
    shards_free(&s->shards);
    journal_free(&s->journal);
    journal_free(&s->replay);
    free(s->group);
    free(s->gone);
    *s = (struct async_server){0};
}

/* Steps of the next task of a group, by the speeds that were measured. */
static int64_t steps_for(const struct async_server *s, int64_t group)
{
    double fastest = 0;
    for (int i = 0; s->rules.dylu && i < s->rules.groups; i++) {
        const struct async_group *g = &s->group[i];
        if (g->state == ASYNC_LEFT)
            continue;
        if (!(g->speed > 0))
            return s->rules.H;
        fastest = fmax(fastest, g->speed);
    }
    return rules_steps(&s->rules, s->group[group].speed, fastest);
}

/* What the run that is followed did next with this group; NULL: it knows of nothing. */
static const struct async_entry *replayed(const struct async_server *s, int64_t group)
{
    return journal_next(&s->replay, s->version, group);
}

/* Gives a group its next task, or lets it go. */
static enum sotto_status give(struct async_server *s, int64_t group)
{
    struct async_group *g = &s->group[group];
    const struct async_entry *as = replayed(s, group);
    struct async_span span;
    if (as && as->version != s->version)
        return fail(SOTTO_EFORMAT, "replay of push %lld: it was pulled at %lld pushes, not %lld",
                    (long long)(as - s->replay.entry), (long long)as->version,
                    (long long)s->version);
    if (as) {
        span = as->span;
        TRY(fail_in(shards_take_this(&s->shards, span),
                    "replay of push %lld: ", (long long)(as - s->replay.entry)));
    } else {
        span = shards_take(&s->shards, steps_for(s, group));
    }
    g->state = span.steps > 0 ? ASYNC_TRAINS : ASYNC_LEFT;
    g->task = (struct async_task){group, span, s->version};
    return SOTTO_OK;
}

enum sotto_status server_begin(struct async_server *s, int64_t step)
{
    shards_begin(&s->shards, step);
    s->steps = step * s->rules.groups;
    for (int i = 0; i < s->rules.groups; i++) {
        s->group[i].steps = step;
        TRY(give(s, i));
    }
    return SOTTO_OK;
}

int64_t server_staleness(const struct async_server *s, int64_t group)
{
    return s->version - s->group[group].task.version;
}

/* A run that was resumed may have given out something else than the one that it is to follow. */
static enum sotto_status check_replayed(const struct async_server *s, const struct async_task *task)
{
    if (s->version >= s->replay.n)
        return SOTTO_OK;
    const struct async_entry *as = &s->replay.entry[s->version];
    const struct async_span a = as->span, b = task->span;
    if (a.shard == b.shard && a.first == b.first && a.steps == b.steps &&
        as->version == task->version)
        return SOTTO_OK;
    return fail(SOTTO_EINVAL,
                "replay of push %lld: group %lld has trained %lld steps from step %lld of data "
                "shard %lld on, pulled at %lld pushes, and not %lld, %lld, %lld, %lld",
                (long long)s->version, (long long)as->group, (long long)b.steps, (long long)b.first,
                (long long)b.shard, (long long)task->version, (long long)a.steps,
                (long long)a.first, (long long)a.shard, (long long)as->version);
}

static bool anybody(const struct async_server *s, enum async_state state)
{
    for (int i = 0; i < s->rules.groups; i++)
        if (s->group[i].state == (int64_t)state)
            return true;
    return false;
}

enum sotto_status server_push(struct async_server *s, const struct async_push *p, double now,
                              double *weight)
{
    struct async_group *g = &s->group[p->group];
    struct async_task *task = &g->task;
    const int64_t staleness = server_staleness(s, p->group);
    assert(g->state == ASYNC_TRAINS && (server_next(s) < 0 || server_next(s) == p->group));
    TRY(check_replayed(s, task));
    if (p->steps > 0 && p->steps < task->span.steps)
        shards_cut(&s->shards, &task->span, p->steps);
    TRY(journal_add(&s->journal, (struct async_entry){p->group, task->span, task->version}));
    *weight = rules_weight(&s->rules, staleness);
    shards_done(&s->shards, task->span);
    g->state = ASYNC_WAITS;
    g->order = s->version++;
    g->pushes++;
    g->steps += task->span.steps;
    g->staleness += staleness;
    g->seconds += p->seconds;
    g->idle += p->idle;
    g->speed = p->seconds > 0 ? (double)task->span.steps / p->seconds : 0;
    s->steps += task->span.steps;
    s->microbatches += p->microbatches;
    s->tokens += p->tokens;
    if (!(s->rules.grace > 0))
        s->ready = s->version;
    else if (s->deadline == INFINITY)
        s->deadline = now + s->rules.grace;
    return SOTTO_OK;
}

/* Whether a group that waits may pull now. In a replay it does where it did; behind its last push
 * of all where nothing is left, or once everything else was followed. */
static bool may_pull(const struct async_server *s, int64_t group)
{
    const struct async_entry *as = s->version < s->replay.n ? replayed(s, group) : NULL;
    if (as)
        return as->version <= s->version; /* not equal: refused as it is given */
    return s->group[group].order < s->ready &&
           (s->version >= s->replay.n || !shards_left(&s->shards));
}

/* In a replay the next one to push must be at work. */
static enum sotto_status check_next(const struct async_server *s)
{
    const int64_t next = server_next(s);
    if (next < 0 || s->group[next].state == ASYNC_TRAINS)
        return SOTTO_OK;
    return fail(SOTTO_EFORMAT, "replay of push %lld: group %lld does not train then",
                (long long)s->version, (long long)next);
}

enum sotto_status server_answer(struct async_server *s, double now, struct async_task *task,
                                bool *found)
{
    int64_t first = -1; /* of those who wait, in the order of their pushes */
    *found = false;
    if (s->deadline < INFINITY && (now >= s->deadline || !anybody(s, ASYNC_TRAINS))) {
        s->deadline = INFINITY;
        s->ready = s->version;
    }
    for (int i = 0; i < s->rules.groups; i++)
        if (s->group[i].state == ASYNC_WAITS && may_pull(s, i) &&
            (first < 0 || s->group[i].order < s->group[first].order))
            first = i;
    if (first < 0)
        return check_next(s);
    TRY(give(s, first));
    *task = s->group[first].task;
    *found = true;
    return SOTTO_OK;
}

bool server_replay_ended(const struct async_server *s)
{
    return s->replay.n > 0 && s->version == s->replay.n &&
           (anybody(s, ASYNC_TRAINS) || shards_left(&s->shards));
}

int64_t server_next(const struct async_server *s)
{
    return s->version < s->replay.n ? s->replay.entry[s->version].group : -1;
}

double server_deadline(const struct async_server *s)
{
    return s->version < s->replay.n ? INFINITY : s->deadline;
}

void server_rest(struct async_server *s, double now)
{
    s->left = s->deadline < INFINITY ? fmax(s->deadline - now, 0) : -1;
}

void server_go_on(struct async_server *s, double now)
{
    s->deadline = s->left < 0 ? INFINITY : now + s->left;
}

void server_leave(struct async_server *s, int64_t group)
{
    struct async_group *g = &s->group[group];
    if (g->state == ASYNC_TRAINS)
        shards_give_back(&s->shards, g->task.span);
    g->state = ASYNC_LEFT;
    g->task.span.steps = 0;
    s->gone[group] = true;
}

void server_revive(struct async_server *s)
{
    for (int i = 0; i < s->rules.groups; i++) {
        struct async_group *g = &s->group[i];
        if (g->state != ASYNC_LEFT || s->gone[i])
            continue;
        g->state = ASYNC_WAITS;
        g->order = g->order < s->ready ? g->order : s->ready - 1;
    }
}

void server_recall(struct async_server *s)
{
    if (shards_left(&s->shards))
        server_revive(s);
}

bool server_trains(const struct async_server *s)
{
    return anybody(s, ASYNC_TRAINS);
}

bool server_over(const struct async_server *s)
{
    return !anybody(s, ASYNC_TRAINS) && !anybody(s, ASYNC_WAITS);
}
