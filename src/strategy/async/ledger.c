#include "strategy/async/ledger.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

enum sotto_status ledger_init(struct async_ledger *l, const struct async_rules *rules,
                              const char *replay)
{
    *l = (struct async_ledger){.rules = *rules, .deadline = INFINITY, .left = -1};
    TRY(rules_check(rules));
    TRY(shards_init(&l->shards, rules->groups, rules->steps));
    l->group = calloc((size_t)rules->groups, sizeof *l->group);
    l->gone = calloc((size_t)rules->groups, sizeof *l->gone);
    if (!l->group || !l->gone)
        return fail(SOTTO_ENOMEM, "no memory for %d groups", rules->groups);
    return replay && *replay ? journal_read(&l->replay, replay, rules->groups) : SOTTO_OK;
}

void ledger_free(struct async_ledger *l)
{
    shards_free(&l->shards);
    journal_free(&l->journal);
    journal_free(&l->replay);
    free(l->group);
    free(l->gone);
    *l = (struct async_ledger){0};
}

/* Returns the steps of the next task of a group, by the measured speeds. */
static int64_t task_steps(const struct async_ledger *l, int64_t group)
{
    double fastest = 0;
    for (int i = 0; l->rules.dylu && i < l->rules.groups; i++) {
        const struct async_group *g = &l->group[i];
        if (g->state == ASYNC_LEFT)
            continue;
        if (!(g->speed > 0))
            return l->rules.H;
        fastest = fmax(fastest, g->speed);
    }
    return rules_steps(&l->rules, l->group[group].speed, fastest);
}

/* Returns the next entry of this group in the replayed run; NULL if there is none. */
static const struct async_entry *replayed_entry(const struct async_ledger *l, int64_t group)
{
    return journal_next(&l->replay, l->version, group);
}

/* Gives a group its next task; without steps the group leaves. */
static enum sotto_status give_task(struct async_ledger *l, int64_t group)
{
    struct async_group *g = &l->group[group];
    const struct async_entry *as = replayed_entry(l, group);
    struct async_span span;
    if (as && as->version != l->version)
        return fail(SOTTO_EFORMAT, "replay of push %lld: it was pulled at %lld pushes, not %lld",
                    (long long)(as - l->replay.entry), (long long)as->version,
                    (long long)l->version);
    if (as) {
        span = as->span;
        TRY(fail_in(shards_take_this(&l->shards, span),
                    "replay of push %lld: ", (long long)(as - l->replay.entry)));
    } else {
        span = shards_take(&l->shards, task_steps(l, group));
    }
    g->state = span.steps > 0 ? ASYNC_TRAINS : ASYNC_LEFT;
    g->task = (struct async_task){group, span, l->version};
    return SOTTO_OK;
}

enum sotto_status ledger_begin(struct async_ledger *l, int64_t step)
{
    shards_begin(&l->shards, step);
    l->steps = step * l->rules.groups;
    for (int i = 0; i < l->rules.groups; i++) {
        l->group[i].steps = step;
        TRY(give_task(l, i));
    }
    return SOTTO_OK;
}

int64_t ledger_staleness(const struct async_ledger *l, int64_t group)
{
    return l->version - l->group[group].task.version;
}

/* Refuses a push whose task differs from the replayed run: a resumed run may have given out another
 * task before the replay began. */
static enum sotto_status check_replayed_task(const struct async_ledger *l,
                                             const struct async_task *task)
{
    if (l->version >= l->replay.n)
        return SOTTO_OK;
    const struct async_entry *as = &l->replay.entry[l->version];
    const struct async_span a = as->span, b = task->span;
    if (a.shard == b.shard && a.first == b.first && a.steps == b.steps &&
        as->version == task->version)
        return SOTTO_OK;
    return fail(SOTTO_EINVAL,
                "replay of push %lld: group %lld has trained %lld steps from step %lld of data "
                "shard %lld on, pulled at %lld pushes, but the replayed run has %lld, %lld, %lld, "
                "%lld",
                (long long)l->version, (long long)as->group, (long long)b.steps, (long long)b.first,
                (long long)b.shard, (long long)task->version, (long long)a.steps,
                (long long)a.first, (long long)a.shard, (long long)as->version);
}

static bool any_group(const struct async_ledger *l, enum async_state state)
{
    for (int i = 0; i < l->rules.groups; i++)
        if (l->group[i].state == (int64_t)state)
            return true;
    return false;
}

enum sotto_status ledger_push(struct async_ledger *l, const struct async_push *p, double now,
                              double *weight)
{
    struct async_group *g = &l->group[p->group];
    struct async_task *task = &g->task;
    const int64_t staleness = ledger_staleness(l, p->group);
    assert(g->state == ASYNC_TRAINS && (ledger_next(l) < 0 || ledger_next(l) == p->group));
    TRY(check_replayed_task(l, task));
    if (p->steps > 0 && p->steps < task->span.steps)
        shards_truncate(&l->shards, &task->span, p->steps);
    TRY(journal_add(&l->journal, (struct async_entry){p->group, task->span, task->version}));
    *weight = rules_weight(&l->rules, staleness);
    shards_done(&l->shards, task->span);
    g->state = ASYNC_WAITS;
    g->order = l->version++;
    g->pushes++;
    g->steps += task->span.steps;
    g->staleness += staleness;
    g->seconds += p->seconds;
    g->idle += p->idle;
    g->speed = p->seconds > 0 ? (double)task->span.steps / p->seconds : 0;
    l->steps += task->span.steps;
    l->microbatches += p->microbatches;
    l->tokens += p->tokens;
    if (!(l->rules.grace > 0))
        l->ready = l->version;
    else if (l->deadline == INFINITY)
        l->deadline = now + l->rules.grace;
    return SOTTO_OK;
}

/* True if a group that waits may pull now. In a replay a group pulls after the same pushes as in
 * the replayed run; without a further entry it pulls once no steps are left, or after the replay's
 * end. */
static bool may_pull(const struct async_ledger *l, int64_t group)
{
    const struct async_entry *as = l->version < l->replay.n ? replayed_entry(l, group) : NULL;
    if (as)
        return as->version <= l->version; /* an earlier version is refused by give_task */
    return l->group[group].order < l->ready &&
           (l->version >= l->replay.n || !shards_left(&l->shards));
}

/* Refuses a replay in which the group of the next push has no task. */
static enum sotto_status check_next_push(const struct async_ledger *l)
{
    const int64_t next = ledger_next(l);
    if (next < 0 || l->group[next].state == ASYNC_TRAINS)
        return SOTTO_OK;
    return fail(SOTTO_EFORMAT, "replay of push %lld: group %lld has no task in progress",
                (long long)l->version, (long long)next);
}

enum sotto_status ledger_answer(struct async_ledger *l, double now, struct async_task *task,
                                bool *found)
{
    int64_t first = -1; /* of the groups that may pull, in the order of their pushes */
    *found = false;
    if (l->deadline < INFINITY && (now >= l->deadline || !any_group(l, ASYNC_TRAINS))) {
        l->deadline = INFINITY;
        l->ready = l->version;
    }
    for (int i = 0; i < l->rules.groups; i++)
        if (l->group[i].state == ASYNC_WAITS && may_pull(l, i) &&
            (first < 0 || l->group[i].order < l->group[first].order))
            first = i;
    if (first < 0)
        return check_next_push(l);
    TRY(give_task(l, first));
    *task = l->group[first].task;
    *found = true;
    return SOTTO_OK;
}

bool ledger_replay_ended(const struct async_ledger *l)
{
    return l->replay.n > 0 && l->version == l->replay.n &&
           (any_group(l, ASYNC_TRAINS) || shards_left(&l->shards));
}

int64_t ledger_next(const struct async_ledger *l)
{
    return l->version < l->replay.n ? l->replay.entry[l->version].group : -1;
}

double ledger_deadline(const struct async_ledger *l)
{
    return l->version < l->replay.n ? INFINITY : l->deadline;
}

void ledger_pause(struct async_ledger *l, double now)
{
    l->left = l->deadline < INFINITY ? fmax(l->deadline - now, 0) : -1;
}

void ledger_continue(struct async_ledger *l, double now)
{
    l->deadline = l->left < 0 ? INFINITY : now + l->left;
}

void ledger_drop_group(struct async_ledger *l, int64_t group)
{
    struct async_group *g = &l->group[group];
    if (g->state == ASYNC_TRAINS)
        shards_give_back(&l->shards, g->task.span);
    g->state = ASYNC_LEFT;
    g->task.span.steps = 0;
    l->gone[group] = true;
}

void ledger_revive_groups(struct async_ledger *l)
{
    for (int i = 0; i < l->rules.groups; i++) {
        struct async_group *g = &l->group[i];
        if (g->state != ASYNC_LEFT || l->gone[i])
            continue;
        g->state = ASYNC_WAITS;
        g->order = g->order < l->ready ? g->order : l->ready - 1;
    }
}

void ledger_recall_groups(struct async_ledger *l)
{
    if (shards_left(&l->shards))
        ledger_revive_groups(l);
}

bool ledger_trains(const struct async_ledger *l)
{
    return any_group(l, ASYNC_TRAINS);
}

bool ledger_is_over(const struct async_ledger *l)
{
    return !any_group(l, ASYNC_TRAINS) && !any_group(l, ASYNC_WAITS);
}
