#include "comm/lane.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/ops.h"

void lane_init(struct lane *lane, const struct lane_ops *ops, const struct clock *clock)
{
    lane->ops = ops;
    lane->clock = clock;
    lane->since = INFINITY;
}

void lane_bind(struct lane *lane, struct device *dev, struct device *before)
{
    lane->dev = dev;
    lane->before = before && before->ops->mark ? before : NULL;
    assert(!lane->before || dev);
}

/* Returns the status of a failed job when the device has done the job's ops: the job's memory may
 * be freed then. (A function of its own, which keeps the note off the stack of waiting jobs.) */
static enum sotto_status drain_failed_job(struct lane *lane, enum sotto_status st)
{
    struct status_note note;
    status_save(&note, st);
    (void)device_check(lane->dev);
    return status_raise(&note);
}

enum sotto_status lane_run(struct lane *lane, const struct lane_call *call)
{
    if (!lane->before)
        return call->job(call->arg);
    device_follow(lane->dev, (struct device_mark){lane->before, call->mark});
    enum sotto_status st = call->job(call->arg);
    return st == SOTTO_OK ? device_check(lane->dev) : drain_failed_job(lane, st);
}

enum sotto_status lane_wait_but(struct lane *lane, size_t left)
{
    double begin = clock_now(lane->clock);
    lane->since = begin;
    enum sotto_status st = lane->ops->wait(lane, left);
    lane->since = INFINITY;
    lane->exposed += clock_now(lane->clock) - begin;
    return st;
}

enum sotto_status lane_wait(struct lane *lane)
{
    return lane_wait_but(lane, 0);
}

/* Counts the part of a call that passed during a lane_wait, for this lane and the lanes above. A
 * job ends before the lane_wait does, so the begin of the wait is still set here. */
void lane_count_call(struct lane *lane, double begin, struct comm_wait wait, double end)
{
    for (; lane; lane = lane->above) {
        const double since = lane->since;
        if (since >= end)
            return;
        begin = fmax(begin, since);
        wait.from = fmax(wait.from, since);
        wait.to = fmax(wait.to, wait.from);
        const double others = wait.to - wait.from;
        lane->others = lane->others + others;
        lane->wire = lane->wire + (end - begin - others);
    }
}

void lane_count_work(struct lane *lane, double begin, double end)
{
    for (; lane; lane = lane->above) {
        const double since = lane->since;
        if (since >= end)
            return;
        begin = fmax(begin, since);
        lane->work = lane->work + (end - begin);
    }
}

void lane_close(struct lane *lane)
{
    if (lane)
        lane->ops->close(lane);
}

enum { QUEUE = 256 }; /* jobs in the queue; a starter waits for room beyond that */

struct thread_lane {
    struct lane base;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    struct lane_call queue[QUEUE];
    unsigned started, finished; /* jobs so far; the difference is queued or running */
    bool closing;
    struct status_note failure; /* of the first job that failed */
};

static bool thread_lane_idle(const struct thread_lane *l)
{
    return l->started == l->finished || l->failure.code != SOTTO_OK;
}

static void *thread_lane_serve(void *arg)
{
    struct thread_lane *l = arg;
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (thread_lane_idle(l) && !l->closing)
            pthread_cond_wait(&l->moved, &l->lock);
        if (l->closing)
            break;
        const struct lane_call call = l->queue[l->finished % QUEUE];
        pthread_mutex_unlock(&l->lock);
        double begin = clock_now(l->base.clock);
        enum sotto_status st = lane_run(&l->base, &call);
        double took = clock_now(l->base.clock) - begin;
        pthread_mutex_lock(&l->lock);
        l->base.busy += took;
        l->finished++;
        if (st != SOTTO_OK)
            status_save(&l->failure, st);
        pthread_cond_broadcast(&l->moved);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static enum sotto_status thread_lane_start(struct lane *lane, struct lane_call call)
{
    struct thread_lane *l = (struct thread_lane *)lane;
    pthread_mutex_lock(&l->lock);
    while (l->started - l->finished == QUEUE && !thread_lane_idle(l))
        pthread_cond_wait(&l->moved, &l->lock);
    enum sotto_status st = status_raise(&l->failure);
    if (st == SOTTO_OK) {
        l->queue[l->started++ % QUEUE] = call;
        pthread_cond_broadcast(&l->moved);
    }
    pthread_mutex_unlock(&l->lock);
    return st;
}

static enum sotto_status thread_lane_done(struct lane *lane, bool *is_done)
{
    struct thread_lane *l = (struct thread_lane *)lane;
    pthread_mutex_lock(&l->lock);
    *is_done = thread_lane_idle(l);
    enum sotto_status st = status_raise(&l->failure);
    pthread_mutex_unlock(&l->lock);
    return st;
}

static enum sotto_status thread_lane_wait(struct lane *lane, size_t left)
{
    struct thread_lane *l = (struct thread_lane *)lane;
    pthread_mutex_lock(&l->lock);
    while (!thread_lane_idle(l) && l->started - l->finished > left)
        pthread_cond_wait(&l->moved, &l->lock);
    enum sotto_status st = status_raise(&l->failure);
    pthread_mutex_unlock(&l->lock);
    return st;
}

static void thread_lane_close(struct lane *lane)
{
    struct thread_lane *l = (struct thread_lane *)lane;
    pthread_mutex_lock(&l->lock);
    l->closing = true;
    pthread_cond_broadcast(&l->moved);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    pthread_cond_destroy(&l->moved);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static const struct lane_ops thread_lane_ops = {.start = thread_lane_start,
                                                .done = thread_lane_done,
                                                .wait = thread_lane_wait,
                                                .close = thread_lane_close};

enum sotto_status lane_open_thread(struct lane **out)
{
    struct thread_lane *l = calloc(1, sizeof *l);
    *out = NULL;
    if (!l)
        return fail(SOTTO_ENOMEM, "no memory for a lane");
    lane_init(&l->base, &thread_lane_ops, &clock_real);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->moved, NULL);
    const int error = pthread_create(&l->thread, NULL, thread_lane_serve, l);
    if (error) {
        pthread_cond_destroy(&l->moved);
        pthread_mutex_destroy(&l->lock);
        free(l);
        return fail(SOTTO_ENOMEM, "cannot start a thread for a lane: %s", strerror(error));
    }
    *out = &l->base;
    return SOTTO_OK;
}
