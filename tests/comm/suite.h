/* One suite over every backend: each worker of a world runs it and returns a status, so it works in
 * threads, in virtual time and as MPI ranks alike. Sums are of small integers and therefore exact.
 */
#ifndef SOTTO_TESTS_COMM_SUITE_H
#define SOTTO_TESTS_COMM_SUITE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/worker.h"

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return fail(SOTTO_EINVAL, __VA_ARGS__);                                                \
    } while (0)

/* The longest vector. Filling and checking a million takes a minute or two under a sanitizer, and
 * shows it nothing that several pieces of a sum for each of 8 ranks do not. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { SUITE_LONGEST = 20000 };
#else
enum { SUITE_LONGEST = 1000000 };
#endif

/* What rank r brings at place i: small integers, other ones for every call. */
static inline float suite_value(int rank, size_t i, int call)
{
    return (float)((long)((i * 7 + (size_t)rank * 13 + (size_t)call * 5) % 17) - 8);
}

static inline float suite_sum(int size, size_t i, int call)
{
    float sum = 0;
    for (int r = 0; r < size; r++)
        sum += suite_value(r, i, call);
    return sum;
}

static inline void suite_put(struct view v, size_t i, float x)
{
    if (v.type == DTYPE_F32)
        ((float *)v.data)[i] = x;
    else
        ((uint16_t *)v.data)[i] = bf16_round(x);
}

static inline float suite_get(struct view v, size_t i)
{
    return v.type == DTYPE_F32 ? ((float *)v.data)[i] : bf16_widen(((uint16_t *)v.data)[i]);
}

struct suite {
    struct comm *c;
    struct view x, y;
    int call;
};

static inline void suite_fill(struct suite *s, size_t count)
{
    s->call++;
    for (size_t i = 0; i < count; i++) {
        suite_put(s->x, i, suite_value(s->c->rank, i, s->call));
        suite_put(s->y, i, -77);
    }
}

static inline enum sotto_status suite_allreduce(struct suite *s, size_t count, bool in_place)
{
    suite_fill(s, count);
    struct view y = in_place ? s->x : s->y;
    TRY(comm_allreduce(s->c, y, s->x, count));
    for (size_t i = 0; i < count; i++)
        CHECK(suite_get(y, i) == suite_sum(s->c->size, i, s->call), "allreduce of %zu: [%zu] is %g",
              count, i, suite_get(y, i));
    for (size_t i = 0; i < count && !in_place; i++)
        CHECK(suite_get(s->x, i) == suite_value(s->c->rank, i, s->call), "allreduce changed x[%zu]",
              i);
    return SOTTO_OK;
}

static inline enum sotto_status suite_scatter_gather(struct suite *s, size_t count, bool in_place)
{
    struct comm *c = s->c;
    struct comm_block b = comm_block(count, c->size, c->rank);
    suite_fill(s, count);
    struct view block = view_at(in_place ? s->x : s->y, b.begin);
    TRY(comm_reduce_scatter(c, block, s->x, count));
    for (size_t i = b.begin; i < b.end; i++)
        CHECK(suite_get(block, i - b.begin) == suite_sum(c->size, i, s->call),
              "reduce_scatter of %zu: [%zu] is %g", count, i, suite_get(block, i - b.begin));
    struct view whole = in_place ? s->x : s->y;
    TRY(comm_allgather(c, whole, block, count));
    for (size_t i = 0; i < count; i++)
        CHECK(suite_get(whole, i) == suite_sum(c->size, i, s->call),
              "allgather of %zu: [%zu] is %g", count, i, suite_get(whole, i));
    return SOTTO_OK;
}

static inline enum sotto_status suite_broadcast(struct suite *s, size_t count)
{
    for (int root = 0; root < s->c->size; root++) {
        suite_fill(s, count);
        TRY(comm_broadcast(s->c, s->x, count, root));
        for (size_t i = 0; i < count; i++)
            CHECK(suite_get(s->x, i) == suite_value(root, i, s->call),
                  "broadcast of %zu from %d: [%zu]", count, root, i);
    }
    return SOTTO_OK;
}

/* To the right and from the left, twice, so that messages queue. */
static inline enum sotto_status suite_messages(struct suite *s, size_t count)
{
    struct comm *c = s->c;
    int right = (c->rank + 1) % c->size, left = (c->rank + c->size - 1) % c->size;
    if (c->size == 1)
        return SOTTO_OK;
    suite_fill(s, count);
    TRY(comm_send(c, s->x, count, right));
    s->call++;
    for (size_t i = 0; i < count; i++)
        suite_put(s->x, i, suite_value(c->rank, i, s->call));
    TRY(comm_send(c, s->x, count, right));
    for (int k = 1; k >= 0; k--) {
        TRY(comm_recv(c, s->y, count, left));
        for (size_t i = 0; i < count; i++)
            CHECK(suite_get(s->y, i) == suite_value(left, i, s->call - k), "message of %zu: [%zu]",
                  count, i);
    }
    return SOTTO_OK;
}

/* Everybody with everybody, of other lengths: rank r sends r less than there is room for. */
static inline enum sotto_status suite_exchange(struct suite *s, size_t count)
{
    struct comm *c = s->c;
    for (int far = 1; far < c->size; far++) {
        int to = (c->rank + far) % c->size, from = (c->rank + c->size - far) % c->size;
        size_t mine = count > (size_t)c->rank ? count - (size_t)c->rank : 0, came;
        size_t want = count > (size_t)from ? count - (size_t)from : 0;
        suite_fill(s, count);
        TRY(comm_exchange(c, s->x, mine, to, s->y, count, from, &came));
        CHECK(came == want, "exchange of %zu: %zu came", want, came);
        for (size_t i = 0; i < count; i++)
            CHECK(suite_get(s->y, i) == (i < want ? suite_value(from, i, s->call) : -77),
                  "exchange of %zu: [%zu]", count, i);
    }
    return SOTTO_OK;
}

/* Real numbers, whose sum depends on the order. */
static inline float suite_real(struct view v, int rank, size_t i)
{
    float x = 1 / (float)(1 + (i * 31 + (size_t)rank * 17) % 101);
    return v.type == DTYPE_F32 ? x : bf16_widen(bf16_round(x));
}

/* Block b is x_{b+1} + x_{b+2} + ... + x_b, in fp32, as comm.h promises. */
static inline enum sotto_status suite_order(struct suite *s, size_t count)
{
    struct comm *c = s->c;
    for (size_t i = 0; i < count; i++)
        suite_put(s->x, i, suite_real(s->x, c->rank, i));
    TRY(comm_allreduce(c, s->y, s->x, count));
    for (int b = 0; b < c->size; b++) {
        struct comm_block block = comm_block(count, c->size, b);
        for (size_t i = block.begin; i < block.end; i++) {
            float sum = suite_real(s->x, (b + 1) % c->size, i);
            for (int k = 2; k <= c->size; k++)
                sum += suite_real(s->x, (b + k) % c->size, i);
            suite_put(s->x, i, sum);
            CHECK(suite_get(s->y, i) == suite_get(s->x, i),
                  "allreduce of %zu: [%zu] is %.9g, in order %.9g", count, i, suite_get(s->y, i),
                  suite_get(s->x, i));
        }
    }
    return SOTTO_OK;
}

static inline enum sotto_status suite_vectors(struct comm *c, size_t most, bool ordered)
{
    static const size_t counts[] = {0, 1, 7, 1023, SUITE_LONGEST};
    struct suite s = {.c = c};
    s.x.data = calloc(most + 1, 4);
    s.y.data = calloc(most + 1, 4);
    enum sotto_status st = SOTTO_OK;
    for (int type = DTYPE_F32; type <= DTYPE_BF16; type++) {
        s.x.type = s.y.type = (enum dtype)type;
        for (size_t k = 0; k < sizeof counts / sizeof *counts && st == SOTTO_OK; k++) {
            size_t n = counts[k] < most ? counts[k] : most;
            for (int in_place = 0; in_place < 2 && st == SOTTO_OK; in_place++) {
                st = suite_allreduce(&s, n, in_place);
                if (st == SOTTO_OK)
                    st = suite_scatter_gather(&s, n, in_place);
            }
            if (st == SOTTO_OK)
                st = suite_broadcast(&s, n);
            if (st == SOTTO_OK)
                st = suite_messages(&s, n);
            if (st == SOTTO_OK)
                st = suite_exchange(&s, n);
            if (st == SOTTO_OK && ordered)
                st = suite_order(&s, n);
            if (st == SOTTO_OK)
                st = comm_barrier(c);
        }
    }
    free(s.x.data);
    free(s.y.data);
    return st;
}

static inline enum sotto_status suite_small(struct comm *c)
{
    double x[2] = {c->rank + 1, 0.5};
    TRY(comm_sum(c, x, 2));
    CHECK(x[0] == c->size * (c->size + 1) / 2 && x[1] == 0.5 * c->size, "comm_sum gave %g, %g",
          x[0], x[1]);
    TRY(comm_agree(c, "the text", "a = 1\nb = 2\n"));
    return SOTTO_OK;
}

/* Rows and columns of a 2-wide mesh, and communicators of those. */
static inline enum sotto_status suite_split(struct comm *c, bool ordered)
{
    struct comm *row, *column, *copy;
    TRY(comm_split(c, c->rank / 2, &row));
    TRY(comm_split(c, c->rank % 2, &column));
    TRY(comm_duplicate(row, &copy));
    CHECK(row->rank == c->rank % 2 && column->rank == c->rank / 2,
          "rank %d is %d of its row, %d of its column", c->rank, row->rank, column->rank);
    CHECK(copy->size == row->size && copy->rank == row->rank, "a duplicate has %d ranks",
          copy->size);
    TRY(suite_vectors(column, 1023, ordered));
    TRY(suite_vectors(copy, 7, ordered));
    comm_free(copy);
    comm_free(column);
    comm_free(row);
    return SOTTO_OK;
}

/* A lane reduces on its own communicator while the worker reduces on another. */
struct suite_lane {
    struct comm *c;
    float x[1000];
};

static inline enum sotto_status suite_lane_job(void *arg)
{
    struct suite_lane *l = arg;
    struct view v = {l->x, DTYPE_F32};
    return comm_allreduce(l->c, v, v, 1000);
}

static inline enum sotto_status suite_lanes(struct worker *w)
{
    struct suite_lane job[3];
    struct lane *lane;
    struct comm *own;
    TRY(comm_duplicate(w->world, &own));
    TRY(w->ops->lane(w, &lane));
    for (int k = 0; k < 3; k++) {
        job[k].c = own;
        for (int i = 0; i < 1000; i++)
            job[k].x[i] = suite_value(w->rank, (size_t)i, k);
        TRY(lane_start(lane, suite_lane_job, &job[k]));
    }
    TRY(suite_vectors(w->world, 1023, false));
    TRY(lane_wait(lane));
    bool done;
    TRY(lane_done(lane, &done));
    CHECK(done, "a lane that was waited for is not done");
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 1000; i++)
            CHECK(job[k].x[i] == suite_sum(w->size, (size_t)i, k), "lane: job %d, [%d]", k, i);
    lane_close(lane);
    comm_free(own);
    return SOTTO_OK;
}

struct suite_config {
    size_t most;  /* longest vector */
    bool ordered; /* sums have the promised order */
};

static inline enum sotto_status suite_run(struct worker *w, void *arg)
{
    const struct suite_config *config = arg;
    TRY(suite_vectors(w->world, config->most, config->ordered));
    TRY(suite_small(w->world));
    TRY(suite_split(w->world, config->ordered));
    return suite_lanes(w);
}

#endif
