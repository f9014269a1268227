/* Receiving the first message of any sender: the suite (any.h) between threads and in virtual time,
 * the order of arrival, time limits, many senders, and the ends of waits. */
#include "base/scratch.h"
#include "comm/any.h"

#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

enum { MB = 1000000 };

typedef enum sotto_status engine(const struct engine_config *, worker_job *, void *);
static engine *const engines[] = {engine_threads, engine_virtual};

static double now(const struct worker *w)
{
    return clock_now(w->clock);
}

static enum sotto_status compute(struct worker *w, double seconds)
{
    return w->ops->compute(w, NULL, NULL, seconds);
}

static enum sotto_status take(struct worker *w, size_t count, double until, int *from)
{
    return comm_recv_any(w->world, view_none, count, NULL, until, from);
}

static void suite(void **state)
{
    (void)state;
    const struct link_model links = {.intra = {1e9, 1e-6}, .inter = {1e7, 1e-4}};
    const int node[] = {0, 0, 1, 1, 1, 2, 2, 3};
    for (int e = 0; e < 2; e++)
        for (int size = 1; size <= 8; size++) {
            struct engine_config config = {.workers = size};
            assert_ok(engines[e](&config, any_run, NULL));
            config.links = &links;
            config.node = node;
            assert_ok(engines[e](&config, any_run, NULL));
        }
}

/* An arrival that rank 0 expects. */
struct arrival {
    int from;
    double at;
};

static enum sotto_status expect(struct worker *w, const struct arrival *want, int n)
{
    for (int i = 0, from; i < n; i++) {
        TRY(take(w, MB / 4, INFINITY, &from));
        CHECK(from == want[i].from && now(w) == want[i].at,
              "message %d is rank %d's at %.17g, not rank %d's at %.17g", i, from, now(w),
              want[i].from, want[i].at);
    }
    return SOTTO_OK;
}

/* All workers on nodes of their own, ranks 1 to 4 with speeds 8, 4, 2, 1: all send 1 MB at the same
 * time, and rank 0's link is wide enough for all. Latencies are equal. Rank 1 sends once more; this
 * message arrives after rank 4's. */
static enum sotto_status unequal_links(struct worker *w, void *arg)
{
    (void)arg;
    static const struct arrival want[] = {{1, 1.125}, {2, 1.25}, {3, 1.5}, {4, 2}, {1, 2.125}};
    if (w->rank == 0)
        return expect(w, want, 5);
    TRY(comm_send(w->world, view_none, MB / 4, 0));
    if (w->rank != 1)
        return SOTTO_OK;
    TRY(compute(w, 0.875));
    return comm_send(w->world, view_none, MB / 4, 0);
}

/* Rank 1's message is sent and leaves first, but has a long latency. Rank 0 begins to wait after it
 * has left. Rank 2 is near. */
static enum sotto_status overtake(struct worker *w, void *arg)
{
    (void)arg;
    static const struct arrival want[] = {{2, 2.25}, {1, 3}};
    if (w->rank == 0)
        return expect(w, want, 2);
    TRY(compute(w, w->rank == 2 ? 2 : 0));
    return comm_send(w->world, view_none, MB / 4, 0);
}

static void earliest(void **state)
{
    (void)state;
    const double speed[] = {100, 8, 4, 2, 1};
    struct link_model links = {.inter = {MB, 1}, .speed = speed};
    struct engine_config config = {
        .workers = 5, .node = (const int[]){0, 1, 2, 3, 4}, .links = &links};
    assert_ok(engine_virtual(&config, unequal_links, NULL));
    const struct link_model near = {.intra = {4 * MB, 0}, .inter = {MB, 2}};
    config = (struct engine_config){.workers = 3, .node = (const int[]){0, 1, 0}, .links = &near};
    assert_ok(engine_virtual(&config, overtake, NULL));
}

/* All at the same time: the lower ranks send from lanes, which run after the workers. Rank 0's lane
 * waits already, or begins to wait between the others' turns. */
static enum sotto_status send_now(void *arg)
{
    return comm_send(arg, view_none, MB / 4, 0);
}

struct tie {
    struct worker *w;
    double comes;
};

static enum sotto_status expect_all(void *arg)
{
    const struct tie *t = arg;
    static const struct arrival want[] = {{1, 1}, {2, 1}, {3, 1}, {4, 1}};
    TRY(compute(t->w, t->comes));
    return expect(t->w, want, 4);
}

static enum sotto_status tie(struct worker *w, void *arg)
{
    struct tie t = {w, *(const double *)arg};
    struct lane *lane;
    TRY(w->ops->lane(w, &lane));
    enum sotto_status st = compute(w, w->rank ? 1 : 0);
    if (st == SOTTO_OK && w->rank > 2)
        st = send_now(w->world);
    else if (st == SOTTO_OK && w->rank)
        st = lane_start(lane, send_now, w->world);
    else if (st == SOTTO_OK)
        st = lane_start(lane, expect_all, &t);
    w->ops->sync_clock(w); /* the lane runs its job itself */
    if (st == SOTTO_OK)
        st = lane_wait(lane);
    lane_close(lane);
    return st;
}

/* Messages that have arrived before rank 0 looks, or arrive at the time at which it looks. */
static enum sotto_status late_tie(struct worker *w, void *arg)
{
    static const struct arrival want[] = {{1, 2}, {2, 2}, {3, 2}, {4, 2}};
    const double sent = *(const double *)arg;
    if (w->rank) {
        TRY(compute(w, w->rank == 1 && sent < 2 ? sent - 0.5 : sent));
        return send_now(w->world);
    }
    TRY(compute(w, 2));
    return expect(w, want, 4);
}

static void ties(void **state)
{
    (void)state;
    struct engine_config config = {.workers = 5};
    assert_ok(engine_virtual(&config, tie, &(double){0}));
    assert_ok(engine_virtual(&config, tie, &(double){1}));
    assert_ok(engine_virtual(&config, late_tie, &(double){1}));
    assert_ok(engine_virtual(&config, late_tie, &(double){2}));
}

/* Messages of 1 MB on a link of 1 MB/s with a latency of 1 s. The first, sent at 0, has arrived at
 * exactly 2 s and not just before; a limit in the past returns messages that have arrived. */
static enum sotto_status deadline_worker(struct worker *w, void *arg)
{
    (void)arg;
    int from;
    if (w->rank == 1) {
        TRY(comm_send(w->world, view_none, MB / 4, 0));
        TRY(comm_send(w->world, view_none, MB / 4, 0));
        return comm_send(w->world, view_none, MB / 4, 0);
    }
    const double before = nextafter(2, 0);
    TRY(take(w, MB / 4, 0.5, &from)); /* the message is still leaving */
    CHECK(from == -1 && now(w) == 0.5, "rank %d at %.17g", from, now(w));
    TRY(take(w, MB / 4, before, &from));
    CHECK(from == -1 && now(w) == before, "rank %d at %.17g", from, now(w));
    TRY(take(w, MB / 4, 2, &from));
    CHECK(from == 1 && now(w) == 2, "rank %d at %.17g", from, now(w));
    TRY(take(w, MB / 4, 0, &from)); /* the limit is in the past, and no other message has arrived */
    CHECK(from == -1 && now(w) == 2, "rank %d at %.17g", from, now(w));
    TRY(compute(w, 1));
    TRY(take(w, MB / 4, -INFINITY, &from));
    CHECK(from == 1 && now(w) == 3, "rank %d at %.17g", from, now(w));
    TRY(take(w, MB / 4, 100, &from)); /* returns when the message arrives, before the limit */
    CHECK(from == 1 && now(w) == 4, "rank %d at %.17g", from, now(w));
    return SOTTO_OK;
}

static void deadlines(void **state)
{
    (void)state;
    const struct link_model links = {.inter = {MB, 1}};
    struct engine_config config = {.workers = 2, .node = (const int[]){0, 1}, .links = &links};
    assert_ok(engine_virtual(&config, deadline_worker, NULL));
}

/* A message sent in a pause takes no time, but does not overtake earlier messages of its rank. */
static enum sotto_status pause_worker(struct worker *w, void *arg)
{
    (void)arg;
    float x = 0;
    if (w->rank == 1) {
        for (int i = 0; i < 2; i++) {
            x = (float)i;
            TRY(comm_send(w->world, view_of(&x, DTYPE_F32), 1, 0));
            w->ops->pause(w);
        }
    } else {
        for (int i = 0, from; i < 2; i++) {
            TRY(comm_recv_any(w->world, view_of(&x, DTYPE_F32), 1, NULL, INFINITY, &from));
            CHECK(x == (float)i, "message %g comes as number %d", (double)x, i);
        }
    }
    return w->ops->end_pause(w, now(w), 0);
}

static void a_pause_keeps_order(void **state)
{
    (void)state;
    const struct link_model links = {.inter = {MB, 1}};
    struct engine_config config = {.workers = 2, .node = (const int[]){0, 1}, .links = &links};
    assert_ok(engine_virtual(&config, pause_worker, NULL));
}

/* Groups of unequal speed push large vectors without data to a server in rank 0's lane, which
 * answers; the workers compute with jitter. */
enum { PUSHES = 3, SENDERS = SANITIZED ? 204 : 1024, PUSH = 7000000 };

struct history {
    struct comm *c;
    int pushes, from[PUSHES * SENDERS];
    double at[PUSHES * SENDERS];
};

static enum sotto_status keep_history(void *arg)
{
    struct history *h = arg;
    for (int i = 0; i < h->pushes; i++) {
        TRY(comm_recv_any(h->c, view_none, 4, NULL, INFINITY, &h->from[i]));
        TRY(comm_recv(h->c, view_none, PUSH, h->from[i]));
        h->at[i] = clock_now(h->c->clock);
        TRY(comm_send(h->c, view_none, 1, h->from[i]));
    }
    return SOTTO_OK;
}

static enum sotto_status push_often(struct worker *w, struct comm *c)
{
    for (int i = 0; i < PUSHES; i++) {
        w->computing = i;
        TRY(compute(w, 10));
        TRY(comm_send(c, view_none, 4, 0));
        TRY(comm_send(c, view_none, PUSH, 0));
        TRY(comm_recv(c, view_none, 1, 0));
    }
    return SOTTO_OK;
}

static enum sotto_status history_worker(struct worker *w, void *arg)
{
    struct history *h = arg;
    struct comm *c;
    struct lane *lane;
    TRY(comm_duplicate(w->world, &c));
    TRY(w->ops->lane(w, &lane));
    enum sotto_status st = SOTTO_OK;
    if (w->rank)
        st = push_often(w, c);
    h->c = w->rank ? h->c : c;
    h->pushes = PUSHES * (w->size - 1);
    if (w->rank == 0 && (st = lane_start(lane, keep_history, h)) == SOTTO_OK)
        st = lane_wait(lane);
    lane_close(lane);
    comm_free(c);
    return st;
}

/* Every run is the same; pushes arrive in the order of time, and none is lost. */
static void many_senders(void **state)
{
    (void)state;
    struct history *h[2] = {calloc(1, sizeof *h[0]), calloc(1, sizeof *h[0])};
    const struct link_model links = {.inter = {1e9, 1e-3}};
    static int node[SENDERS + 1], count[SENDERS + 1];
    static double speed[SENDERS + 1];
    for (int r = 0; r <= SENDERS; r++) {
        node[r] = r;
        speed[r] = 1.0 / (1 + r % 4);
    }
    for (int k = 0; k < 2; k++) {
        struct engine_config config = {.workers = SENDERS + 1,
                                       .node = node,
                                       .links = &links,
                                       .speed = speed,
                                       .jitter = 0.1,
                                       .cores = 1 + k};
        assert_ok(engine_virtual(&config, history_worker, h[k]));
    }
    assert_memory_equal(h[0]->from, h[1]->from, sizeof h[0]->from);
    assert_memory_equal(h[0]->at, h[1]->at, sizeof h[0]->at);
    for (int i = 0; i < PUSHES * SENDERS; i++) {
        count[h[0]->from[i]]++;
        assert_true(i == 0 || h[0]->at[i] > h[0]->at[i - 1]);
    }
    for (int r = 1; r <= SENDERS; r++)
        assert_int_equal(count[r], PUSHES);
    free(h[0]);
    free(h[1]);
}

/* Modelled links between threads: rank 1's message of a second starts first, rank 2's small message
 * when the first has left. */
static enum sotto_status shaped_worker(struct worker *w, void *arg)
{
    atomic_bool *under_way = arg;
    static float x[250000];
    float y[1];
    int from;
    if (w->rank == 1) {
        atomic_store(under_way, true);
        return comm_send(w->world, view_of(x, DTYPE_F32), 250000, 0);
    }
    if (w->rank == 2) {
        while (!atomic_load(under_way))
            nanosleep(&(struct timespec){0, 100000}, NULL);
        nanosleep(&(struct timespec){0, 50000000}, NULL);
        return comm_send(w->world, view_of(y, DTYPE_F32), 1, 0);
    }
    TRY(comm_recv_any(w->world, view_of(y, DTYPE_F32), 1, NULL, INFINITY, &from));
    CHECK(from == 2, "rank %d's is taken first", from);
    const double begin = now(w);
    TRY(comm_recv_any(w->world, view_of(x, DTYPE_F32), 250000, NULL, begin + 0.01, &from));
    CHECK(from == -1, "rank %d's has come in time", from);
    TRY(comm_recv_any(w->world, view_of(x, DTYPE_F32), 250000, NULL, INFINITY, &from));
    CHECK(from == 1, "rank %d's is taken last", from);
    return SOTTO_OK;
}

static void links_between_threads(void **state)
{
    (void)state;
    const double speed[] = {100, 1, 100};
    const struct link_model links = {.inter = {MB, 0}, .speed = speed};
    struct engine_config config = {.workers = 3, .node = (const int[]){0, 1, 2}, .links = &links};
    atomic_bool under_way = false;
    assert_ok(engine_threads(&config, shaped_worker, &under_way));
}

enum ending { FAILS, ENDS, FREES, ENDS_LATER, ENDINGS };

/* Rank 0 waits for the other ranks in its lane while it computes; `how` is the way in which they
 * end. */
struct wait {
    struct comm *c;
    double until;
};

static enum sotto_status wait_in_lane(void *arg)
{
    const struct wait *a = arg;
    int from;
    for (;;)
        TRY(comm_recv_any(a->c, view_none, 0, NULL, a->until, &from));
}

static enum sotto_status ending_worker(struct worker *w, void *arg)
{
    const enum ending how = *(const enum ending *)arg;
    struct wait a = {.until = how == ENDS_LATER ? now(w) + 1e6 : INFINITY};
    struct lane *lane;
    TRY(comm_duplicate(w->world, &a.c));
    TRY(w->ops->lane(w, &lane));
    enum sotto_status st = SOTTO_OK;
    struct comm *c = a.c;
    if (how == ENDS) /* ends the world's communicator */
        a.c = w->world;
    if (w->rank == 0 && (st = lane_start(lane, wait_in_lane, &a)) == SOTTO_OK)
        st = lane_wait(lane);
    else if (w->rank && (st = comm_send(a.c, view_none, 0, 0)) == SOTTO_OK && how == FAILS)
        st = w->rank == 2 ? fail(SOTTO_EIO, "the disk is gone")
                          : comm_recv(w->world, view_none, 1, 0);
    lane_close(lane);
    comm_free(c);
    return st;
}

static void ends(void **state)
{
    (void)state;
    struct engine_config config = {.workers = 4};
    alarm(300); /* a wait without end fails the test */
    for (int e = 0; e < 2; e++)
        for (int i = 0; i < ENDINGS; i++) {
            enum ending how = (enum ending)i;
            assert_fails(engines[e](&config, ending_worker, &how),
                         how == FAILS ? SOTTO_EIO : SOTTO_EPEER,
                         how == FAILS ? "worker 2: the disk is gone"
                                      : "worker 0: rank 0 waits for a message, but all ranks "
                                        "that could send it have ended");
        }
    alarm(0);
}

static enum sotto_status differ(struct worker *w, void *arg)
{
    float x[5] = {0};
    int from;
    (void)arg;
    if (w->rank)
        return comm_send(w->world, view_of(x, DTYPE_F32), 5, 0);
    return comm_recv_any(w->world, view_of(x, DTYPE_F32), 4, NULL, INFINITY, &from);
}

/* A recv from a rank that has ended: returns an error, and does not wait. */
static enum sotto_status wait_for_one(struct worker *w, void *arg)
{
    (void)arg;
    return w->rank ? SOTTO_OK : comm_recv(w->world, view_none, 1, 1);
}

static void mistakes(void **state)
{
    (void)state;
    struct engine_config config = {.workers = 2};
    for (int e = 0; e < 2; e++)
        assert_fails(engines[e](&config, differ, NULL), SOTTO_EPEER,
                     "worker 0: rank 0 expects 16 bytes from rank 1, which sent 20");
    alarm(300);
    assert_fails(engine_threads(&config, wait_for_one, NULL), SOTTO_EPEER,
                 "rank 0 waits for a message from rank 1, which has ended");
    alarm(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(suite),
        cmocka_unit_test(earliest),
        cmocka_unit_test(ties),
        cmocka_unit_test(deadlines),
        cmocka_unit_test(a_pause_keeps_order),
        cmocka_unit_test(many_senders),
        cmocka_unit_test(links_between_threads),
        cmocka_unit_test(ends),
        cmocka_unit_test(mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
