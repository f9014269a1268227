/* A group between two meetings, and its way into a meeting. */
#include "strategy/async/group.h"

#include <assert.h>

#include "tensor/ops.h"

static double group_now(const struct replicate *r)
{
    return clock_now(r->is.mesh->worker->clock);
}

/* Sends a message to the leader, after an empty one in the place of a displacement. */
static enum sotto_status send_group_msg(struct async *a, enum group_msg_kind kind)
{
    struct group_msg m = {.kind = kind,
                          .rounds = a->rounds,
                          .truncate = a->truncates,
                          .step = a->begins,
                          .pushes = a->state == TASK_PUSHES,
                          .push = a->push};
    if (!async_is_first(a))
        return SOTTO_OK;
    if (kind != GROUP_MSG_PUSH)
        TRY(comm_send(a->to_server, view_of(NULL, DTYPE_F32), 0, 0));
    return comm_send_bytes(a->to_server, &m, sizeof m, 0);
}

enum sotto_status async_run_in_line(struct async *a, lane_job *job)
{
    struct lane *lane = a->base.is.across->lane;
    if (!lane)
        return job(a);
    TRY(lane_start(lane, job, a));
    return lane_wait(lane);
}

static enum sotto_status receive_idle_msg(void *arg)
{
    struct async *a = arg;
    struct server_msg m;
    if (!a->server || !a->round.meet || a->server_idle)
        return SOTTO_OK;
    TRY(comm_recv_bytes(a->from_server, &m, sizeof m, 0));
    assert(m.kind == SERVER_MSG_IDLE);
    a->server_idle = true;
    return SOTTO_OK;
}

enum sotto_status async_wait_idle(struct async *a)
{
    return async_run_in_line(a, receive_idle_msg);
}

/* Makes the first task: all groups begin with the same parameters, each in its own data shard. */
static void make_first_task(struct async *a)
{
    const int64_t H = async_options(a)->H, group = a->base.is.mesh->r;
    const int64_t left = a->rounds > 0 ? a->rounds - a->begins : H;
    a->task = (struct async_task){
        .group = group, .span = {.shard = group, .first = a->begins, .steps = left < H ? left : H}};
    a->state = TASK_TRAINS;
}

/* Replaces the first task by that of the run in the option `replay`, as the server does. */
static enum sotto_status replay_first_task(struct async *a)
{
    struct async_journal journal;
    const char *replay = async_options(a)->replay;
    const int64_t group = a->base.is.mesh->r;
    if (!*replay)
        return SOTTO_OK;
    TRY(journal_read(&journal, replay, a->base.is.mesh->n_r));
    const struct async_entry *first = journal_next(&journal, 0, group);
    if (first)
        a->task.span = first->span;
    journal_free(&journal);
    return SOTTO_OK;
}

/* Begins, or continues after a meeting, and reports so to the leader. */
static enum sotto_status announce_group(struct async *a)
{
    if (a->state == TASK_FIRST) {
        make_first_task(a);
        TRY(replay_first_task(a));
    }
    if (a->rounds_before > 0 && a->rounds > a->rounds_before && a->state == TASK_NONE)
        a->state = TASK_WAITS; /* the run is longer now: the server has tasks again */
    a->rounds_before = 0;
    a->waits_since = group_now(&a->base);
    a->announces = a->has_msg = a->server_idle = false;
    return send_group_msg(a, GROUP_MSG_BEGIN);
}

/* Looks for a message of the server without waiting, on the group's first worker. */
static enum sotto_status poll_server_msg(struct async *a)
{
    int from;
    if (!async_is_first(a) || a->has_msg)
        return SOTTO_OK;
    TRY(comm_recv_any_bytes(a->from_server, &a->msg, sizeof a->msg, NULL, 0, &from));
    a->has_msg = from >= 0;
    return SOTTO_OK;
}

/* Looks once more before a push, which a meeting would postpone. Groups of several workers do not:
 * the other workers would not know of the message. */
static enum sotto_status poll_before_push(struct async *a)
{
    return a->base.is.mesh->n_s > 1 ? SOTTO_OK : poll_server_msg(a);
}

/* Waits for the server's message, which every worker of the group is sent. */
static enum sotto_status receive_server_msg(struct async *a)
{
    if (a->has_msg)
        return SOTTO_OK;
    a->has_msg = true;
    return comm_recv_bytes(a->from_server, &a->msg, sizeof a->msg, 0);
}

/* Takes a SERVER_MSG_TRUNCATE, which ends the task and not the round. */
static void take_truncation(struct async *a)
{
    if (!a->has_msg || a->msg.kind != SERVER_MSG_TRUNCATE)
        return;
    a->has_msg = false;
    a->truncated = true;
}

static enum sotto_status begin_group_round(void *arg)
{
    struct async *a = arg;
    struct replicate *r = &a->base;
    TRY(receive_idle_msg(a));
    if (a->server)
        TRY(server_start(a->server));
    if (a->server && a->round.snapshot)
        server_hold_pushes(a->server, false);
    a->round.pulled = a->round.evaluate = a->round.snapshot = a->round.meet = r->diverged = false;
    if (!a->overlaps || a->announces) /* else the round began with the end of the last step */
        a->since = group_now(r);
    if (a->announces)
        TRY(announce_group(a));
    r->idle = a->state != TASK_TRAINS;
    return r->idle ? SOTTO_OK : poll_server_msg(a);
}

enum sotto_status async_begin(struct replicate *r, const struct plan *plan, bool *meet)
{
    struct async *a = (struct async *)r;
    const int64_t accumulate = r->is.config->accumulate;
    a->rounds = plan->rounds;
    if (a->state == TASK_FIRST) {
        a->begins = plan->step;
        a->begins_at = r->from.microbatch;
    }
    TRY(async_run_in_line(a, begin_group_round));
    *meet = a->has_msg;
    r->data.own = a->overlaps;
    r->data.rank = (int)a->task.span.shard * r->is.mesh->n_s + r->is.mesh->s;
    r->data.microbatch = a->begins_at + (a->task.span.first + a->done - a->begins) * accumulate;
    return SOTTO_OK;
}

static enum sotto_status copy_delta_to_host(void *arg)
{
    struct async *a = arg;
    struct device *dev = a->base.is.dev;
    if (a->sparse.value)
        dev->ops->read(dev, a->sparse.value, a->delta.view, a->base.count);
    return device_check(dev);
}

static enum sotto_status send_delta(struct async *a)
{
    struct replicate *r = &a->base;
    size_t words;
    if (a->wire.dev)
        TRY(work_copy(&r->on, a->wire.view, a->delta.view, r->count));
    if (!a->sparse.count)
        return comm_send(a->to_server, a->wire.dev ? a->wire.view : a->delta.view, r->count, 0);
    TRY(work_run(&r->on, copy_delta_to_host, a, 2. * sizeof(float) * (double)r->count));
    TRY(sparse_prune(&a->sparse));
    TRY(sparse_pack(&a->sparse, &words));
    return comm_send(a->to_server, view_of(a->sparse.out, a->sparse.type), words, 0);
}

/* g = x0 - x */
static enum sotto_status push_task(struct async *a)
{
    struct replicate *r = &a->base;
    TRY(work_copy(&r->on, a->delta.view, a->x0.view, r->count));
    TRY(work_axpy(&r->on, a->delta.view, -1, r->x, r->count));
    a->waits_since = group_now(r);
    a->push.steps = a->done;
    a->truncated = false;
    TRY(send_delta(a));
    TRY(send_group_msg(a, GROUP_MSG_PUSH));
    a->state = TASK_WAITS;
    return SOTTO_OK;
}

/* Receives x0, which follows the task `m`, and begins the task. */
static enum sotto_status take_task(struct async *a, const struct server_msg *m)
{
    struct replicate *r = &a->base;
    if (m->task.span.steps > 0 && m->task.span.first < a->begins)
        return fail(SOTTO_EFORMAT,
                    "a task begins at step %lld of a data shard, but the groups of this run begin "
                    "at step %lld",
                    (long long)m->task.span.first, (long long)a->begins);
    TRY(comm_recv(a->from_server, a->x0.view, r->count, 0));
    TRY(work_copy(&r->on, r->x, a->x0.view, r->count)); /* x <- x0 */
    TRY(replicate_publish(r));
    a->task = m->task;
    a->done = 0;
    a->state = m->task.span.steps > 0 ? TASK_TRAINS : TASK_NONE;
    const bool computes = a->overlaps && !r->idle;
    a->push = (struct async_push){
        .group = a->task.group, .idle = computes ? 0 : a->waited + (group_now(r) - a->waits_since)};
    a->waited = 0;
    a->since = group_now(r);
    a->round.step = m->step;
    a->round.pulled = true;
    a->round.evaluate = m->evaluate;
    return SOTTO_OK;
}

/* Waits for the answer to a push: a task, or a message that ends the round before the answer. */
static enum sotto_status receive_answer(struct async *a)
{
    struct server_msg *m = &a->msg;
    do /* a request to meet is followed by a message about the push */
        TRY(comm_recv_bytes(a->from_server, m, sizeof *m, 0));
    while (m->kind == SERVER_MSG_MEET || m->kind == SERVER_MSG_TRUNCATE);
    if (m->kind == SERVER_MSG_TASK)
        return take_task(a, m);
    if (m->kind == SERVER_MSG_AGAIN)
        a->state = TASK_PUSHES;
    else if (m->kind == SERVER_MSG_DEFER)
        a->waited += group_now(&a->base) - a->waits_since;
    a->has_msg = true;
    return SOTTO_OK;
}

/* Ends the round with the server's message: a snapshot marker, or else a meeting. */
static enum sotto_status end_with_msg(struct async *a)
{
    struct replicate *r = &a->base;
    r->diverged = true;
    a->round.step = a->msg.step;
    a->round.most = a->msg.most;
    if (a->msg.kind == SERVER_MSG_SNAPSHOT) {
        a->round.snapshot = true;
        a->has_msg = false;
        return SOTTO_OK;
    }
    a->round.meet = a->announces = true;
    r->outcome.stop = a->msg.stop;
    return send_group_msg(a, GROUP_MSG_ARRIVED);
}

/* Adds this round to the push in the making. */
static void add_round_to_push(struct async *a)
{
    const struct replicate *r = &a->base;
    a->push.microbatches += (int64_t)r->own.microbatches;
    a->push.tokens += (int64_t)r->own.tokens;
    a->push.targets += (int64_t)r->own.targets;
    a->push.loss += r->own.loss;
    a->push.seconds += group_now(r) - a->since;
    a->since = group_now(r);
    a->push.group = r->is.mesh->r;
}

enum sotto_status async_step(struct replicate *r, const struct plan *plan, double scale)
{
    struct async *a = (struct async *)r;
    if (a->state == TASK_TRAINS) {
        TRY(replicate_local_step(r, plan->lr, scale));
        add_round_to_push(a);
        a->done++;
        if (r->own.meet)
            TRY(receive_server_msg(a));
        if (r->own.stop && !a->stop_sent) {
            a->stop_sent = true;
            TRY(send_group_msg(a, GROUP_MSG_STOP));
        }
    } else if (a->state == TASK_NONE) {
        TRY(receive_server_msg(a)); /* a meeting, or the task of a group that has failed */
        if (a->msg.kind != SERVER_MSG_TASK)
            return end_with_msg(a);
        a->has_msg = false;
        return take_task(a, &a->msg);
    }
    take_truncation(a);
    if (a->state == TASK_TRAINS && (a->done == a->task.span.steps || a->truncated))
        a->state = TASK_PUSHES;
    if (a->state == TASK_PUSHES)
        TRY(poll_before_push(a));
    take_truncation(a);
    if (a->state == TASK_PUSHES && !a->has_msg) /* else the push follows the meeting */
        TRY(push_task(a));
    if (a->state == TASK_WAITS)
        TRY(receive_answer(a));
    return a->has_msg ? end_with_msg(a) : SOTTO_OK;
}

static enum sotto_status send_leave(void *a)
{
    return send_group_msg(a, GROUP_MSG_LEAVE);
}

enum sotto_status async_leave(struct async *a)
{
    a->state = TASK_NONE;
    return async_run_in_line(a, send_leave);
}
