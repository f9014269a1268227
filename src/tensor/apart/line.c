#define _DEFAULT_SOURCE /* usleep */
#include "tensor/apart/line.h"

#include <assert.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"

enum {
    ROOM = 4 * LINE_CALL,
    UNIT = 16
}; /* bytes of calls that may wait; what their sizes are of */

/* In front of a call; without a job: the rest of the ring is not used, the next call is at its
 * beginning. */
struct header {
    line_job *job;
    size_t bytes; /* with the header */
};

struct line {
    atomic_int users; /* who opened it, and who is to wait for it */
    struct device *dev;
    pthread_t thread; /* with a delay; else jobs run where somebody waits for them */
    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint64_t head, tail; /* bytes ever written and used up: between them calls wait or run */
    uint64_t issued, done;
    bool running; /* a job is, without the lock */
    bool closing;
    unsigned delay; /* microseconds by which a job is late, at most */
    alignas(UNIT) char ring[ROOM];
};

static struct header *header_at(struct line *l, uint64_t at)
{
    return (struct header *)(void *)(l->ring + at % ROOM);
}

/* Other lines get ahead of this one, now these and now those. */
static void be_late(const struct line *l, uint64_t job)
{
    const uint64_t draw = rng_at(1, (uint64_t)(uintptr_t)l, job);
    if (l->delay && draw % 2)
        usleep((unsigned)(draw / 2 % (l->delay + 1)));
}

/* Holds the lock before and after. */
static void run_next(struct line *l)
{
    struct header *h = header_at(l, l->tail);
    const uint64_t number = l->done;
    l->running = true;
    pthread_mutex_unlock(&l->lock);
    if (h->job) {
        be_late(l, number);
        h->job(l->dev, h + 1);
    }
    pthread_mutex_lock(&l->lock);
    l->running = false;
    l->done += h->job != NULL;
    l->tail += h->bytes;
    pthread_cond_broadcast(&l->moved);
}

static void *serve(void *arg)
{
    struct line *l = arg;
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (l->head == l->tail && !l->closing)
            pthread_cond_wait(&l->moved, &l->lock);
        if (l->head == l->tail)
            break;
        run_next(l);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* Holds the lock. A job may wait for another line's, which were issued before it. */
static void wait_for(struct line *l, uint64_t jobs)
{
    while (l->done < jobs) {
        if (l->delay || l->running)
            pthread_cond_wait(&l->moved, &l->lock);
        else
            run_next(l);
    }
}

enum sotto_status line_open(struct line **out, struct device *dev, unsigned delay)
{
    struct line *l = *out = calloc(1, sizeof *l);
    if (!l)
        return fail(SOTTO_ENOMEM, "no memory for a device's calls");
    atomic_init(&l->users, 1);
    l->dev = dev;
    l->delay = delay;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->moved, NULL);
    const int error = l->delay == 0 ? 0 : pthread_create(&l->thread, NULL, serve, l);
    if (!error)
        return SOTTO_OK;
    pthread_cond_destroy(&l->moved);
    pthread_mutex_destroy(&l->lock);
    free(l);
    *out = NULL;
    return fail(SOTTO_ENOMEM, "cannot start a thread for a device: %s", strerror(error));
}

void line_hold(struct line *l)
{
    atomic_fetch_add(&l->users, 1);
}

void line_drop(struct line *l)
{
    if (atomic_fetch_sub(&l->users, 1) > 1)
        return;
    pthread_cond_destroy(&l->moved);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

void line_close(struct line *l)
{
    pthread_mutex_lock(&l->lock);
    wait_for(l, l->issued);
    l->closing = true;
    pthread_cond_broadcast(&l->moved);
    pthread_mutex_unlock(&l->lock);
    if (l->delay)
        pthread_join(l->thread, NULL);
    line_drop(l);
}

void line_issue(struct line *l, line_job *job, const void *call, size_t bytes, const void *more,
                size_t more_bytes)
{
    const size_t need = (sizeof(struct header) + bytes + more_bytes + UNIT - 1) / UNIT * UNIT;
    assert(bytes + more_bytes <= LINE_CALL);
    pthread_mutex_lock(&l->lock);
    const size_t rest = ROOM - l->head % ROOM, skip = rest < need ? rest : 0;
    if (l->head + skip + need - l->tail > ROOM)
        wait_for(l, l->issued);
    if (skip)
        *header_at(l, l->head) = (struct header){NULL, skip};
    struct header *h = header_at(l, l->head + skip);
    *h = (struct header){job, need};
    memcpy(h + 1, call, bytes);
    if (more_bytes)
        memcpy((char *)(h + 1) + bytes, more, more_bytes);
    l->head += skip + need;
    l->issued++;
    pthread_cond_broadcast(&l->moved);
    pthread_mutex_unlock(&l->lock);
}

uint64_t line_issued(struct line *l)
{
    pthread_mutex_lock(&l->lock);
    const uint64_t issued = l->issued;
    pthread_mutex_unlock(&l->lock);
    return issued;
}

void line_wait(struct line *l, uint64_t jobs)
{
    pthread_mutex_lock(&l->lock);
    wait_for(l, jobs);
    pthread_mutex_unlock(&l->lock);
}
