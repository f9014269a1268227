#include "comm/threads/shaped.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"

struct shaped {
    pthread_mutex_t lock;
    pthread_cond_t moved; /* a flow has begun or ended */
    struct network *net;
};

static double real_now(void)
{
    return clock_now(&clock_real);
}

enum sotto_status shaped_open(struct shaped **out, const struct link_model *links, const int *node,
                              int workers)
{
    struct shaped *s = *out = calloc(1, sizeof *s);
    if (!s)
        return fail(SOTTO_ENOMEM, "no memory for the links of %d workers", workers);
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_t monotonic; /* as clock_real */
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->moved, &monotonic);
    pthread_condattr_destroy(&monotonic);
    const enum sotto_status st = network_open(&s->net, links, node, workers);
    if (st != SOTTO_OK) {
        shaped_close(s);
        *out = NULL;
    }
    return st;
}

void shaped_close(struct shaped *s)
{
    if (!s)
        return;
    network_close(s->net);
    pthread_cond_destroy(&s->moved);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

struct network *shaped_network(struct shaped *s)
{
    return s->net;
}

void shaped_sleep_until(double when)
{
    double left = when - real_now();
    while (left > 0) {
        struct timespec t = {(time_t)left, (long)((left - (double)(time_t)left) * 1e9)};
        nanosleep(&t, NULL);
        left = when - real_now();
    }
}

/* Ends the flows that have ended by `time`. */
static void catch_up(struct shaped *s, double time)
{
    while (network_next(s->net) <= time) {
        network_end_next(s->net);
        pthread_cond_broadcast(&s->moved);
    }
}

/* Returns the begin of something due at `since`: not earlier than the last event of the network. */
static double begin_time(struct shaped *s, double since)
{
    catch_up(s, since);
    return fmax(since, network_time(s->net));
}

/* Waits until a flow begins or ends. The lock is held. */
static void wait_moved(struct shaped *s)
{
    const double next = network_next(s->net);
    const struct timespec t = {(time_t)next, (long)((next - floor(next)) * 1e9)};
    pthread_cond_timedwait(&s->moved, &s->lock, &t);
    catch_up(s, real_now());
}

static void trip_over(struct trip *trip, double time)
{
    struct shaped_trip *t = (struct shaped_trip *)trip; /* first member */
    t->over++;
    t->end = time;
}

enum sotto_status shaped_collective(struct shaped *s, struct shaped_trip *trip, struct route *route,
                                    struct route_call call, uint64_t number, double since)
{
    enum sotto_status st = SOTTO_OK;
    pthread_mutex_lock(&s->lock);
    if (trip->started < number) {
        trip->started = number;
        trip->trip.over = trip_over;
        st = trip_start(&trip->trip, route, call, begin_time(s, since));
        if (st != SOTTO_OK)
            trip_over(&trip->trip,
                      since); /* the other ranks continue; this rank reports the failure */
        pthread_cond_broadcast(&s->moved);
    }
    while (trip->over < number)
        wait_moved(s);
    const double end = trip->end;
    pthread_mutex_unlock(&s->lock);
    shaped_sleep_until(end);
    return st;
}

static void shaped_message_left(struct network_flow *flow, double time)
{
    struct shaped_message *m = (struct shaped_message *)flow; /* first member */
    m->gone = true;
    m->left = time;
}

enum sotto_status shaped_send(struct shaped *s, struct shaped_message *m, int from, int to,
                              double bytes, double since)
{
    const struct network_hop hop = network_hop(s->net, from, to);
    *m = (struct shaped_message){.latency = hop.latency, .flow.ended = shaped_message_left};
    m->flow.use = m->use;
    for (int i = 0; i < 2; i++)
        if (hop.port[i] >= 0)
            m->use[m->flow.n++] = (struct network_use){.port = hop.port[i], .streams = 1};
    pthread_mutex_lock(&s->lock);
    enum sotto_status st = network_reserve(s->net);
    if (st == SOTTO_OK) {
        network_start(s->net, &m->flow, bytes, begin_time(s, since));
        pthread_cond_broadcast(&s->moved);
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

double shaped_wait_left(struct shaped *s, struct shaped_message *m)
{
    pthread_mutex_lock(&s->lock);
    catch_up(s, real_now());
    while (!m->gone)
        wait_moved(s);
    const double come = m->left + m->latency;
    pthread_mutex_unlock(&s->lock);
    return come;
}

void shaped_wait_arrived(struct shaped *s, struct shaped_message *m)
{
    shaped_sleep_until(shaped_wait_left(s, m));
}
