/* The ring over messages between threads: the bits of the threads' own sums, and the bytes of the
 * front's counts, for every type, count and layout. */

#include "base/scratch.h"

#include "comm/ring.h"
#include "comm/suite.h"

enum { MOST = 8, MOST_COUNT = 20000 }; /* ranks; elements, not small with two ranks in bf16 */
enum { UNTOUCHED = -96 };

/* One rank's ring, and the bytes sent to each other rank. */
struct traced {
    struct comm *c;
    struct {
        void *data;
        size_t bytes;
        int from;
    } coming[RING_SLOTS];
    int64_t inside, between;
    void *scratch;
};

static struct traced *trace[MOST]; /* by rank */

static enum sotto_status start_send(struct comm *c, int slot, const void *data, size_t bytes,
                                    int to)
{
    struct traced *t = trace[c->rank];
    (void)slot;
    if (c->node[to] == c->node[c->rank])
        t->inside += (int64_t)bytes;
    else
        t->between += (int64_t)bytes;
    return c->ops->send(c, data, bytes, to);
}

static enum sotto_status start_recv(struct comm *c, int slot, void *data, size_t bytes, int from)
{
    struct traced *t = trace[c->rank];
    t->coming[slot].data = data;
    t->coming[slot].bytes = bytes;
    t->coming[slot].from = from;
    return SOTTO_OK;
}

static enum sotto_status wait_send(struct comm *c, int slot)
{
    (void)c, (void)slot;
    return SOTTO_OK;
}

static enum sotto_status wait_recv(struct comm *c, int slot)
{
    struct traced *t = trace[c->rank];
    size_t came, room = t->coming[slot].bytes;
    TRY(c->ops->recv(c, t->coming[slot].data, room, t->coming[slot].from, &came));
    return came == room ? SOTTO_OK : comm_wrong_length(c, room, came, t->coming[slot].from);
}

static void drop(struct comm *c)
{
    (void)c;
}

static void *borrow(struct comm *c, size_t bytes)
{
    struct traced *t = trace[c->rank];
    free(t->scratch);
    return t->scratch = malloc(bytes + 1);
}

static const struct ring_ops transport = {start_send, start_recv, wait_send,
                                          wait_recv,  drop,       borrow};

static enum sotto_status compare(struct traced *t, enum comm_call call, struct view y,
                                 struct view want, size_t count)
{
    struct comm_stats *booked = &t->c->stats[call];
    CHECK(
        t->inside == booked->inside && t->between == booked->between,
        "%s of %zu elements of %zu bytes, rank %d of %d: sent %lld and %lld, booked %lld and %lld",
        comm_call_name(call), count, dtype_size(y.type), t->c->rank, t->c->size,
        (long long)t->inside, (long long)t->between, (long long)booked->inside,
        (long long)booked->between);
    CHECK(memcmp(y.data, want.data, count * dtype_size(y.type)) == 0, "%s of %zu: other bits",
          comm_call_name(call), count);
    t->inside = t->between = 0;
    booked->inside = 0;
    booked->between = 0;
    return SOTTO_OK;
}

static enum sotto_status calls(struct traced *t, enum dtype type, size_t count)
{
    static float room[MOST][3][MOST_COUNT + 1];
    struct comm *c = t->c;
    const struct ring ring = {&transport, c, 1 << 10}; /* several pieces per block */
    struct view x = view_of(room[c->rank][0], type), y = view_of(room[c->rank][1], type),
                want = view_of(room[c->rank][2], type);
    struct comm_block b = comm_block(count, c->size, c->rank);
    const size_t beyond = b.end - b.begin;
    for (size_t i = 0; i < count; i++)
        suite_put(x, i, suite_real(x, c->rank, i));
    suite_put(y, beyond, UNTOUCHED);
    TRY(comm_reduce_scatter(c, want, x, count));
    TRY(ring_reduce_scatter(&ring, y, x, count));
    TRY(compare(t, COMM_REDUCE_SCATTER, y, want, beyond));
    CHECK(suite_get(y, beyond) == UNTOUCHED, "an element behind rank %d's block of %zu elements",
          c->rank, count);
    TRY(comm_allreduce(c, want, x, count));
    TRY(ring_allreduce(&ring, y, x, count));
    TRY(compare(t, COMM_ALLREDUCE, y, want, count));
    TRY(comm_allgather(c, want, view_at(x, b.begin), count));
    TRY(ring_allgather(&ring, y.data, view_at(x, b.begin).data, count, dtype_size(type)));
    return compare(t, COMM_ALLGATHER, y, want, count);
}

static enum sotto_status ring_of_threads(struct worker *w, void *arg)
{
    static const size_t counts[] = {0, 1, 7, 1023, 9001, MOST_COUNT - 1};
    struct traced mine = {.c = w->world};
    enum sotto_status st = SOTTO_OK;
    (void)arg;
    trace[w->rank] = &mine;
    for (int i = 0; i < 12 && st == SOTTO_OK; i++)
        st = calls(&mine, i % 2 ? DTYPE_BF16 : DTYPE_F32, counts[i / 2]);
    free(mine.scratch);
    return st;
}

static void bytes_and_bits(void **state)
{
    (void)state;
    static const int nodes[][MOST] = {{0},
                                      {0, 0, 1, 1, 2, 2, 3, 3},
                                      {0, 0, 0, 1, 1, 1, 2, 2},
                                      {0, 0, 0, 0, 1, 1, 1, 1},
                                      {0, 1, 2, 3, 4, 5, 6, 7},
                                      {0, 1, 0, 1, 0, 1, 0, 1}};
    enum { PLANS = sizeof nodes / sizeof *nodes };
    EACH_SHARED(i, SANITIZED && share_given() ? share_step(5) : 1, (MOST - 1) * PLANS) {
        struct engine_config config = {.workers = 2 + i / PLANS, .node = nodes[i % PLANS]};
        assert_ok(engine_threads(&config, ring_of_threads, NULL));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bytes_and_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
