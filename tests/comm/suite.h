/* One suite for every backend: each worker of a world runs the suite and returns a status, so the
 * suite runs in threads, in virtual time and as MPI ranks. Sums are of small integers, hence exact,
 * except where a test checks the order of sums. */
#ifndef SOTTO_TESTS_COMM_SUITE_H
#define SOTTO_TESTS_COMM_SUITE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sanitized.h"
#include "comm/worker.h"
#include "tensor/ops.h"

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return fail(SOTTO_EINVAL, __VA_ARGS__);                                                \
    } while (0)

/* The longest vector. A million elements take a minute or two under a sanitizer, which finds no
 * more in them than in several pieces for each of 8 ranks. */
#if defined SANITIZED_ADDRESS || defined SANITIZED_THREAD
enum { SUITE_LONGEST = 20000 };
#else
enum { SUITE_LONGEST = 1000000 };
#endif

/* Returns the longest vector: blocks are longest with two ranks, shortest with eight. */
static inline size_t suite_longest(int size)
{
    return size == 2 || size == 8 ? SUITE_LONGEST : SUITE_LONGEST > 20000 ? 20000 : 1023;
}

/* Elements of a vector of which no sum is small (COMM_SMALL) and every block has several pieces. */
enum { SUITE_LARGE = 17000 };

/* Elements of a message whose send does not wait for the receiver. */
enum { SUITE_QUEUES = 1023 };

/* Returns the value of rank r at place i: small integers, with a period, different in every call.
 */
enum { SUITE_PERIOD = 17 };

static inline float suite_value(int rank, size_t i, int call)
{
    return (float)((long)((i * 7 + (size_t)rank * 13 + (size_t)call * 5) % SUITE_PERIOD) - 8);
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

static inline float suite_total(int size, size_t i, int call)
{
    float sum = 0;
    for (int r = 0; r < size; r++)
        sum += suite_value(r, i, call);
    return sum;
}

struct suite {
    struct comm *c;
    struct view x, y;   /* in host memory, y after x */
    struct buffer away; /* x and y again, if the communicator has a device */
    int call;
    float sum[SUITE_PERIOD]; /* sums of all ranks' values in the current call */
};

static inline enum sotto_status suite_init(struct suite *s, struct comm *c, size_t most)
{
    *s = (struct suite){.c = c};
    s->x.data = calloc(2 * (most + 1), 4);
    s->y.data = (float *)s->x.data + most + 1;
    return c->dev ? buffer_init(&s->away, c->dev, DTYPE_F32, 2 * (most + 1), MEMORY_OUTER)
                  : SOTTO_OK;
}

static inline void suite_free(struct suite *s)
{
    buffer_free(&s->away);
    free(s->x.data);
}

/* Returns the view of v that a call gets: on the device, if there is one. */
static inline struct view suite_at(const struct suite *s, struct view v)
{
    if (!s->away.dev)
        return v;
    const struct view to = s->away.view;
    return (struct view){(char *)to.data + ((char *)v.data - (char *)s->x.data), v.type, to.place};
}

/* Copy the vectors to the device before a call, and back after. */
static inline void suite_push(const struct suite *s, size_t count)
{
    const struct view all[] = {s->x, s->y};
    for (int i = 0; i < 2 && s->away.dev; i++)
        s->c->dev->ops->write(s->c->dev, suite_at(s, all[i]), all[i].data, count);
}

static inline void suite_pull(const struct suite *s, size_t count)
{
    const struct view all[] = {s->x, s->y};
    for (int i = 0; i < 2 && s->away.dev; i++)
        s->c->dev->ops->read(s->c->dev, all[i].data, suite_at(s, all[i]), count);
}

static inline float suite_sum(const struct suite *s, size_t i)
{
    return s->sum[i % SUITE_PERIOD];
}

static inline void suite_fill(struct suite *s, size_t count)
{
    s->call++;
    for (size_t i = 0; i < SUITE_PERIOD; i++)
        s->sum[i] = suite_total(s->c->size, i, s->call);
    for (size_t i = 0; i < count; i++) {
        suite_put(s->x, i, suite_value(s->c->rank, i, s->call));
        suite_put(s->y, i, -77);
    }
}

static inline enum sotto_status suite_allreduce(struct suite *s, size_t count, bool in_place)
{
    suite_fill(s, count);
    struct view y = in_place ? s->x : s->y;
    suite_push(s, count);
    TRY(comm_allreduce(s->c, suite_at(s, y), suite_at(s, s->x), count));
    suite_pull(s, count);
    for (size_t i = 0; i < count; i++)
        CHECK(suite_get(y, i) == suite_sum(s, i), "allreduce of %zu: [%zu] is %g", count, i,
              suite_get(y, i));
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
    suite_push(s, count);
    TRY(comm_reduce_scatter(c, suite_at(s, block), suite_at(s, s->x), count));
    suite_pull(s, count);
    for (size_t i = b.begin; i < b.end; i++)
        CHECK(suite_get(block, i - b.begin) == suite_sum(s, i),
              "reduce_scatter of %zu: [%zu] is %g", count, i, suite_get(block, i - b.begin));
    struct view whole = in_place ? s->x : s->y;
    TRY(comm_allgather(c, suite_at(s, whole), suite_at(s, block), count));
    suite_pull(s, count);
    for (size_t i = 0; i < count; i++)
        CHECK(suite_get(whole, i) == suite_sum(s, i), "allgather of %zu: [%zu] is %g", count, i,
              suite_get(whole, i));
    return SOTTO_OK;
}

static inline enum sotto_status suite_broadcast(struct suite *s, size_t count)
{
    for (int root = 0; root < s->c->size; root++) {
        suite_fill(s, count);
        suite_push(s, count);
        TRY(comm_broadcast(s->c, suite_at(s, s->x), count, root));
        suite_pull(s, count);
        for (size_t i = 0; i < count; i++)
            CHECK(suite_get(s->x, i) == suite_value(root, i, s->call),
                  "broadcast of %zu from %d: [%zu]", count, root, i);
    }
    return SOTTO_OK;
}

static inline enum sotto_status suite_received(struct suite *s, size_t count, int from, int call)
{
    TRY(comm_recv(s->c, suite_at(s, s->y), count, from));
    suite_pull(s, count);
    for (size_t i = 0; i < count; i++)
        CHECK(suite_get(s->y, i) == suite_value(from, i, call), "message of %zu: [%zu]", count, i);
    return SOTTO_OK;
}

/* Sends two messages to the right and receives two from the left, so that messages queue. The send
 * of a long message may wait for its receiver, so ranks take turns. */
static inline enum sotto_status suite_messages(struct suite *s, size_t count)
{
    struct comm *c = s->c;
    int right = (c->rank + 1) % c->size, left = (c->rank + c->size - 1) % c->size;
    if (c->size == 1)
        return SOTTO_OK;
    suite_fill(s, count);
    suite_push(s, count);
    if (count > SUITE_QUEUES && c->rank > 0)
        TRY(suite_received(s, count, left, s->call));
    TRY(comm_send(c, suite_at(s, s->x), count, right));
    if (count > SUITE_QUEUES)
        return c->rank > 0 ? SOTTO_OK : suite_received(s, count, left, s->call);
    s->call++;
    for (size_t i = 0; i < count; i++)
        suite_put(s->x, i, suite_value(c->rank, i, s->call));
    suite_push(s, count);
    TRY(comm_send(c, suite_at(s, s->x), count, right));
    TRY(suite_received(s, count, left, s->call - 1));
    return suite_received(s, count, left, s->call);
}

/* Every rank exchanges with every other rank, messages of different lengths: rank r sends r
 * elements less than there is room for. */
static inline enum sotto_status suite_exchange(struct suite *s, size_t count)
{
    struct comm *c = s->c;
    for (int far = 1; far < c->size; far++) {
        int to = (c->rank + far) % c->size, from = (c->rank + c->size - far) % c->size;
        size_t mine = count > (size_t)c->rank ? count - (size_t)c->rank : 0, came;
        size_t want = count > (size_t)from ? count - (size_t)from : 0;
        suite_fill(s, count);
        suite_push(s, count);
        TRY(comm_exchange(c, suite_at(s, s->x), mine, to, suite_at(s, s->y), count, from, &came));
        suite_pull(s, count);
        CHECK(came == want, "exchange of %zu: %zu came", want, came);
        for (size_t i = 0; i < count; i++)
            CHECK(suite_get(s->y, i) == (i < want ? suite_value(from, i, s->call) : -77),
                  "exchange of %zu: [%zu]", count, i);
    }
    return SOTTO_OK;
}

/* Returns numbers whose sum depends on the order, also after rounding to bf16: large numbers that
 * cancel remove other bits of the small ones in another order. */
static inline float suite_real(struct view v, int rank, size_t i)
{
    const size_t h = (i * 31 + (size_t)rank * 17) % 101 + i % 7 * (size_t)rank;
    const float small = 1 / (float)(1 + h % 97), large = (float)((int)(h % 3) - 1) * 0x1p20f;
    const float x = h % 4 ? small : large + small;
    return v.type == DTYPE_F32 ? x : bf16_widen(bf16_round(x));
}

static inline float suite_rounded(struct view v, float x)
{
    return v.type == DTYPE_F32 ? x : bf16_widen(bf16_round(x));
}

/* Returns element i of block b, summed in the order of comm.h. */
static inline float suite_in_order(struct view v, struct layout l, int b, size_t i)
{
    float total = 0;
    for (int k = 1; k <= l.nodes; k++) {
        const int first = (b / l.each + k) % l.nodes * l.each; /* first rank of the node */
        float sum = suite_real(v, first + (b % l.each + 1) % l.each, i);
        for (int p = 2; p <= l.each; p++)
            sum += suite_real(v, first + (b % l.each + p) % l.each, i);
        sum = l.nodes > 1 ? suite_rounded(v, sum) : sum;
        total = k == 1 ? sum : total + sum;
    }
    return suite_rounded(v, total);
}

static inline enum sotto_status suite_compare(struct suite *s, const char *call, struct view got,
                                              size_t begin, int b, size_t count)
{
    const struct comm_block block = comm_block(count, s->c->size, b);
    for (size_t i = block.begin; i < block.end; i++) {
        const float want = suite_in_order(got, s->c->layout, b, i), y = suite_get(got, i - begin);
        CHECK(y == want, "%s of %zu on %d x %d: [%zu] is %.9g, in order %.9g", call, count,
              s->c->layout.nodes, s->c->layout.each, i, y, want);
    }
    return SOTTO_OK;
}

static inline enum sotto_status suite_order(struct suite *s, size_t count, bool in_place)
{
    struct comm *c = s->c;
    const size_t begin = comm_block(count, c->size, c->rank).begin;
    const struct view y = in_place ? s->x : s->y;
    for (size_t i = 0; i < count; i++)
        suite_put(s->x, i, suite_real(s->x, c->rank, i));
    suite_push(s, count);
    TRY(comm_allreduce(c, suite_at(s, y), suite_at(s, s->x), count));
    suite_pull(s, count);
    for (int b = 0; b < c->size; b++)
        TRY(suite_compare(s, "allreduce", y, 0, b, count));
    for (size_t i = 0; i < count; i++)
        suite_put(s->x, i, suite_real(s->x, c->rank, i));
    suite_push(s, count);
    TRY(comm_reduce_scatter(c, suite_at(s, view_at(y, begin)), suite_at(s, s->x), count));
    suite_pull(s, count);
    return suite_compare(s, "reduce_scatter", view_at(y, begin), begin, c->rank, count);
}

static inline enum sotto_status suite_vectors(struct comm *c, size_t most, bool ordered)
{
    static const size_t counts[] = {0, 1, 7, 1023, 20000, SUITE_LONGEST};
    struct suite s;
    enum sotto_status st = suite_init(&s, c, most);
    for (int type = DTYPE_F32; type <= DTYPE_BF16; type++) {
        s.x.type = s.y.type = (enum dtype)type;
        for (size_t k = 0; k < sizeof counts / sizeof *counts && st == SOTTO_OK; k++) {
            size_t n = counts[k] < most ? counts[k] : most;
            for (int in_place = 0; in_place < 2 && st == SOTTO_OK; in_place++) {
                st = suite_allreduce(&s, n, in_place);
                if (st == SOTTO_OK)
                    st = suite_scatter_gather(&s, n, in_place);
                if (st == SOTTO_OK && ordered)
                    st = suite_order(&s, n < SUITE_LARGE ? n : SUITE_LARGE, in_place);
            }
            if (st == SOTTO_OK)
                st = suite_broadcast(&s, n);
            if (st == SOTTO_OK)
                st = suite_messages(&s, n);
            if (st == SOTTO_OK)
                st = suite_exchange(&s, n);
            if (st == SOTTO_OK)
                st = comm_barrier(c);
        }
    }
    suite_free(&s);
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

/* Splits into rows and columns of a mesh 2 wide, and splits these again. */
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
    struct buffer away; /* the worker's vectors on its device, if it has one */
};

static inline enum sotto_status suite_lane_job(void *arg)
{
    struct suite_lane *l = arg;
    const struct view host = view_of(l->x, DTYPE_F32), v = l->away.dev ? l->away.view : host;
    return comm_allreduce(l->c, v, v, 1000);
}

/* Opens the lane's device context, of the same kind as the worker's. Jobs of the lane begin after
 * the worker's ops. */
static inline enum sotto_status suite_lane_device(struct lane *lane, struct comm *own,
                                                  struct device *dev)
{
    struct device *before = own->dev;
    if (!before)
        return SOTTO_OK;
    TRY(device_open(dev, before->ops->name, before->memory, 1));
    lane_bind(lane, own->dev = dev, before);
    return SOTTO_OK;
}

static inline enum sotto_status suite_lanes(struct worker *w)
{
    struct suite_lane job[3] = {0};
    struct device *dev = w->world->dev, lane_dev = {0};
    struct lane *lane;
    struct comm *own;
    TRY(comm_duplicate(w->world, &own));
    TRY(w->ops->lane(w, &lane));
    TRY(suite_lane_device(lane, own, &lane_dev));
    for (int k = 0; k < 3; k++) {
        job[k].c = own;
        for (int i = 0; i < 1000; i++)
            job[k].x[i] = suite_value(w->rank, (size_t)i, k);
        if (dev) {
            TRY(buffer_init(&job[k].away, dev, DTYPE_F32, 1000, MEMORY_OUTER));
            dev->ops->write(dev, job[k].away.view, job[k].x, 1000);
        }
        TRY(lane_start(lane, suite_lane_job, &job[k]));
    }
    TRY(suite_vectors(w->world, 1023, false));
    TRY(lane_wait(lane));
    bool done;
    TRY(lane_done(lane, &done));
    CHECK(done, "a lane that was waited for is not done");
    for (int k = 0; k < 3; k++) {
        if (dev)
            dev->ops->read(dev, job[k].x, job[k].away.view, 1000);
        for (int i = 0; i < 1000; i++)
            CHECK(job[k].x[i] == suite_total(w->size, (size_t)i, k), "lane: job %d, [%d]", k, i);
        buffer_free(&job[k].away);
    }
    lane_close(lane);
    comm_free(own);
    if (dev)
        device_close(&lane_dev);
    return SOTTO_OK;
}

/* A wait for the first job of a lane: the second job ends only after this wait. */
struct suite_pair {
    struct comm *c;
    float x, marked;
};

static inline enum sotto_status suite_pair_mark(void *arg)
{
    ((struct suite_pair *)arg)->marked = 1;
    return SOTTO_OK;
}

static inline enum sotto_status suite_pair_recv(void *arg)
{
    struct suite_pair *p = arg;
    return comm_recv(p->c, view_of(&p->x, DTYPE_F32), 1, p->c->rank - 1);
}

static inline enum sotto_status suite_lane_part(struct worker *w)
{
    struct suite_pair p = {0};
    float word = 7;
    struct lane *lane;
    TRY(comm_duplicate(w->world, &p.c));
    TRY(w->ops->lane(w, &lane));
    if (w->rank % 2) {
        TRY(lane_start(lane, suite_pair_mark, &p));
        TRY(lane_start(lane, suite_pair_recv, &p));
        TRY(lane_wait_but(lane, 1));
        CHECK(p.marked == 1, "the first job was not waited for");
        TRY(comm_send(w->world, view_of(&word, DTYPE_F32), 1, w->rank - 1));
        TRY(lane_wait_but(lane, 0));
        CHECK(p.x == 7, "the second job was not waited for");
    } else if (w->rank + 1 < w->size) {
        TRY(comm_recv(w->world, view_of(&p.x, DTYPE_F32), 1, w->rank + 1));
        TRY(comm_send(p.c, view_of(&word, DTYPE_F32), 1, w->rank + 1));
    }
    lane_close(lane);
    comm_free(p.c);
    return SOTTO_OK;
}

/* Workers, their nodes, and the layout. */
struct suite_nodes {
    int workers, node[8];
    struct layout want;
};

static const struct suite_nodes suite_nodes[] = {
    {4, {0, 0, 1, 1}, {2, 2}},
    {6, {0, 0, 0, 1, 1, 1}, {2, 3}},
    {6, {0, 0, 1, 1, 2, 2}, {3, 2}},
    {8, {0, 0, 1, 1, 2, 2, 3, 3}, {4, 2}},
    {3, {0, 1, 2}, {3, 1}},
    {6, {0, 0, 0, 1, 2, 2}, {1, 6}},       /* unequal        */
    {8, {0, 1, 0, 1, 0, 1, 0, 1}, {1, 8}}, /* scattered      */
    {4, {0, 0, 0, 0}, {1, 4}},             /* one node       */
};

enum { SUITE_NODES = sizeof suite_nodes / sizeof *suite_nodes };

static inline enum sotto_status suite_on_nodes(struct worker *w, void *arg)
{
    static const size_t counts[] = {0, 1, 7, 1023, SUITE_LARGE};
    const struct suite_nodes *n = arg;
    const struct layout l = w->world->layout;
    struct suite s;
    CHECK(l.nodes == n->want.nodes && l.each == n->want.each, "ranks lie on %d x %d, not %d x %d",
          l.nodes, l.each, n->want.nodes, n->want.each);
    enum sotto_status st = suite_init(&s, w->world, SUITE_LARGE);
    for (size_t k = 0; k < 4 * sizeof counts / sizeof *counts && st == SOTTO_OK; k++) {
        s.x.type = s.y.type = k % 2 ? DTYPE_BF16 : DTYPE_F32;
        st = suite_order(&s, counts[k / 4], k / 2 % 2);
    }
    suite_free(&s);
    return st;
}

struct suite_config {
    size_t most;        /* longest vector */
    bool ordered;       /* sums have the promised order */
    const char *device; /* device of the vectors; NULL: host memory */
};

static inline enum sotto_status suite_calls(struct worker *w, const struct suite_config *config)
{
    TRY(suite_vectors(w->world, config->most, config->ordered));
    TRY(suite_small(w->world));
    TRY(suite_split(w->world, config->ordered));
    TRY(suite_lanes(w));
    return suite_lane_part(w);
}

static inline enum sotto_status suite_run(struct worker *w, void *arg)
{
    const struct suite_config *config = arg;
    struct memory memory = {0};
    struct device dev;
    if (!config->device)
        return suite_calls(w, config);
    TRY(device_open(&dev, config->device, &memory, 1));
    w->world->dev = &dev;
    enum sotto_status st = suite_calls(w, config);
    w->world->dev = NULL;
    device_close(&dev);
    if (st == SOTTO_OK)
        CHECK(memory.total == 0, "%zu bytes are left", (size_t)memory.total);
    return st;
}

#endif
