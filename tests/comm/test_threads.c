/* Workers as threads: the suite, faults, links in real time, and many worlds. */
#include "base/scratch.h"
#include "base/log.h"
#include "comm/threads/stall_warning.h"
#include "comm/suite.h"
#include "comm/threads/threads.h"

#include <math.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

static void suite(void **state)
{
    (void)state;
    for (int size = 1; size <= 8; size++) {
        struct engine_config config = {.workers = size};
        struct suite_config how = {.most = suite_longest(size), .ordered = true};
        assert_ok(engine_threads(&config, suite_run, &how));
    }
}

static void on_nodes(void **state)
{
    (void)state;
    for (int i = 0; i < SUITE_NODES; i++) {
        struct suite_nodes n = suite_nodes[i];
        struct engine_config config = {.workers = n.workers, .node = n.node};
        assert_ok(engine_threads(&config, suite_on_nodes, &n));
    }
}

static enum sotto_status fail_in_call(struct worker *w, void *arg)
{
    int culprit = *(int *)arg;
    if (w->rank == culprit)
        return fail(SOTTO_ENUMERIC, "the loss is no number");
    for (;;) { /* other workers are inside calls */
        float x[64] = {0};
        struct view v = view_of(x, DTYPE_F32);
        TRY(comm_allreduce(w->world, v, v, 64));
    }
}

static enum sotto_status fail_in_recv(struct worker *w, void *arg)
{
    float x;
    if (w->rank == *(int *)arg)
        return fail(SOTTO_EIO, "the disk is gone");
    return comm_recv(w->world, view_of(&x, DTYPE_F32), 1, *(int *)arg);
}

static enum sotto_status failing_job(void *arg)
{
    (void)arg;
    return fail(SOTTO_EIO, "a lane's own trouble");
}

static enum sotto_status fail_in_lane(struct worker *w, void *arg)
{
    if (w->rank != *(int *)arg)
        return comm_barrier(w->world);
    struct lane *lane;
    TRY(w->ops->lane(w, &lane));
    TRY(lane_start(lane, failing_job, NULL));
    enum sotto_status st = lane_wait(lane);
    bool done;
    if (st != SOTTO_EIO || lane_done(lane, &done) != SOTTO_EIO || !done ||
        lane_start(lane, failing_job, NULL) != SOTTO_EIO)
        st = fail(SOTTO_EINVAL, "the lane forgot its failure");
    lane_close(lane);
    return st;
}

/* A worker that fails ends the run at once, with its message and its rank. */
static void faults(void **state)
{
    (void)state;
    for (int size = 2; size <= 4; size++) {
        for (int culprit = 0; culprit < size; culprit++) {
            struct engine_config config = {.workers = size};
            char who[32];
            snprintf(who, sizeof who, "worker %d: ", culprit);
            assert_fails(engine_threads(&config, fail_in_call, &culprit), SOTTO_ENUMERIC, who);
            assert_fails(engine_threads(&config, fail_in_call, &culprit), SOTTO_ENUMERIC,
                         "no number");
            assert_fails(engine_threads(&config, fail_in_recv, &culprit), SOTTO_EIO,
                         "the disk is gone");
            assert_fails(engine_threads(&config, fail_in_lane, &culprit), SOTTO_EIO, "own trouble");
        }
    }
}

static enum sotto_status meet_too_late(struct worker *w, void *arg)
{
    atomic_bool *gave_up = arg;
    if (w->rank == 0) {
        enum sotto_status st = comm_barrier(w->world);
        atomic_store(gave_up, true);
        return st;
    }
    struct status_note note;
    status_save(&note, fail(SOTTO_EIO, "enough"));
    w->world->ops->abort(w->world, &note);
    while (!atomic_load(gave_up))
        nanosleep(&(struct timespec){0, 100000}, NULL);
    return comm_barrier(w->world);
}

/* A rank that gave up a meeting does not count as arrived: otherwise the next meeting would wait
 * for an end of the call that the rank never reaches. */
static void gave_up_is_gone(void **state)
{
    (void)state;
    atomic_bool gave_up = false;
    struct engine_config config = {.workers = 2};
    alarm(60); /* a wait without end fails the test */
    assert_fails(engine_threads(&config, meet_too_late, &gave_up), SOTTO_EIO, "worker 1: enough");
    alarm(0);
}

static enum sotto_status differ(struct worker *w, void *arg)
{
    float x[8] = {0};
    struct view v = view_of(x, DTYPE_F32);
    switch (*(int *)arg) {
    case 0:
        return comm_allreduce(w->world, v, v, w->rank ? 8 : 7);
    case 1:
        return w->rank ? comm_barrier(w->world) : comm_broadcast(w->world, v, 8, 0);
    case 2:
        return comm_broadcast(w->world, v, 8, w->rank);
    case 3:
        return w->rank ? comm_recv(w->world, v, 4, 0) : comm_send(w->world, v, 5, 1);
    default:
        return comm_agree(w->world, "the configuration",
                          w->rank ? "lr = 1\nseed = 3\n" : "lr = 1\nseed = 2\n");
    }
}

static void mismatches(void **state)
{
    (void)state;
    static const char *const message[] = {
        "allreduce of 8 elements", "broadcast of 32 elements", "different calls",
        "expects 16 bytes from rank 0, which sent 20",
        "the configuration differs: rank 1 has 'seed = 3', rank 0 has 'seed = 2'"};
    for (int k = 0; k < 5; k++) {
        struct engine_config config = {.workers = 2};
        assert_fails(engine_threads(&config, differ, &k), SOTTO_EPEER, message[k]);
    }
}

struct timing {
    double seconds[4];
    double begin[4], end[4];
};

static enum sotto_status time_ring(struct worker *w, void *arg)
{
    struct timing *t = arg;
    static float x[4][100000];
    struct view v = view_of(x[w->rank], DTYPE_F32);
    TRY(comm_barrier(w->world));
    double begin = clock_now(w->clock);
    TRY(comm_allreduce(w->world, v, v, 100000));
    t->seconds[w->rank] = clock_now(w->clock) - begin;
    return SOTTO_OK;
}

/* With links a call takes at least the time of the links: here the two workers of a node share its
 * adapter, each for a quarter of the vector in the sum, and again in the gather. */
static void links(void **state)
{
    (void)state;
    struct link_model model = {.adapters = 1};
    assert_ok(link_parse(&model.intra, "1GB/s,10us"));
    assert_ok(link_parse(&model.inter, "80Mbit/s,1ms"));
    const int node[4] = {0, 0, 1, 1};
    struct engine_config config = {.workers = 4, .node = node, .links = &model};
    struct timing t;
    assert_ok(engine_threads(&config, time_ring, &t));
    double want = 2 * (2 * 100000 / 10e6 + 1e-3);
    for (int r = 0; r < 4; r++)
        assert_true(t.seconds[r] > 0.99 * want);
}

/* Two pairs across nodes with one adapter each: together they take the time of both in sequence. */
static enum sotto_status time_pairs(struct worker *w, void *arg)
{
    struct timing *t = arg;
    static float x[4][25000];
    struct view v = view_of(x[w->rank], DTYPE_F32);
    const int other = (w->rank + 2) % 4;
    t->begin[w->rank] = clock_now(w->clock);
    if (w->rank < 2)
        TRY(comm_send(w->world, v, 25000, other));
    else
        TRY(comm_recv(w->world, v, 25000, other));
    t->end[w->rank] = clock_now(w->clock);
    return SOTTO_OK;
}

static void shared_links(void **state)
{
    (void)state;
    const struct link_model model = {.intra = {1e9, 0}, .inter = {10e6, 0}, .adapters = 1};
    const int node[4] = {0, 0, 1, 1};
    struct engine_config config = {.workers = 4, .node = node, .links = &model};
    struct timing t;
    assert_ok(engine_threads(&config, time_pairs, &t));
    const double begin = fmin(fmin(t.begin[0], t.begin[1]), fmin(t.begin[2], t.begin[3]));
    const double end = fmax(fmax(t.end[0], t.end[1]), fmax(t.end[2], t.end[3]));
    assert_true(end - begin > 0.99 * 2 * 100000 / 10e6);
}

static void parse_links(void **state)
{
    (void)state;
    struct link l;
    assert_ok(link_parse(&l, "100Mbit/s,5ms"));
    assert_true(fabs(l.bandwidth - 12.5e6) < 1 && fabs(l.latency - 5e-3) < 1e-12);
    assert_ok(link_parse(&l, "25GB/s,2us"));
    assert_true(fabs(l.bandwidth - 25e9) < 1 && fabs(l.latency - 2e-6) < 1e-15);
    assert_ok(link_parse(&l, "none"));
    assert_true(l.bandwidth == 0 && l.latency == 0);
    static const struct {
        const char *text;
        double bandwidth, latency;
    } units[] = {
        {"1B/s", 1, 0},           {"1e6GB/s,1000s", 1e15, 1000}, {"1e6GB/s", 1e15, 0},
        {"3kB/s,7s", 3e3, 7},     {"3MB/s,7ms", 3e6, 7e-3},      {"3GB/s,7us", 3e9, 7e-6},
        {"32bit/s,7ns", 4, 7e-9}, {"3kbit/s", 375, 0},           {"3Mbit/s", 375e3, 0},
        {"3Gbit/s", 375e6, 0},
    };
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        double rate;
        assert_ok(link_parse(&l, units[i].text));
        assert_true(fabs(l.bandwidth / units[i].bandwidth - 1) < 1e-12);
        assert_true(fabs(l.latency - units[i].latency) <= 1e-12 * units[i].latency);
        if (l.latency == 0) {
            assert_ok(link_parse_rate(&rate, units[i].text));
            assert_true(rate == l.bandwidth);
        }
    }
    static const char *const wrong[] = {"fast",        "100",         "100Mbit",    "0B/s",
                                        "1GB/s,",      "1GB/s,2",     "-1GB/s,2us", "1GB/s,2us,3",
                                        "1e300B/s,1s", "1B/s,1e300s", "1e-9B/s"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(link_parse(&l, wrong[i]), SOTTO_EINVAL, wrong[i]);
}

/* On 2 x 2 ranks. A large vector of B bytes, reduced: B/2 to the other place, B/4 to the other
 * node; gathered: the same again. A small vector is sent one rank back, then two. */
static enum sotto_status count_bytes(struct worker *w, void *arg)
{
    (void)arg;
    static float x[4][20000];
    struct view v = view_of(x[w->rank], DTYPE_F32);
    const struct comm_stats *all = &w->world->stats[COMM_ALLREDUCE],
                            *gather = &w->world->stats[COMM_ALLGATHER];
    TRY(comm_allreduce(w->world, v, v, 20000));
    TRY(comm_allgather(w->world, v, view_at(v, comm_block(20000, 4, w->rank).begin), 20000));
    CHECK(all->calls == 1 && all->inside == 80000 && all->between == 40000,
          "allreduce counted %lld inside, %lld between", (long long)all->inside,
          (long long)all->between);
    CHECK(gather->inside == 40000 && gather->between == 20000, "allgather counted %lld, %lld",
          (long long)gather->inside, (long long)gather->between);
    TRY(comm_allreduce(w->world, v, v, 1000));
    TRY(comm_allgather(w->world, v, view_at(v, comm_block(1000, 4, w->rank).begin), 1000));
    const int64_t near = w->rank % 2; /* the rank before is on this node */
    CHECK(all->inside == 80000 + 4000 * near && all->between == 40000 + 12000 - 4000 * near,
          "a small allreduce counted %lld, %lld", (long long)all->inside - 80000,
          (long long)all->between - 40000);
    CHECK(gather->inside == 40000 + 1000 * near && gather->between == 20000 + 3000 - 1000 * near,
          "a small allgather counted %lld, %lld", (long long)gather->inside - 40000,
          (long long)gather->between - 20000);
    return SOTTO_OK;
}

/* Every rank but the root receives from one other: small vectors down a tree, here from rank 1 to 3
 * and then from both to 2 and 0; large vectors along the ring. */
static enum sotto_status count_broadcast(struct worker *w, void *arg)
{
    static const int64_t inside[2][4] = {{0, 0, 0, 0}, {0, 0, 80000, 0}};
    static const int64_t between[2][4] = {{0, 800, 0, 400}, {0, 80000, 0, 80000}};
    static float x[4][20000];
    const struct comm_stats *t = &w->world->stats[COMM_BROADCAST];
    int64_t before[2] = {0, 0};
    (void)arg;
    for (int large = 0; large < 2; large++) {
        TRY(comm_broadcast(w->world, view_of(x[w->rank], DTYPE_F32), large ? 20000 : 100, 1));
        CHECK(t->inside - before[0] == inside[large][w->rank] &&
                  t->between - before[1] == between[large][w->rank],
              "broadcast counted %lld, %lld", (long long)(t->inside - before[0]),
              (long long)(t->between - before[1]));
        before[0] = t->inside;
        before[1] = t->between;
    }
    return SOTTO_OK;
}

static void accounting(void **state)
{
    (void)state;
    const int node[4] = {0, 0, 1, 1};
    struct engine_config config = {.workers = 4, .node = node};
    assert_ok(engine_threads(&config, count_bytes, NULL));
    assert_ok(engine_threads(&config, count_broadcast, NULL));
}

static enum sotto_status one_sum(struct worker *w, void *arg)
{
    (void)arg;
    return suite_small(w->world);
}

static void thousand_worlds(void **state)
{
    (void)state;
    for (int i = 0; i < 1000; i++) {
        struct engine_config config = {.workers = 1 + i % 5};
        assert_ok(engine_threads(&config, one_sum, NULL));
    }
}

static char heard[1000];
static atomic_int lines;

/* Keeps and counts the log lines with this beginning: on a busy machine any rank may be late. */
static void hear(enum log_level level, const char *line, void *arg)
{
    (void)level;
    if (strncmp(line, arg, strlen(arg)) != 0)
        return;
    snprintf(heard, sizeof heard, "%s", line);
    atomic_fetch_add(&lines, 1);
}

/* Worker 3 arrives when `lines` lines have been logged, or after 20 s; at least 0.1 s after the
 * others. */
static enum sotto_status come_late(struct worker *w, void *arg)
{
    const int want = *(int *)arg;
    struct comm *pair;
    double x = 1;
    TRY(comm_split(w->world, w->rank % 2, &pair));
    for (int i = 0; w->rank == 3 && i < 2000 && (i < 10 || lines < want); i++)
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    TRY(comm_sum(pair, &x, 1));
    comm_free(pair);
    return SOTTO_OK;
}

/* Rank 3 is late for a call with rank 1, as rank 0 of two; ranks 0 and 2 do not wait. A warning
 * names rank 3 after the patience, and again after twice and four times this wait. */
static void late_ranks_are_named(void **state)
{
    (void)state;
    struct engine_config config = {.workers = 4, .patience = 0.2};
    int want = 3;
    log_set(hear, "rank 3 has kept the others waiting for ");
    atomic_store(&lines, 0);
    assert_ok(engine_threads(&config, come_late, &want));
    assert_int_equal(lines, 3);
    config.patience = want = 0; /* default: a minute */
    atomic_store(&lines, 0);
    assert_ok(engine_threads(&config, come_late, &want));
    log_set(NULL, NULL);
    assert_int_equal(lines, 0);
}

/* A wait is reported once, by one rank; an equally long wait is not reported again, and a wait of
 * twice the length is. */
static void stall_warnings(void **state)
{
    (void)state;
    struct stall_watch a = {.patience = 10};
    struct stalled_ranks none = {0}, who = {0};
    log_set(hear, "");
    atomic_store(&lines, 0);
    for (int i = 0; i < 10; i++)
        stall_add_rank(&who, 3 * i);
    assert_string_equal(who.text, "0, 3, 6, 9, 12, 15, 18, 21, ...");
    assert_int_equal(who.count, 10);
    static const struct {
        double waited;
        int lines;
        double limit;
    } steps[] = {{9.9, 0, 10}, {10, 1, 20}, {10.1, 1, 20}, {19.9, 1, 20}, {21, 2, 42}, {41, 2, 42}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        stall_warn(&a, &none, 1000);
        stall_warn(&a, &who, steps[i].waited);
        assert_int_equal(lines, steps[i].lines);
        assert_true(stall_limit(&a) == steps[i].limit);
    }
    log_set(NULL, NULL);
    assert_non_null(strstr(heard, "ranks 0, 3, 6, 9, 12, 15, 18, 21, ... have kept the others "
                                  "waiting for 21 s: "));
}

/* Refused before memory is allocated, which grows with the square of the size. */
static void too_many(void **state)
{
    (void)state;
    struct engine_config config = {.workers = THREADS_MOST + 1};
    assert_fails(engine_threads(&config, one_sum, NULL), SOTTO_EINVAL,
                 "1025 workers are more than this process can run as threads, at most 1024");
}

enum { LONG = 1 << 18 }; /* elements */

/* A long message stays in the sender's memory until it is received: no copy is made. */
static enum sotto_status send_long(struct worker *w, void *arg)
{
    atomic_bool *sent = arg;
    static float x[2][LONG];
    struct view v = view_of(x[w->rank], DTYPE_F32);
    x[w->rank][LONG - 1] = 1 + (float)w->rank;
    if (w->rank == 0) {
        TRY(comm_send(w->world, v, LONG, 1));
        atomic_store(sent, true);
        return SOTTO_OK;
    }
    nanosleep(&(struct timespec){0, 20000000},
              NULL); /* enough time for a sender that would not wait */
    if (atomic_load(sent))
        return fail(SOTTO_EINVAL, "it was sent before it was received");
    TRY(comm_recv(w->world, v, LONG, 0));
    return x[1][LONG - 1] == 1 ? SOTTO_OK : fail(SOTTO_EINVAL, "it came as %g", x[1][LONG - 1]);
}

/* Rank 1 receives nothing: it has ended, or failed. */
static enum sotto_status send_to_nobody(struct worker *w, void *arg)
{
    static float x[2 * LONG];
    size_t came;
    const int how = *(int *)arg;
    if (w->rank)
        return how == 2 ? fail(SOTTO_EIO, "the disk is gone") : SOTTO_OK;
    if (how == 1)
        return comm_exchange(w->world, view_of(x, DTYPE_F32), LONG, 1, view_of(x + LONG, DTYPE_F32),
                             LONG, 1, &came);
    return comm_send(w->world, view_of(x, DTYPE_F32), LONG, 1);
}

static void long_messages(void **state)
{
    (void)state;
    struct engine_config config = {.workers = 2};
    atomic_bool sent = false;
    assert_ok(engine_threads(&config, send_long, &sent));
    assert_ok(engine_threads(&config, send_to_nobody, &(int){0}));
    assert_fails(engine_threads(&config, send_to_nobody, &(int){1}), SOTTO_EPEER, "has ended");
    assert_fails(engine_threads(&config, send_to_nobody, &(int){2}), SOTTO_EIO, "disk is gone");
}

static enum sotto_status sleep_50ms(void *stream, const struct view *v, const void *arg)
{
    (void)stream, (void)v, (void)arg;
    nanosleep(&(struct timespec){0, 50000000}, NULL);
    return SOTTO_OK;
}

/* The device still computes when the call is made: the vector starts on the link when it is
 * complete. */
static enum sotto_status reduce_late(struct worker *w, void *arg)
{
    enum { COUNT = 100000 }; /* 400 kB: 40 ms */
    struct memory memory = {0};
    struct device dev;
    struct buffer x;
    double *took = arg;
    TRY(device_open(&dev, "apart", &memory, 1));
    TRY(buffer_init(&x, &dev, DTYPE_F32, COUNT, MEMORY_OUTER));
    TRY(comm_barrier(w->world));
    w->world->dev = &dev;
    const double begin = clock_now(w->clock);
    dev.ops->call(&dev, sleep_50ms, NULL, 0, NULL, 0);
    TRY(comm_allreduce(w->world, x.view, x.view, COUNT));
    took[w->rank] = clock_now(w->clock) - begin;
    w->world->dev = NULL;
    buffer_free(&x);
    device_close(&dev);
    return SOTTO_OK;
}

static void links_wait_for_devices(void **state)
{
    (void)state;
    const struct link_model links = {.inter = {1e7, 0}};
    const struct engine_config config = {
        .workers = 2, .node = (const int[]){0, 1}, .links = &links};
    double took[2];
    assert_ok(engine_threads(&config, reduce_late, took));
    assert_true(took[0] > 0.089 && took[1] > 0.089);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(suite),
        cmocka_unit_test(on_nodes),
        cmocka_unit_test(faults),
        cmocka_unit_test(gave_up_is_gone),
        cmocka_unit_test(mismatches),
        cmocka_unit_test(links),
        cmocka_unit_test(shared_links),
        cmocka_unit_test(parse_links),
        cmocka_unit_test(accounting),
        cmocka_unit_test(thousand_worlds),
        cmocka_unit_test(too_many),
        cmocka_unit_test(late_ranks_are_named),
        cmocka_unit_test(stall_warnings),
        cmocka_unit_test(long_messages),
        cmocka_unit_test(links_wait_for_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
