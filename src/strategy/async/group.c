/* What a group does between two meetings, and how it comes to one. */
#include "strategy/async/group.h"

#include <assert.h>

#include "tensor/ops.h"

static double now(const struct replicate *r)
{
    return clock_now(r->is.mesh->worker->clock);
}

/* A word to the leader. */
static enum sotto_status say(struct async *a, enum up_kind kind)
{
    struct up_word w = {.kind = kind,
                        .rounds = a->rounds,
                        .cut = a->late,
                        .step = a->begins,
                        .pushes = a->state == TASK_PUSHES,
                        .push = a->push};
    if (!async_speaks(a))
        return SOTTO_OK;
    if (kind != UP_PUSH)
        TRY(comm_send(a->up, view_of(NULL, DTYPE_F32), 0, 0));
    return comm_send_bytes(a->up, &w, sizeof w, 0);
}

enum sotto_status async_in_line(struct async *a, lane_job *job)
{
    struct lane *lane = a->base.is.across->lane;
    if (!lane)
        return job(a);
    TRY(lane_start(lane, job, a));
    return lane_wait(lane);
}

static enum sotto_status await_rest(void *arg)
{
    struct async *a = arg;
    struct down_word w;
    if (!a->service || !a->round.meet || a->rests)
        return SOTTO_OK;
    TRY(comm_recv_bytes(a->down, &w, sizeof w, 0));
    assert(w.kind == DOWN_REST);
    a->rests = true;
    return SOTTO_OK;
}

enum sotto_status async_wait_idle(struct async *a)
{
    return async_in_line(a, await_rest);
}

/* Everybody begins with the parameters that all have, on a data shard of its own. */
static void first_task(struct async *a)
{
    const int64_t H = async_options(a)->H, group = a->base.is.mesh->r;
    const int64_t left = a->rounds > 0 ? a->rounds - a->begins : H;
    a->task = (struct async_task){
        .group = group, .span = {.shard = group, .first = a->begins, .steps = left < H ? left : H}};
    a->state = TASK_TRAINS;
}

/* Of a run that follows another one the server has another first task to give. */
static enum sotto_status first_replayed(struct async *a)
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

static enum sotto_status go(struct async *a)
{
    if (a->state == TASK_FIRST) {
        first_task(a);
        TRY(first_replayed(a));
    }
    if (a->before > 0 && a->rounds > a->before && a->state == TASK_NONE)
        a->state = TASK_WAITS; /* the server has something for it */
    a->before = 0;
    a->asked = now(&a->base);
    a->goes = a->rung = a->rests = false;
    return say(a, UP_GO);
}

/* The first worker of a group looks whether it is to meet the others or to keep what it has. */
static enum sotto_status listen(struct async *a)
{
    int from;
    if (!async_speaks(a) || a->rung)
        return SOTTO_OK;
    TRY(comm_recv_any_bytes(a->down, &a->bell, sizeof a->bell, NULL, 0, &from));
    a->rung = from >= 0;
    return SOTTO_OK;
}

/* A push that would have to be made again costs time: not where a group can know without a word. */
static enum sotto_status listen_again(struct async *a)
{
    return a->base.is.mesh->n_s > 1 ? SOTTO_OK : listen(a);
}

/* All of its workers were sent the word that the first one has. */
static enum sotto_status hear(struct async *a)
{
    if (a->rung)
        return SOTTO_OK;
    a->rung = true;
    return comm_recv_bytes(a->down, &a->bell, sizeof a->bell, 0);
}

/* That is no reason to end a round. */
static void take_cut(struct async *a)
{
    if (!a->rung || a->bell.kind != DOWN_CUT)
        return;
    a->rung = false;
    a->cut = true;
}

static enum sotto_status begin(void *arg)
{
    struct async *a = arg;
    struct replicate *r = &a->base;
    TRY(await_rest(a));
    if (a->service)
        TRY(service_start(a->service));
    if (a->service && a->round.snapshot)
        service_hold(a->service, false);
    a->round.pulled = a->round.evaluate = a->round.snapshot = a->round.meet = r->apart = false;
    if (!a->beside || a->goes) /* else since the last step */
        a->since = now(r);
    if (a->goes)
        TRY(go(a));
    r->idle = a->state != TASK_TRAINS;
    return r->idle ? SOTTO_OK : listen(a);
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
    TRY(async_in_line(a, begin));
    *meet = a->rung;
    r->data.own = a->beside;
    r->data.rank = (int)a->task.span.shard * r->is.mesh->n_s + r->is.mesh->s;
    r->data.microbatch = a->begins_at + (a->task.span.first + a->done - a->begins) * accumulate;
    return SOTTO_OK;
}

static enum sotto_status read_delta(void *arg)
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
        return comm_send(a->up, a->wire.dev ? a->wire.view : a->delta.view, r->count, 0);
    TRY(work_run(&r->on, read_delta, a, 2. * sizeof(float) * (double)r->count));
    TRY(sparse_prune(&a->sparse));
    TRY(sparse_pack(&a->sparse, &words));
    return comm_send(a->up, view_of(a->sparse.out, a->sparse.type), words, 0);
}

/* g = x0 - x */
static enum sotto_status push(struct async *a)
{
    struct replicate *r = &a->base;
    TRY(work_copy(&r->on, a->delta.view, a->x0.view, r->count));
    TRY(work_axpy(&r->on, a->delta.view, -1, r->x, r->count));
    a->asked = now(r);
    a->push.steps = a->done;
    a->cut = false;
    TRY(send_delta(a));
    TRY(say(a, UP_PUSH));
    a->state = TASK_WAITS;
    return SOTTO_OK;
}

static enum sotto_status take_task(struct async *a, const struct down_word *w)
{
    struct replicate *r = &a->base;
    if (w->task.span.steps > 0 && w->task.span.first < a->begins)
        return fail(SOTTO_EFORMAT,
                    "a task from step %lld of a data shard on, of a run whose groups begin at %lld",
                    (long long)w->task.span.first, (long long)a->begins);
    TRY(comm_recv(a->down, a->x0.view, r->count, 0));
    TRY(work_copy(&r->on, r->x, a->x0.view, r->count)); /* x <- x0 */
    TRY(replicate_publish(r));
    a->task = w->task;
    a->done = 0;
    a->state = w->task.span.steps > 0 ? TASK_TRAINS : TASK_NONE;
    const bool computes = a->beside && !r->idle;
    a->push = (struct async_push){.group = a->task.group,
                                  .idle = computes ? 0 : a->waited + (now(r) - a->asked)};
    a->waited = 0;
    a->since = now(r);
    a->round.step = w->step;
    a->round.pulled = true;
    a->round.evaluate = w->evaluate;
    return SOTTO_OK;
}

/* The answer; or that it comes behind the meeting, or behind what is kept. */
static enum sotto_status pull(struct async *a)
{
    struct down_word *w = &a->bell;
    do
        TRY(comm_recv_bytes(a->down, w, sizeof *w, 0));
    while (w->kind == DOWN_BELL || w->kind == DOWN_CUT); /* and whether it was applied */
    if (w->kind == DOWN_TASK)
        return take_task(a, w);
    if (w->kind == DOWN_AGAIN)
        a->state = TASK_PUSHES;
    else if (w->kind == DOWN_HOLD)
        a->waited += now(&a->base) - a->asked;
    a->rung = true;
    return SOTTO_OK;
}

/* The round ends with what was heard. */
static enum sotto_status come(struct async *a)
{
    struct replicate *r = &a->base;
    r->apart = true;
    a->round.step = a->bell.step;
    a->round.most = a->bell.most;
    if (a->bell.kind == DOWN_MARK) {
        a->round.snapshot = true;
        a->rung = false;
        return SOTTO_OK;
    }
    a->round.meet = a->goes = true;
    r->stop = a->bell.stop;
    return say(a, UP_CAME);
}

static void count(struct async *a)
{
    const struct replicate *r = &a->base;
    a->push.microbatches += (int64_t)r->own.microbatches;
    a->push.tokens += (int64_t)r->own.tokens;
    a->push.targets += (int64_t)r->own.targets;
    a->push.loss += r->own.loss;
    a->push.seconds += now(r) - a->since;
    a->since = now(r);
    a->push.group = r->is.mesh->r;
}

enum sotto_status async_step(struct replicate *r, const struct plan *plan, double scale)
{
    struct async *a = (struct async *)r;
    if (a->state == TASK_TRAINS) {
        TRY(replicate_local_step(r, plan->lr, scale));
        count(a);
        a->done++;
        if (r->own.meet)
            TRY(hear(a));
        if (r->own.stop && !a->stops) {
            a->stops = true;
            TRY(say(a, UP_STOP));
        }
    } else if (a->state == TASK_NONE) {
        TRY(hear(a)); /* nothing is left to be done but that, unless a group has failed */
        if (a->bell.kind != DOWN_TASK)
            return come(a);
        a->rung = false;
        return take_task(a, &a->bell);
    }
    take_cut(a);
    if (a->state == TASK_TRAINS && (a->done == a->task.span.steps || a->cut))
        a->state = TASK_PUSHES;
    if (a->state == TASK_PUSHES)
        TRY(listen_again(a));
    take_cut(a);
    if (a->state == TASK_PUSHES && !a->rung) /* else behind it */
        TRY(push(a));
    if (a->state == TASK_WAITS)
        TRY(pull(a));
    return a->rung ? come(a) : SOTTO_OK;
}

static enum sotto_status say_leave(void *a)
{
    return say(a, UP_LEAVE);
}

enum sotto_status async_leave(struct async *a)
{
    a->state = TASK_NONE;
    return async_in_line(a, say_leave);
}
