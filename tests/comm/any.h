/* Receiving the first message of any sender, over every backend: jobs of all workers of a world
 * that return a status (comm/suite.h). */
#ifndef SOTTO_TESTS_COMM_ANY_H
#define SOTTO_TESTS_COMM_ANY_H

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "comm/suite.h"

enum { ANY_PUSHES = 5, ANY_HEAD = 2, ANY_LOAD = 3000 };

/* A server in a lane of rank 0: receives every push, a header and the data after it, and answers.
 */
struct any_server {
    struct comm *c;
    int pushes;
};

static inline enum sotto_status any_serve(void *arg)
{
    const struct any_server *s = arg;
    float head[ANY_HEAD], load[ANY_LOAD], answer;
    int count[16] = {0}, from;
    for (int i = 0; i < s->pushes; i++) {
        TRY(comm_recv_any(s->c, view_of(head, DTYPE_F32), ANY_HEAD, NULL, INFINITY, &from));
        CHECK(from > 0 && from < s->c->size && head[0] == (float)from,
              "a push of %g is said to be rank %d's", (double)head[0], from);
        CHECK(head[1] == (float)count[from], "push %g of rank %d comes as its %dth",
              (double)head[1], from, count[from]);
        count[from]++;
        TRY(comm_recv(s->c, view_of(load, DTYPE_F32), ANY_LOAD, from));
        CHECK(load[0] == head[0] && load[ANY_LOAD - 1] == head[1], "rank %d: another load", from);
        answer = head[0] + head[1];
        TRY(comm_send(s->c, view_of(&answer, DTYPE_F32), 1, from));
    }
    return SOTTO_OK;
}

static inline enum sotto_status any_push(struct comm *c, int i)
{
    float head[ANY_HEAD] = {(float)c->rank, (float)i}, load[ANY_LOAD] = {head[0]}, answer = 0;
    load[ANY_LOAD - 1] = head[1];
    TRY(comm_send(c, view_of(head, DTYPE_F32), ANY_HEAD, 0));
    TRY(comm_send(c, view_of(load, DTYPE_F32), ANY_LOAD, 0));
    TRY(comm_recv(c, view_of(&answer, DTYPE_F32), 1, 0));
    CHECK(answer == head[0] + head[1], "rank %d is answered %g", c->rank, (double)answer);
    return SOTTO_OK;
}

/* Calls of the workers while the server runs: messages to the same rank, and sums. */
static inline enum sotto_status any_beside(struct worker *w, int i)
{
    float x[ANY_HEAD] = {-1, (float)i};
    double one = 1;
    if (w->rank)
        TRY(comm_send(w->world, view_of(x, DTYPE_F32), ANY_HEAD, 0));
    for (int r = 1; r < w->size && w->rank == 0; r++) {
        TRY(comm_recv(w->world, view_of(x, DTYPE_F32), ANY_HEAD, r));
        CHECK(x[0] == -1 && x[1] == (float)i, "the worker got a push of rank %g", (double)x[0]);
    }
    TRY(comm_sum(w->world, &one, 1));
    CHECK(one == w->size, "a sum of %d is %g", w->size, one);
    return SOTTO_OK;
}

static inline enum sotto_status any_served(struct worker *w)
{
    struct any_server s = {.pushes = ANY_PUSHES * (w->size - 1)};
    struct lane *lane;
    TRY(comm_duplicate(w->world, &s.c));
    TRY(w->ops->lane(w, &lane));
    if (w->rank == 0)
        TRY(lane_start(lane, any_serve, &s));
    enum sotto_status st = SOTTO_OK;
    for (int i = 0; i < ANY_PUSHES && st == SOTTO_OK; i++) {
        if (w->rank)
            st = any_push(s.c, i);
        if (st == SOTTO_OK)
            st = any_beside(w, i);
    }
    if (st == SOTTO_OK)
        st = lane_wait(lane);
    lane_close(lane);
    const struct comm_stats *t = &s.c->stats[COMM_RECV];
    const int64_t want = w->rank ? ANY_PUSHES : 2 * s.pushes;
    if (st == SOTTO_OK && t->calls != want)
        st = fail(SOTTO_EINVAL, "%lld receives are counted, not %lld", (long long)t->calls,
                  (long long)want);
    if (st == SOTTO_OK && (t->waiting < 0 || t->waiting > t->seconds))
        st = fail(SOTTO_EINVAL, "waited %g of %g s", t->waiting, t->seconds);
    comm_free(s.c);
    return st;
}

/* All ranks have sent two messages. Rank 0 receives those of odd ranks first, then the others. */
static inline enum sotto_status any_subset(struct worker *w)
{
    float x[2];
    int count[16] = {0}, from;
    for (int i = 0; i < 2 && w->rank; i++) {
        x[0] = (float)w->rank, x[1] = (float)i;
        TRY(comm_send(w->world, view_of(x, DTYPE_F32), 2, 0));
    }
    TRY(comm_barrier(w->world));
    for (int odd = 1; odd >= 0 && w->rank == 0; odd--) {
        bool among[16];
        int senders = 0;
        for (int r = 0; r < w->size; r++)
            senders += r && (among[r] = r % 2 == odd);
        among[0] = true; /* no rank receives from itself */
        for (int i = 0; i < 2 * senders; i++) {
            TRY(comm_recv_any(w->world, view_of(x, DTYPE_F32), 2, among, INFINITY, &from));
            CHECK(from % 2 == odd && x[0] == (float)from && x[1] == (float)count[from],
                  "among those of parity %d rank %d's: %g, %g", odd, from, (double)x[0],
                  (double)x[1]);
            count[from]++;
        }
    }
    return comm_barrier(w->world);
}

/* No message arrives before the time limit; later one does. The senders continue with the next
 * call, for which the last rank is late; no message is taken then. */
static inline enum sotto_status any_deadline(struct worker *w)
{
    float x = 1;
    const struct view v = view_of(&x, DTYPE_F32);
    int from = 7;
    if (w->rank == 0) {
        const double until = clock_now(w->clock) + 0.02;
        TRY(comm_recv_any(w->world, v, 1, NULL, until, &from));
        CHECK(from == -1, "nobody sent, and rank %d's came", from);
        CHECK(clock_now(w->clock) >= until, "gave up %g s early", until - clock_now(w->clock));
    }
    TRY(comm_barrier(w->world));
    if (w->rank && w->rank == w->size - 1)
        nanosleep(&(struct timespec){0, 20000000}, NULL);
    if (w->rank)
        TRY(comm_send(w->world, v, 1, 0));
    for (int i = 1; i < w->size && w->rank == 0; i++) {
        TRY(comm_recv_any(w->world, v, 1, NULL, clock_now(w->clock) + 60, &from));
        CHECK(from > 0 && x == 1, "message %d of %d has not come", i, w->size - 1);
    }
    TRY(comm_allreduce(w->world, v, v, 1));
    CHECK(x == (float)w->size, "the sum behind it is %g", (double)x);
    return SOTTO_OK;
}

/* No rank can send: an error at once. */
static inline enum sotto_status any_nobody(struct worker *w)
{
    bool among[16] = {0};
    float x;
    int from;
    among[w->rank] = true;
    CHECK(comm_recv_any(w->world, view_of(&x, DTYPE_F32), 1, w->size > 1 ? among : NULL, INFINITY,
                        &from) == SOTTO_EPEER &&
              strstr(sotto_error(), "all ranks that could send it have ended"),
          "nobody can send: \"%s\"", sotto_error());
    return SOTTO_OK;
}

/* Rank 0's own worker is a client too. The lane receives on `up`, the workers on `down`; sends of
 * rank 0 go through twins. The sender decides the length of a message. */
struct any_twins {
    struct comm *up, *down; /* the lane's handles */
    int pushes;
};

static inline enum sotto_status any_serve_twins(void *arg)
{
    const struct any_twins *t = arg;
    float load[ANY_LOAD];
    size_t came;
    for (int i = 0, from; i < t->pushes; i++) {
        TRY(comm_recv_some(t->up, view_of(load, DTYPE_F32), ANY_LOAD, NULL, INFINITY, &from,
                           &came));
        CHECK(from >= 0 && came == 10 * (size_t)from + 1 && load[came - 1] == (float)from,
              "rank %d sends %zu", from, came);
        TRY(comm_send(t->down, view_of(load, DTYPE_F32), 1, from));
    }
    const double now = clock_now(t->up->clock);
    int from;
    TRY(comm_recv_some(t->up, view_of(load, DTYPE_F32), 1, NULL, now, &from, &came));
    CHECK(from == -1 && came == 0, "rank %d sends more", from);
    return SOTTO_OK;
}

static inline enum sotto_status any_push_twins(struct comm *up, struct comm *down)
{
    float load[ANY_LOAD] = {0}, answer;
    for (int i = 0; i < ANY_PUSHES; i++) {
        load[0] = (float)(up->rank ? i : 0);
        load[10 * up->rank] = (float)up->rank;
        TRY(comm_send(up, view_of(load, DTYPE_F32), 10 * (size_t)up->rank + 1, 0));
        TRY(comm_recv(down, view_of(&answer, DTYPE_F32), 1, 0));
        CHECK(answer == load[0], "rank %d is answered %g", up->rank, (double)answer);
    }
    return SOTTO_OK;
}

static inline enum sotto_status any_twinned(struct worker *w)
{
    struct any_twins t = {.pushes = ANY_PUSHES * w->size};
    struct comm *up, *down, *twin[2] = {NULL, NULL};
    struct lane *lane;
    TRY(comm_duplicate(w->world, &up));
    TRY(comm_duplicate(w->world, &down));
    TRY(w->ops->lane(w, &lane));
    enum sotto_status st = SOTTO_OK;
    if (w->rank == 0) {
        TRY(comm_twin(up, &twin[0]));
        TRY(comm_twin(down, &twin[1]));
        t.up = up;
        t.down = twin[1];
        up = twin[0];
        st = lane_start(lane, any_serve_twins, &t);
    }
    const double begin = clock_now(w->clock);
    if (st == SOTTO_OK)
        st = any_push_twins(up, down);
    if (st == SOTTO_OK && w->size == 1 && strcmp(w->ops->name, "virtual") == 0 &&
        clock_now(w->clock) != begin)
        st = fail(SOTTO_EINVAL, "messages to oneself take %g s", clock_now(w->clock) - begin);
    const struct comm_stats *sent = &up->stats[COMM_SEND];
    const int64_t bytes = w->rank ? ANY_PUSHES * (10 * w->rank + 1) * (int64_t)sizeof(float) : 0;
    if (st == SOTTO_OK &&
        sent->inside + sent->between != bytes) /* bytes to the own rank are not counted */
        st = fail(SOTTO_EINVAL, "rank %d is said to send %lld bytes", w->rank,
                  (long long)(sent->inside + sent->between));
    if (st == SOTTO_OK)
        st = lane_wait(lane);
    lane_close(lane);
    comm_free(twin[0]);
    comm_free(twin[1]);
    comm_free(w->rank ? up : t.up);
    comm_free(down);
    return st;
}

enum { ANY_LONG = 100000 }; /* floats: longer than any send that does not wait for its receiver */

static inline enum sotto_status any_expect_posted(struct comm *c, float *x)
{
    for (int i = 0; i < 3; i++) {
        const int count = i == 1 ? 1 : ANY_LONG;
        TRY(comm_recv(c, view_of(x, DTYPE_F32), (size_t)count, 0));
        CHECK(x[0] == (float)(c->rank + i) && x[count - 1] == x[0],
              "post %d to rank %d begins with %g and ends with %g", i, c->rank, (double)x[0],
              (double)x[count - 1]);
    }
    return SOTTO_OK;
}

/* Rank 0 posts to ranks that receive only after a later message of rank 0; the posted memory
 * changes by then. */
static inline enum sotto_status any_posted(struct worker *w)
{
    float *x = calloc(ANY_LONG, sizeof *x);
    struct comm *c;
    enum sotto_status st = comm_duplicate(w->world, &c);
    for (int again = 0; again < 2 && st == SOTTO_OK; again++) {
        for (int to = 1; to < w->size && w->rank == 0; to++)
            for (int i = 0; i < 3 && st == SOTTO_OK; i++) {
                x[0] = x[ANY_LONG - 1] = (float)(to + i);
                st = comm_post(c, view_of(x, DTYPE_F32), i == 1 ? 1 : ANY_LONG, to);
            }
        if (st == SOTTO_OK)
            st = comm_barrier(w->world);
        if (st == SOTTO_OK && w->rank)
            st = any_expect_posted(c, x);
    }
    if (st == SOTTO_OK && w->rank == 0 && c->stats[COMM_SEND].calls != 6 * (w->size - 1))
        st = fail(SOTTO_EINVAL, "%lld sends are counted", (long long)c->stats[COMM_SEND].calls);
    comm_free(c);
    free(x);
    return st;
}

static inline enum sotto_status any_run(struct worker *w, void *arg)
{
    (void)arg;
    TRY(any_nobody(w));
    TRY(any_twinned(w));
    if (w->size == 1)
        return SOTTO_OK;
    TRY(any_served(w));
    TRY(any_posted(w));
    TRY(any_subset(w));
    return any_deadline(w);
}

#endif
