#define _DEFAULT_SOURCE /* usleep */
#include "op_queue.h"

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
    RING_BYTES = 4 * OP_QUEUE_CALL,
    UNIT = 16 /* bytes; the size of a call in the ring is a multiple */
};

/* Header of a call in the ring. `run` NULL: the rest of the ring is unused, and the next call is at
 * the ring's beginning. */
struct queued_call {
    queued_function *run;
    size_t bytes; /* including this header */
};

struct op_queue {
    atomic_int references; /* the opener, and each thread that may still wait */
    struct device *dev;
    pthread_t thread; /* only with a delay */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t head, tail; /* bytes ever issued and bytes ever done; calls between them are pending */
    uint64_t issued, done; /* calls */
    bool running;          /* true while a call runs without the lock */
    bool closing;
    unsigned delay; /* microseconds, at most */
    alignas(UNIT) char ring[RING_BYTES];
};

static struct queued_call *call_at(struct op_queue *q, uint64_t at)
{
    return (struct queued_call *)(void *)(q->ring + at % RING_BYTES);
}

/* Sleeps before about half of the calls, so that queues overtake each other in changing order. */
static void sleep_delay(const struct op_queue *q, uint64_t number)
{
    const uint64_t draw = rng_at(1, (uint64_t)(uintptr_t)q, number);
    if (q->delay && draw % 2)
        usleep((unsigned)(draw / 2 % (q->delay + 1)));
}

/* Runs the oldest pending call. The caller holds the lock, which is released while the call runs.
 */
static void run_oldest(struct op_queue *q)
{
    struct queued_call *call = call_at(q, q->tail);
    const uint64_t number = q->done;
    q->running = true;
    pthread_mutex_unlock(&q->lock);
    if (call->run) {
        sleep_delay(q, number);
        call->run(q->dev, call + 1);
    }
    pthread_mutex_lock(&q->lock);
    q->running = false;
    q->done += call->run != NULL;
    q->tail += call->bytes;
    pthread_cond_broadcast(&q->changed);
}

static void *serve_queue(void *arg)
{
    struct op_queue *q = arg;
    pthread_mutex_lock(&q->lock);
    for (;;) {
        while (q->head == q->tail && !q->closing)
            pthread_cond_wait(&q->changed, &q->lock);
        if (q->head == q->tail)
            break;
        run_oldest(q);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

/* Waits until `calls` calls are done. The caller holds the lock. A call may itself wait for calls
 * of another queue, which were issued earlier. */
static void wait_done(struct op_queue *q, uint64_t calls)
{
    while (q->done < calls) {
        if (q->delay || q->running)
            pthread_cond_wait(&q->changed, &q->lock);
        else
            run_oldest(q);
    }
}

enum sotto_status op_queue_open(struct op_queue **out, struct device *dev, unsigned delay)
{
    struct op_queue *q = *out = calloc(1, sizeof *q);
    if (!q)
        return fail(SOTTO_ENOMEM, "no memory for a device's calls");
    atomic_init(&q->references, 1);
    q->dev = dev;
    q->delay = delay;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->changed, NULL);
    const int error = q->delay == 0 ? 0 : pthread_create(&q->thread, NULL, serve_queue, q);
    if (!error)
        return SOTTO_OK;
    op_queue_release(q);
    *out = NULL;
    return fail(SOTTO_ENOMEM, "cannot start a thread for a device: %s", strerror(error));
}

void op_queue_hold(struct op_queue *q)
{
    atomic_fetch_add(&q->references, 1);
}

void op_queue_release(struct op_queue *q)
{
    if (atomic_fetch_sub(&q->references, 1) > 1)
        return;
    pthread_cond_destroy(&q->changed);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

void op_queue_close(struct op_queue *q)
{
    pthread_mutex_lock(&q->lock);
    wait_done(q, q->issued);
    q->closing = true;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
    if (q->delay)
        pthread_join(q->thread, NULL);
    op_queue_release(q);
}

void op_queue_issue(struct op_queue *q, queued_function *run, const void *call, size_t bytes,
                    const void *more, size_t more_bytes)
{
    const size_t need = (sizeof(struct queued_call) + bytes + more_bytes + UNIT - 1) / UNIT * UNIT;
    assert(bytes + more_bytes <= OP_QUEUE_CALL);
    pthread_mutex_lock(&q->lock);
    const size_t rest = RING_BYTES - q->head % RING_BYTES, skip = rest < need ? rest : 0;
    if (q->head + skip + need - q->tail > RING_BYTES)
        wait_done(q, q->issued);
    if (skip)
        *call_at(q, q->head) = (struct queued_call){NULL, skip};
    struct queued_call *c = call_at(q, q->head + skip);
    *c = (struct queued_call){run, need};
    memcpy(c + 1, call, bytes);
    if (more_bytes)
        memcpy((char *)(c + 1) + bytes, more, more_bytes);
    q->head += skip + need;
    q->issued++;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
}

uint64_t op_queue_issued(struct op_queue *q)
{
    pthread_mutex_lock(&q->lock);
    const uint64_t issued = q->issued;
    pthread_mutex_unlock(&q->lock);
    return issued;
}

void op_queue_wait(struct op_queue *q, uint64_t calls)
{
    pthread_mutex_lock(&q->lock);
    wait_done(q, calls);
    pthread_mutex_unlock(&q->lock);
}
