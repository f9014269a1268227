/* The server's job: the leader takes the groups' messages as they arrive and sends orders to the
 * other servers of group 0. */
#include <math.h>

#include "base/log.h"
#include "strategy/async/server.h"
#include "tensor/ops.h"

#define POLL_SECONDS 0.01 /* until the hook is asked again if another checkpoint may begin */

/* What the other servers of group 0 are to do. */
enum order_kind {
    ORDER_APPLY,    /* receive the displacement of a group and apply it */
    ORDER_DROP,     /* receive the displacement of a group and drop it */
    ORDER_SEND,     /* send `msg` to a group */
    ORDER_SNAPSHOT, /* keep the own state */
    ORDER_IDLE,     /* report to the own worker that the state may be read */
    ORDER_END
};
struct server_order {
    int64_t kind;
    int64_t group;
    double weight; /* APPLY */
    struct server_msg msg;
};

static enum sotto_status send_order(struct async_server *s, struct server_order o)
{
    return comm_broadcast_bytes(s->within, &o, sizeof o, 0);
}

/* Sends a message without waiting for the group, which may stand still or be far away. */
static enum sotto_status post_msg(struct async_server *s, int64_t group, struct server_msg m)
{
    return comm_post_bytes(s->to_groups, &m, sizeof m, (int)group);
}

/* Sends a message, and x0 with a task, from this server to its worker of the group. */
static enum sotto_status post_answer(struct async_server *s, int64_t group, struct server_msg m)
{
    TRY(post_msg(s, group, m));
    if (m.kind != SERVER_MSG_TASK)
        return SOTTO_OK;
    return comm_post(s->to_groups, s->outer.x0.view, s->outer.count, (int)group);
}

/* Returns a number of steps that no group exceeds, including a task not pushed yet. */
static int64_t most_steps(const struct async_server *s)
{
    int64_t most = 0;
    for (int i = 0; i < s->groups; i++) {
        const struct async_group *g = &s->ledger.group[i];
        const int64_t task = g->task.span.steps, H = s->ledger.rules.H;
        const int64_t steps = g->steps + (task > H ? task : H);
        most = steps > most ? steps : most;
    }
    return most;
}

/* Sends a message from all servers to a group. */
static enum sotto_status answer_group(struct async_server *s, int64_t group, struct server_msg m)
{
    m.step = server_step(s);
    m.most = most_steps(s);
    m.stop = s->meeting.ends;
    TRY(send_order(s, (struct server_order){.kind = ORDER_SEND, .group = group, .msg = m}));
    return post_answer(s, group, m);
}

static enum sotto_status call_meeting(struct async_server *s, bool ends)
{
    s->meeting.called = true;
    s->meeting.ends = ends;
    s->meeting.arrived = 0;
    server_pause(s);
    for (int i = 0; i < s->groups; i++) {
        s->meeting.deferred[i] = false;
        TRY(answer_group(s, i, (struct server_msg){.kind = SERVER_MSG_MEET}));
    }
    return SOTTO_OK;
}

/* Returns NULL if all workers meet for a checkpoint. */
static const struct snapshot_hook *snapshot_hook(const struct async_server *s)
{
    const struct snapshot_hook *hook = s->setup->hook;
    return hook && hook->keep ? hook : NULL;
}

static enum sotto_status visit_server_state(void *server, struct state_visitor *v)
{
    return server_visit(server, v);
}

static enum sotto_status keep_server_state(struct async_server *s)
{
    return snapshot_hook(s)->keep(snapshot_hook(s)->arg, visit_server_state, s);
}

/* Sends a snapshot marker to every group, and keeps the state of the servers as of the markers. */
static enum sotto_status send_markers(struct async_server *s)
{
    server_pause(s);
    server_hold_pushes(s, true);
    TRY(send_order(s, (struct server_order){.kind = ORDER_SNAPSHOT}));
    TRY(keep_server_state(s));
    for (int i = 0; i < s->groups; i++)
        TRY(answer_group(s, i,
                         (struct server_msg){.kind = SERVER_MSG_SNAPSHOT,
                                             .applied = s->ledger.group[i].state == ASYNC_WAITS}));
    return SOTTO_OK;
}

static enum sotto_status give_tasks(struct async_server *s)
{
    struct async_task task;
    bool found = true;
    if (s->freed_steps) {
        ledger_recall_groups(&s->ledger);
        s->freed_steps = false;
    }
    for (;;) {
        TRY(ledger_answer(&s->ledger, server_now(s), &task, &found));
        if (!found)
            return SOTTO_OK;
        int64_t *evaluates = &s->due.evaluates[task.group];
        TRY(answer_group(s, task.group,
                         (struct server_msg){.kind = SERVER_MSG_TASK,
                                             .task = task,
                                             .evaluate = *evaluates == EVALUATES_NEXT}));
        *evaluates = *evaluates == EVALUATES_NEXT ? EVALUATES_NOW : EVALUATES_NOT;
    }
}

/* Answers the groups that wait. A meeting defers all answers, and the groups get the same tasks
 * after the meeting as in a run without. */
static enum sotto_status answer_groups(struct async_server *s)
{
    if (!s->meeting.called && s->begun && !s->stop.truncated)
        TRY(give_tasks(s));
    for (int i = 0; i < s->groups && s->meeting.called; i++) {
        if (s->ledger.group[i].state != ASYNC_WAITS || s->meeting.deferred[i])
            continue;
        s->meeting.deferred[i] = true;
        TRY(answer_group(s, i, (struct server_msg){.kind = SERVER_MSG_DEFER}));
    }
    return SOTTO_OK;
}

/* True if `step` has passed a multiple of `every` since *last, which is advanced. */
static bool passes_multiple(int64_t step, int64_t every, int64_t *last)
{
    if (every <= 0 || step / every <= *last)
        return false;
    *last = step / every;
    return true;
}

/* True if `time` has reached *at, which is advanced. */
static bool passes_time(double time, double every, double *at)
{
    if (time < *at)
        return false;
    *at = time + every;
    return true;
}

static bool server_save_is_due(struct async_server *s)
{
    const bool by_time = passes_time(server_now(s), s->setup->save_seconds, &s->due.saves_at);
    return passes_multiple(server_step(s), s->setup->save_every, &s->due.saved) || by_time;
}

static bool server_evaluation_is_due(struct async_server *s)
{
    const bool by_time = passes_time(server_now(s), s->setup->eval_seconds, &s->due.evaluates_at);
    return passes_multiple(server_step(s), s->setup->eval_every, &s->due.evaluated) || by_time;
}

/* Has groups push their tasks as shorter tasks; from now on no task is given out. */
static enum sotto_status truncate_tasks(struct async_server *s)
{
    if (s->stop.truncated)
        return SOTTO_OK;
    s->stop.truncated = true;
    for (int i = 0; i < s->groups; i++)
        if (s->ledger.group[i].state == ASYNC_TRAINS)
            TRY(answer_group(s, i, (struct server_msg){.kind = SERVER_MSG_TRUNCATE}));
    return SOTTO_OK;
}

/* Pushes of each group, on average, for which a save waits for a postponed push. */
enum { POSTPONED_MOST = 4 };

/* True if a meeting for a save has to wait: the last meeting has postponed a push that is not
 * applied yet, or a group has not reported yet whether its push was postponed. While other groups
 * push, a group that stands still delays no save. */
static bool save_waits(const struct async_server *s)
{
    bool waits = s->meeting.resumed < s->groups;
    for (int i = 0; i < s->groups; i++)
        waits = waits || s->meeting.postponed[i];
    return waits && s->ledger.version - s->meeting.version < POSTPONED_MOST * s->groups &&
           !snapshot_hook(s);
}

/* Begins the meeting, the snapshot or the truncation of tasks that is due. */
static enum sotto_status begin_due(struct async_server *s)
{
    if (s->meeting.called || s->meeting.idle || !s->begun)
        return SOTTO_OK;
    const bool ends = s->stop.voted || ledger_is_over(&s->ledger);
    const struct snapshot_hook *hook = snapshot_hook(s);
    if (s->stop.truncate && ledger_trains(&s->ledger))
        return truncate_tasks(s);
    if (!ends && hook && !hook->ready(hook->arg)) { /* the checkpoint before is not written yet */
        s->due.saves_at = fmax(s->due.saves_at, server_now(s) + POLL_SECONDS);
        return SOTTO_OK;
    }
    if (!ends && (save_waits(s) || !server_save_is_due(s)))
        return SOTTO_OK;
    if (!ends && hook)
        return send_markers(s);
    TRY(call_meeting(s, ends));
    return answer_groups(s);
}

static enum sotto_status write_pushed(void *arg)
{
    struct async_server *s = arg;
    struct device *dev = s->lane->dev;
    if (s->sparse.value)
        dev->ops->write(dev, s->g.view, s->sparse.value, s->outer.count);
    return device_failed(dev);
}

/* Receives the first message of the groups `among`: a displacement, or an empty message. *words:
 * its length; *from: -1 if none has arrived by the time `until`. */
static enum sotto_status receive_push(struct async_server *s, const bool *among, double until,
                                      int *from, size_t *words)
{
    const struct view in = s->sparse.count ? view_of(s->sparse.in, s->sparse.type) : s->g.view;
    return comm_recv_some(s->from_groups, in, s->outer.count, among, until, from, words);
}

static enum sotto_status apply_push(struct async_server *s, int64_t group, size_t words,
                                    double weight)
{
    const size_t count = s->outer.count, unit = dtype_size(s->g.view.type);
    if (s->sparse.count) {
        TRY(sparse_unpack(&s->sparse, words, (int)group));
        TRY(work_run(&s->outer.on, write_pushed, s, 2. * sizeof(float) * (double)count));
    } else if (words != count) {
        return comm_wrong_length(s->from_groups, count * unit, words * unit, (int)group);
    }
    if (s->last_push.last.dev)
        TRY(cosine_to_last(&s->last_push, &s->outer.on, cosine_sliced(s->r) ? s->within : NULL,
                           s->g.view, count, &s->cosine));
    return outer_push(&s->outer, s->g.view, weight);
}

static enum sotto_status take_push(struct async_server *s, const struct async_push *p, size_t words)
{
    double weight = 0;
    if (s->meeting.called) { /* groups that have arrived are answered first */
        TRY(send_order(s, (struct server_order){.kind = ORDER_DROP, .group = p->group}));
        return answer_group(s, p->group, (struct server_msg){.kind = SERVER_MSG_AGAIN});
    }
    s->meeting.postponed[p->group] = false;
    TRY(ledger_push(&s->ledger, p, server_now(s), &weight));
    if (ledger_replay_ended(&s->ledger))
        log_warn("async-diloco.replay ends with push %lld, in step %lld of the run: from here on "
                 "pushes are applied as they arrive",
                 (long long)s->ledger.version - 1, (long long)server_step(s));
    TRY(send_order(
        s, (struct server_order){.kind = ORDER_APPLY, .group = p->group, .weight = weight}));
    TRY(apply_push(s, p->group, words, weight));
    TRY(server_report_push(s, p));
    if (s->due.evaluates[p->group] == EVALUATES_NOW)
        s->due.evaluates[p->group] = EVALUATES_NOT;
    if (server_evaluation_is_due(s))
        s->due.evaluates[p->group] = EVALUATES_NEXT;
    return answer_groups(s);
}

/* All groups have arrived: the servers' state is the workers' until a group begins again. */
static enum sotto_status become_idle(struct async_server *s)
{
    s->meeting.called = false;
    s->meeting.idle = !s->meeting.ends;
    s->meeting.resumed = 0;
    s->ended = s->meeting.ends;
    TRY(send_order(s, (struct server_order){.kind = ORDER_IDLE, .msg.stop = s->meeting.ends}));
    TRY(device_check(s->lane->dev));
    return post_msg(s, 0, (struct server_msg){.kind = SERVER_MSG_IDLE});
}

static enum sotto_status take_arrival(struct async_server *s, int from)
{
    if (s->due.evaluates[from] == EVALUATES_NOW)
        s->due.evaluates[from] = EVALUATES_NOT;
    return ++s->meeting.arrived == s->groups ? become_idle(s) : SOTTO_OK;
}

/* A group begins, or continues after a meeting; the first group to do so starts the clocks. */
static enum sotto_status take_group_begin(struct async_server *s, int from,
                                          const struct group_msg *m)
{
    const bool longer = s->loaded && m->rounds > s->ledger.shards.steps;
    s->meeting.postponed[from] = m->pushes;
    if (s->meeting.resumed++ == 0)
        s->meeting.version = s->ledger.version;
    if (m->rounds > 0)
        s->ledger.shards.steps = m->rounds;
    if (!s->begun) {
        TRY(ledger_begin(&s->ledger, m->step));
        server_skip_due(s);
    }
    if (!s->begun || s->loaded || s->meeting.idle)
        server_continue(s);
    s->begun = true;
    if (longer)
        ledger_revive_groups(&s->ledger);
    s->loaded = s->meeting.idle = false;
    return answer_groups(s);
}

static enum sotto_status take_msg(struct async_server *s, int from, const struct group_msg *m,
                                  size_t words)
{
    switch (m->kind) {
    case GROUP_MSG_BEGIN:
        return take_group_begin(s, from, m);
    case GROUP_MSG_PUSH:
        return take_push(s, &m->push, words);
    case GROUP_MSG_ARRIVED:
        return take_arrival(s, from);
    case GROUP_MSG_LEAVE:
        s->meeting.postponed[from] = false;
        ledger_drop_group(&s->ledger, from);
        s->freed_steps = true;
        return answer_groups(s);
    case GROUP_MSG_STOP:
        s->stop.voted = true;
        /* a replay has the tasks of the replayed run, which were not truncated here */
        s->stop.truncate |= m->truncate && ledger_next(&s->ledger) < 0;
        return SOTTO_OK;
    default:
        s->ended = true;
        return send_order(s, (struct server_order){.kind = ORDER_END});
    }
}

static const bool *accept_only(struct async_server *s, int64_t group)
{
    for (int i = 0; i < s->groups; i++)
        s->accepts[i] = i == group;
    return s->accepts;
}

/* Returns the groups whose message is received next: in a replay the group of the next push, else
 * NULL for all. */
static const bool *accepted_groups(struct async_server *s)
{
    const bool trains = s->begun && !s->meeting.called && !s->meeting.idle;
    const int64_t next = trains ? ledger_next(&s->ledger) : -1;
    return next < 0 ? NULL : accept_only(s, next);
}

static enum sotto_status run_leader(struct async_server *s)
{
    while (!s->ended) {
        const bool waits = s->meeting.called || s->meeting.idle || !s->begun || s->stop.truncated;
        const double save = save_waits(s) ? INFINITY : s->due.saves_at;
        const double until = waits ? INFINITY : fmin(ledger_deadline(&s->ledger), save);
        struct group_msg m;
        int from;
        size_t words;
        TRY(receive_push(s, accepted_groups(s), until, &from, &words));
        if (from >= 0) {
            TRY(comm_recv_bytes(s->from_groups, &m, sizeof m, from));
            TRY(take_msg(s, from, &m, words));
        } else {
            TRY(answer_groups(s));
        }
        if (!s->ended)
            TRY(begin_due(s));
    }
    return SOTTO_OK;
}

/* Follows the leader's orders, in the other servers of group 0. */
static enum sotto_status run_follower(struct async_server *s)
{
    while (!s->ended) {
        struct server_order o;
        size_t words = 0;
        int from;
        TRY(comm_broadcast_bytes(s->within, &o, sizeof o, 0));
        if (o.kind == ORDER_APPLY || o.kind == ORDER_DROP)
            TRY(receive_push(s, accept_only(s, o.group), INFINITY, &from, &words));
        if (o.kind == ORDER_APPLY)
            TRY(apply_push(s, o.group, words, o.weight));
        if (o.kind == ORDER_SNAPSHOT)
            TRY(keep_server_state(s));
        if (o.kind == ORDER_SEND)
            TRY(post_answer(s, o.group, o.msg));
        if (o.kind == ORDER_IDLE) {
            TRY(device_check(s->lane->dev));
            TRY(post_msg(s, 0, (struct server_msg){.kind = SERVER_MSG_IDLE}));
        }
        s->ended = o.kind == ORDER_END || (o.kind == ORDER_IDLE && o.msg.stop);
    }
    return SOTTO_OK;
}

/* Runs until the run ends. All groups wait for the server, so a failure here ends the run. */
enum sotto_status server_run(void *server)
{
    struct async_server *s = server;
    const enum sotto_status st = s->leads ? run_leader(s) : run_follower(s);
    struct status_note note;
    if (st == SOTTO_OK)
        return SOTTO_OK;
    status_save(&note, st);
    s->from_groups->ops->abort(s->from_groups, &note);
    return status_raise(&note);
}
