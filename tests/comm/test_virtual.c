/* Workers in virtual time: the suite, the times of the model, overlap, faults, and equal runs.
 * Workers run on stacks of their own, so they return a status and assert nothing. */
#include "base/scratch.h"
#include "comm/formula.h"
#include "comm/suite.h"

#include <math.h>
#include <stdatomic.h>
#include <time.h>

enum { MB = 1000000 };

static double now(const struct worker *w)
{
    return clock_now(w->clock);
}

static enum sotto_status compute(struct worker *w, double seconds)
{
    return w->ops->compute(w, NULL, NULL, seconds);
}

static void suite(void **state)
{
    (void)state;
    const struct link_model links = {.intra = {1e9, 1e-6}, .inter = {1e7, 1e-3}};
    const int node[] = {0, 0, 1, 1, 1, 2, 2, 3};
    for (int size = 1; size <= 8; size++) {
        struct engine_config config = {.workers = size};
        struct suite_config how = {.most = suite_longest(size), .ordered = true};
        assert_ok(engine_virtual(&config, suite_run, &how));
        config.links = &links;
        config.node = node;
        how.most = 1023;
        assert_ok(engine_virtual(&config, suite_run, &how));
    }
}

static void on_nodes(void **state)
{
    (void)state;
    for (int i = 0; i < SUITE_NODES; i++) {
        struct suite_nodes n = suite_nodes[i];
        struct engine_config config = {.workers = n.workers, .node = n.node};
        assert_ok(engine_virtual(&config, suite_on_nodes, &n));
    }
}

/* The times of the model. Every collective begins when its last rank arrives, here `late` seconds
 * after the others. */
struct costs {
    double bytes, late;
    struct formula formula;
};

static enum sotto_status measure(struct worker *w, void *arg)
{
    const struct costs *k = arg;
    const struct formula *f = &k->formula;
    size_t count = (size_t)(k->bytes / 4);
    double n = w->size, turn = formula_turn(f, k->bytes), at = 0;
    TRY(compute(w, w->rank == w->size / 2 ? k->late : 0));
    at += k->late + 2 * turn;
    TRY(comm_allreduce(w->world, view_none, view_none, count));
    CHECK(near(now(w), at), "allreduce of %d ends at %.15g, not %.15g", w->size, now(w), at);
    TRY(comm_reduce_scatter(w->world, view_none, view_none, count));
    at += turn;
    CHECK(near(now(w), at), "reduce_scatter ends at %.15g, not %.15g", now(w), at);
    TRY(comm_allgather(w->world, view_none, view_none, count));
    at += turn;
    CHECK(near(now(w), at), "allgather ends at %.15g, not %.15g", now(w), at);
    TRY(comm_broadcast(w->world, view_none, count, w->size - 1)); /* along all hops but one */
    const int crossings = f->each == 1 || f->nodes == 1 ? f->nodes - 1 : f->nodes;
    at += (formula_slower(f, k->bytes) - formula_slower(f, 0)) + crossings * f->inter.latency +
          (n - 1 - crossings) * f->intra.latency;
    CHECK(near(now(w), at), "broadcast ends at %.15g, not %.15g", now(w), at);
    TRY(comm_barrier(w->world));
    at += ceil(log2(n)) * formula_slower(f, 0);
    CHECK(near(now(w), at), "barrier ends at %.15g, not %.15g", now(w), at);
    const struct comm_stats *t = &w->world->stats[COMM_ALLREDUCE];
    double took = 2 * turn + (w->rank == w->size / 2 ? 0 : k->late);
    CHECK(near(t->seconds, took), "the stats have %.15g s, not %.15g", t->seconds, took);
    double numbers[3] = {0};
    at = now(w);
    TRY(comm_sum(w->world, numbers, 3));
    at += formula_rounds(f, sizeof numbers);
    CHECK(near(now(w), at), "sums of %d end at %.15g, not %.15g", w->size, now(w), at);
    TRY(comm_allreduce(w->world, view_none, view_none, 100));
    at += formula_rounds(f, 400);
    CHECK(near(now(w), at), "a small allreduce ends at %.15g, not %.15g", now(w), at);
    TRY(comm_broadcast(w->world, view_none, 100, 0)); /* a tree */
    at += f->nodes == 1 || f->each == 1 ? ceil(log2(n)) * formula_slower(f, 400)
                                        : ceil(log2(f->nodes)) * formula_message(f->inter, 400) +
                                              ceil(log2(f->each)) * formula_message(f->intra, 400);
    CHECK(near(now(w), at), "a small broadcast ends at %.15g, not %.15g", now(w), at);
    return SOTTO_OK;
}

static void costs(void **state)
{
    (void)state;
    const struct link_model links = {.intra = {25e9, 2e-6}, .inter = {12.5e6, 5e-3}};
    static const int shapes[][2] = {{1, 2}, {1, 3},  {1, 7}, {1, 64}, {2, 1},  {4, 1},
                                    {7, 1}, {16, 1}, {2, 2}, {2, 4},  {16, 4}, {32, 2}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct costs k = {4e6, 0.125, {shapes[i][0], shapes[i][1], links.intra, links.inter}};
        int node[64], workers = shapes[i][0] * shapes[i][1];
        for (int r = 0; r < workers; r++)
            node[r] = r / shapes[i][1];
        struct engine_config config = {.workers = workers, .node = node, .links = &links};
        assert_ok(engine_virtual(&config, measure, &k));
    }
}

/* A lane with a communicator of its own. */
struct side {
    struct comm *c;
    struct lane *lane;
    struct comm_collective all; /* arguments of the lane's job */
};

/* The lane's job: a job that makes a collective, or comm_collect itself. Both must have the same
 * effects. */
static lane_job *side_job;

static enum sotto_status nothing(void *arg)
{
    (void)arg;
    return SOTTO_OK;
}

static enum sotto_status side_open(struct side *s, struct worker *w, size_t count)
{
    *s = (struct side){0};
    TRY(comm_duplicate(w->world, &s->c));
    s->all = (struct comm_collective){s->c, COMM_ALLREDUCE, view_none, view_none, count};
    TRY(w->ops->lane(w, &s->lane));
    s->c->lane = s->lane;
    TRY(lane_start(s->lane, nothing, NULL));
    return lane_wait(s->lane); /* until the lane waits for jobs */
}

static void side_close(struct side *s)
{
    lane_close(s->lane);
    comm_free(s->c);
}

static enum sotto_status side_reduce(void *arg)
{
    const struct comm_collective *all = arg;
    return comm_allreduce(all->comm, all->y, all->x, all->count);
}

static enum sotto_status side_start(struct side *s)
{
    return lane_start(s->lane, side_job, &s->all);
}

struct overlap {
    double compute, communicate, end, exposed;
};

static enum sotto_status overlap_worker(struct worker *w, void *arg)
{
    const struct overlap *o = arg;
    struct side s;
    size_t count =
        (size_t)(o->communicate * MB / 4); /* two workers: the ring takes bytes/bandwidth */
    enum sotto_status st = side_open(&s, w, count);
    if (st == SOTTO_OK)
        st = side_start(&s);
    if (st == SOTTO_OK)
        st = compute(w, o->compute);
    if (st == SOTTO_OK)
        st = lane_wait(s.lane);
    if (st == SOTTO_OK && !(near(now(w), o->end) && near(s.lane->busy, o->communicate) &&
                            fabs(s.lane->exposed - o->exposed) < 1e-12))
        st = fail(SOTTO_EINVAL, "ends at %.15g, busy %.15g, exposed %.15g", now(w), s.lane->busy,
                  s.lane->exposed);
    side_close(&s);
    return st;
}

static void overlap(void **state)
{
    (void)state;
    const struct link_model links = {.intra = {MB, 0}, .inter = {MB, 0}};
    struct engine_config config = {.workers = 2, .links = &links};
    struct overlap hidden = {0.05, 0.03, 0.05, 0}, longer = {0.05, 0.08, 0.08, 0.03};
    assert_ok(engine_virtual(&config, overlap_worker, &hidden));
    assert_ok(engine_virtual(&config, overlap_worker, &longer));
}

/* Three jobs in sequence; sums of few powers of two, so that times are exact. */
static enum sotto_status ask_at(struct worker *w, struct side *s, double seconds, bool want)
{
    bool done = !want;
    TRY(compute(w, seconds));
    TRY(lane_done(s->lane, &done));
    CHECK(done == want, "worker %d: done is %d at %.17g", w->rank, done, now(w));
    return SOTTO_OK;
}

static enum sotto_status done_worker(struct worker *w, void *arg)
{
    const double job = *(const double *)arg;
    struct side s;
    enum sotto_status st = side_open(&s, w, 1 << 18);
    for (int i = 0; i < 3 && st == SOTTO_OK; i++)
        st = side_start(&s);
    const double tiny = 0x1p-40;
    if (st == SOTTO_OK)
        st = ask_at(w, &s, 0, false);
    if (st == SOTTO_OK)
        st = ask_at(w, &s, 3 * job - tiny, false);
    if (st == SOTTO_OK)
        st = ask_at(w, &s, tiny, true); /* exactly at the end, for every order of processes */
    if (st == SOTTO_OK)
        st = side_start(&s);
    if (st == SOTTO_OK)
        st = ask_at(w, &s, 0.125, false);
    if (st == SOTTO_OK)
        st = ask_at(w, &s, 1, true);
    if (st == SOTTO_OK && (now(w) != 3 * job + 1.125 || s.lane->busy != 4 * job))
        st = fail(SOTTO_EINVAL, "ends at %.17g, busy %.17g", now(w), s.lane->busy);
    side_close(&s);
    return st;
}

static void done_is_exact(void **state)
{
    (void)state;
    struct link_model links = {.intra = {1 << 22, 0}, .inter = {1 << 22, 0}};
    struct engine_config config = {.workers = 2, .links = &links};
    assert_ok(engine_virtual(&config, done_worker, &(double){0.25}));
    links.intra.latency = 0.0625; /* the last byte leaves before it arrives */
    assert_ok(engine_virtual(&config, done_worker, &(double){0.375}));
}

/* Worker 0 arrives a second before worker 1. */
static enum sotto_status early_worker(struct worker *w, void *arg)
{
    (void)arg;
    struct side s;
    TRY(side_open(&s, w, 1 << 18));
    TRY(compute(w, 1 + w->rank));
    TRY(side_start(&s));
    TRY(lane_wait(s.lane));
    const double waited = w->rank ? 0 : 1;
    const struct comm_stats *t = &s.c->stats[COMM_ALLREDUCE];
    CHECK(now(w) == 2.25 && s.lane->busy == waited + 0.25, "worker %d: ends at %g, busy %g",
          w->rank, now(w), s.lane->busy);
    CHECK(s.lane->others == waited && s.lane->wire == 0.25, "worker %d: for others %g, wire %g",
          w->rank, s.lane->others, s.lane->wire);
    CHECK(t->calls == 1 && t->waiting == waited && t->seconds == waited + 0.25,
          "worker %d: %d calls, %g of %g s waiting", w->rank, (int)t->calls, t->waiting,
          t->seconds);
    side_close(&s);
    return SOTTO_OK;
}

static void waits_are_told_apart(void **state)
{
    (void)state;
    const struct link_model links = {.intra = {1 << 22, 0}, .inter = {1 << 22, 0}};
    struct engine_config config = {.workers = 2, .links = &links};
    assert_ok(engine_virtual(&config, early_worker, NULL));
}

static enum sotto_status poll_forever(struct worker *w, void *arg)
{
    (void)arg;
    struct side s;
    enum sotto_status st = side_open(&s, w, MB);
    bool done = false;
    if (st == SOTTO_OK)
        st = side_start(&s);
    while (st == SOTTO_OK && !done)
        st = lane_done(s.lane, &done);
    side_close(&s);
    return st;
}

/* Unequal speeds: the slowest worker decides the time of the barrier. */
static enum sotto_status speed_worker(struct worker *w, void *arg)
{
    const double *speed = arg;
    for (int i = 0; i < 4; i++)
        TRY(compute(w, 1));
    CHECK(now(w) == 4 / speed[w->rank], "worker %d computes until %.17g", w->rank, now(w));
    TRY(comm_barrier(w->world));
    CHECK(now(w) == 16, "worker %d leaves the barrier at %.17g", w->rank, now(w));
    return SOTTO_OK;
}

static void speeds(void **state)
{
    (void)state;
    double speed[] = {1, 0.25, 4, 0.5};
    struct engine_config config = {.workers = 4, .speed = speed};
    assert_ok(engine_virtual(&config, speed_worker, speed));
    speed[2] = 0;
    assert_fails(engine_virtual(&config, speed_worker, speed), SOTTO_EINVAL, "speed of worker 2");
    config.workers = 0;
    assert_fails(engine_virtual(&config, speed_worker, speed), SOTTO_EINVAL,
                 "workers 0: want 1 or more");
}

/* Rounds of computation in parallel with a lane's all-reduce. The number of lane_done calls that
 * return false depends on every clock. */
#if defined(SANITIZED_THREAD) && defined(__aarch64__) /* room for few fibers only */
enum { ROUNDS = 20, MOST = 64 };
#else
enum { ROUNDS = 20, MOST = 256 };
#endif

struct trace {
    double at[MOST][ROUNDS];
    int asked[MOST];
};

static enum sotto_status trace_rounds(struct worker *w, struct side *s, struct trace *trace)
{
    for (int i = 0; i < ROUNDS; i++) {
        TRY(side_start(s));
        for (bool done = false; !done; trace->asked[w->rank]++) {
            TRY(compute(w, 0.01));
            TRY(lane_done(s->lane, &done));
        }
        trace->at[w->rank][i] = now(w);
    }
    return SOTTO_OK;
}

static enum sotto_status trace_worker(struct worker *w, void *arg)
{
    struct side s;
    enum sotto_status st = side_open(&s, w, MB / 100);
    if (st == SOTTO_OK)
        st = trace_rounds(w, &s, arg);
    side_close(&s);
    return st;
}

static void runs_are_equal(void **state)
{
    (void)state;
    const struct link_model links = {.intra = {MB, 1e-4}, .inter = {MB, 1e-4}};
    struct engine_config config = {.workers = 16, .links = &links, .jitter = 0.3, .seed = 5};
    struct trace *t = calloc(3, sizeof *t);
    assert_non_null(t);
    assert_ok(engine_virtual(&config, trace_worker, &t[0]));
    assert_ok(engine_virtual(&config, trace_worker, &t[1]));
    assert_memory_equal(&t[0], &t[1], sizeof *t);
    assert_true(t[0].at[0][0] != t[0].at[1][0]);
    config.seed = 6;
    assert_ok(engine_virtual(&config, trace_worker, &t[2]));
    assert_true(memcmp(&t[0], &t[2], sizeof *t) != 0);
    free(t);
}

static void many_workers(void **state)
{
    (void)state;
    const struct link_model links = {.intra = {100 * MB, 1e-5}, .inter = {MB, 1e-4}};
    int node[MOST];
    for (int r = 0; r < MOST; r++)
        node[r] = r / 8;
    struct engine_config config = {.workers = MOST, .node = node, .links = &links, .jitter = 0.1};
    struct trace *t = calloc(1, sizeof *t);
    assert_non_null(t);
    assert_ok(engine_virtual(&config, trace_worker, t));
    const struct formula f = {MOST / 8, 8, links.intra, links.inter};
    for (int r = 0; r < MOST; r++)
        assert_true(t->at[r][ROUNDS - 1] >= ROUNDS * formula_allreduce(&f, MB / 100 * 4));
    free(t);
}

/* Rank 0 sends three messages of 1 s with a latency of 2 s; rank 1 receives the last two late. */
static enum sotto_status message_worker(struct worker *w, void *arg)
{
    (void)arg;
    static const double arrives[] = {3, 10, 10};
    float *x = calloc(MB / 4, sizeof *x);
    struct view v = view_of(x, DTYPE_F32);
    enum sotto_status st = x ? SOTTO_OK : fail(SOTTO_ENOMEM, "no memory");
    for (int i = 0; i < 3 && st == SOTTO_OK && w->rank == 0; i++) {
        x[0] = x[MB / 4 - 1] = (float)i;
        st = comm_send(w->world, v, MB / 4, 1);
        if (st == SOTTO_OK && now(w) != i + 1)
            st = fail(SOTTO_EINVAL, "message %d has left at %.17g", i, now(w));
    }
    for (int i = 0; i < 3 && st == SOTTO_OK && w->rank == 1; i++) {
        if (i == 1)
            st = compute(w, 7);
        if (st == SOTTO_OK)
            st = comm_recv(w->world, v, MB / 4, 0);
        if (st == SOTTO_OK &&
            (now(w) != arrives[i] || x[0] != (float)i || x[MB / 4 - 1] != (float)i))
            st = fail(SOTTO_EINVAL, "message %d is %g at %.17g", i, (double)x[0], now(w));
    }
    free(x);
    return st;
}

/* Both directions at once: 1 s on each link, and the latency. */
static enum sotto_status exchange_worker(struct worker *w, void *arg)
{
    (void)arg;
    size_t came = 0;
    for (int i = 1; i <= 2; i++) {
        TRY(comm_exchange(w->world, view_none, MB / 4, 1 - w->rank, view_none, MB, 1 - w->rank,
                          &came));
        if (came != MB / 4 || now(w) != 3 * i)
            return fail(SOTTO_EINVAL, "exchange %d: %zu at %.17g", i, came, now(w));
    }
    return SOTTO_OK;
}

static enum sotto_status no_room(struct worker *w, void *arg)
{
    (void)arg;
    size_t came;
    return comm_exchange(w->world, view_none, w->rank ? 4 : 6, 1 - w->rank, view_none, 5,
                         1 - w->rank, &came);
}

static enum sotto_status wrong_size(struct worker *w, void *arg)
{
    (void)arg;
    return w->rank ? comm_recv(w->world, view_none, 5, 0) : comm_send(w->world, view_none, 4, 1);
}

static void messages(void **state)
{
    (void)state;
    const struct link_model links = {.intra = {0, 0}, .inter = {MB, 2}};
    const int node[] = {0, 1};
    struct engine_config config = {.workers = 2, .node = node, .links = &links};
    assert_ok(engine_virtual(&config, message_worker, NULL));
    assert_fails(engine_virtual(&config, wrong_size, NULL), SOTTO_EPEER,
                 "worker 1: rank 1 expects 20 bytes from rank 0, which sent 16");
    assert_ok(engine_virtual(&config, exchange_worker, NULL));
    assert_fails(engine_virtual(&config, no_room, NULL), SOTTO_EPEER,
                 "worker 1: rank 1 expects 20 bytes from rank 0, which sent 24");
}

/* A mesh of 3 rows of 4, each row on a node: rows are fast, columns slow, and neither waits for the
 * other. */
static enum sotto_status mesh_worker(struct worker *w, void *arg)
{
    (void)arg;
    struct comm *row, *column;
    int i = w->rank / 4, j = w->rank % 4;
    TRY(comm_split(w->world, i, &row));
    TRY(comm_split(w->world, -j, &column));
    enum sotto_status st = SOTTO_OK;
    if (row->size != 4 || row->rank != j || column->size != 3 || column->rank != i ||
        row->node[3] != i || column->node[2] != 2)
        st = fail(SOTTO_EINVAL, "worker %d is %d of %d, %d of %d", w->rank, row->rank, row->size,
                  column->rank, column->size);
    if (st == SOTTO_OK)
        st = compute(w, i);
    if (st == SOTTO_OK)
        st = comm_allreduce(row, view_none, view_none, MB / 4);
    if (st == SOTTO_OK && !near(now(w), i + 1.5e-3))
        st = fail(SOTTO_EINVAL, "row %d ends at %.15g", i, now(w));
    if (st == SOTTO_OK)
        st = comm_allreduce(column, view_none, view_none, MB / 4);
    if (st == SOTTO_OK && !near(now(w), 2 + 1.5e-3 + 4.0 / 3))
        st = fail(SOTTO_EINVAL, "column %d ends at %.15g", j, now(w));
    comm_free(row);
    comm_free(column);
    return st;
}

static void mesh(void **state)
{
    (void)state;
    const struct link_model links = {.intra = {1000.0 * MB, 0}, .inter = {MB, 0}};
    const int node[] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2};
    struct engine_config config = {.workers = 12, .node = node, .links = &links};
    assert_ok(engine_virtual(&config, mesh_worker, NULL));
}

static enum sotto_status trouble(void *arg)
{
    (void)arg;
    return fail(SOTTO_ENUMERIC, "the loss is no number");
}

enum fault {
    FAULT_WORKER,
    FAULT_LANE,
    FAULT_LANE_UNSEEN,
    FAULT_COMPUTE,
    FAULT_ABORT,
    FAULT_AGAIN, /* a later failure of another worker is not the one reported */
    FAULTS
};

static enum sotto_status faulty_rounds(struct worker *w, struct side *s, enum fault fault)
{
    for (int i = 0;; i++) {
        if (w->rank == 2 && i == 3) {
            struct status_note note = {SOTTO_ENUMERIC, "the loss is no number"};
            if (fault == FAULT_WORKER || fault == FAULT_AGAIN)
                return trouble(NULL);
            if (fault == FAULT_COMPUTE)
                return w->ops->compute(w, trouble, NULL, 1);
            if (fault == FAULT_ABORT)
                w->world->ops->abort(w->world, &note);
            else
                TRY(lane_start(s->lane, trouble, NULL));
            if (fault == FAULT_LANE)
                TRY(lane_wait(s->lane));
        }
        if (fault == FAULT_AGAIN && w->rank == 1 && i == 3) {
            TRY(compute(w, 0.5));
            return fail(SOTTO_EIO, "the disk is gone");
        }
        TRY(side_start(s));
        TRY(compute(w, 1));
        TRY(comm_barrier(w->world));
        if (fault != FAULT_LANE_UNSEEN)
            TRY(lane_wait(s->lane));
    }
}

static enum sotto_status faulty_worker(struct worker *w, void *arg)
{
    struct side s;
    enum sotto_status st = side_open(&s, w, 10);
    if (st == SOTTO_OK)
        st = faulty_rounds(w, &s, *(const enum fault *)arg);
    side_close(&s);
    return st;
}

static enum sotto_status unseen_worker(struct worker *w, void *arg)
{
    (void)arg;
    struct side s;
    enum sotto_status st = side_open(&s, w, 10);
    if (st == SOTTO_OK)
        st = w->rank == 2 ? lane_start(s.lane, trouble, NULL) : side_start(&s);
    if (st == SOTTO_OK && w->rank != 2)
        st = lane_wait(s.lane);
    if (st == SOTTO_OK)
        st = comm_barrier(w->world);
    side_close(&s);
    return st;
}

static void failures(void **state)
{
    (void)state;
    struct engine_config config = {.workers = 4, .cores = 2};
    for (int i = 0; i < FAULTS; i++) {
        enum fault fault = (enum fault)i;
        assert_fails(engine_virtual(&config, faulty_worker, &fault), SOTTO_ENUMERIC,
                     "worker 2: the loss is no number");
    }
    /* A failed lane is reported, not the wait of its worker elsewhere. */
    assert_fails(engine_virtual(&config, unseen_worker, NULL), SOTTO_ENUMERIC,
                 "worker 2: the loss is no number");
}

static enum sotto_status deadlocked(struct worker *w, void *arg)
{
    (void)arg;
    if (w->rank == 0)
        return comm_recv(w->world, view_none, 1, 3);
    return w->rank == 3 ? SOTTO_OK : comm_barrier(w->world);
}

static enum sotto_status different(struct worker *w, void *arg)
{
    enum sotto_status st;
    if (w->rank == 2)
        st = comm_allreduce(w->world, view_none, view_none, 7);
    else if (*(int *)arg)
        st = comm_allreduce(w->world, view_none, view_none, 8);
    else
        st = comm_barrier(w->world);
    /* Every rank gets the message; all ranks but the first end in silence. */
    if (st != SOTTO_EPEER || !strstr(sotto_error(), "rank 2 allreduce of 7 elements of 4 bytes"))
        return fail(SOTTO_EINVAL, "worker %d got %d", w->rank, st);
    return w->rank == 3 ? st : SOTTO_OK;
}

static enum sotto_status roots(struct worker *w, void *arg)
{
    (void)arg;
    return comm_broadcast(w->world, view_none, 7, w->rank == 1);
}

static void disagreements(void **state)
{
    (void)state;
    struct engine_config config = {.workers = 4};
    assert_fails(engine_virtual(&config, deadlocked, NULL), SOTTO_EPEER,
                 "worker 0 in recv from rank 3, worker 1 in barrier, worker 2 in barrier");
    config.workers = 20;
    assert_fails(engine_virtual(&config, deadlocked, NULL), SOTTO_EPEER, "and 11 more");
    config.workers = 4;
    assert_fails(engine_virtual(&config, different, &(int){0}), SOTTO_EPEER,
                 "worker 3: workers make different calls: rank 0 barrier");
    assert_fails(engine_virtual(&config, different, &(int){1}), SOTTO_EPEER,
                 "rank 0 allreduce of 8 elements");
    assert_fails(engine_virtual(&config, roots, NULL), SOTTO_EPEER,
                 "rank 0 broadcast from root 0, rank 1 broadcast from root 1");
    const struct link_model links = {.intra = {MB, 0}, .inter = {MB, 0}};
    config.links = &links;
    assert_fails(engine_virtual(&config, poll_forever, NULL), SOTTO_EINVAL,
                 "virtual time stands still");
}

/* A failure that the worker cannot report, because its lane waits for ranks that never arrive. */
static enum sotto_status stuck_worker(struct worker *w, void *arg)
{
    struct side s;
    enum sotto_status st = side_open(&s, w, 10);
    if (st == SOTTO_OK && w->rank == 1)
        st = side_start(&s);
    if (st == SOTTO_OK)
        st = compute(w, 1);
    if (st == SOTTO_OK && w->rank == 1 && *(bool *)arg)
        st = fail(SOTTO_EIO, "the disk is gone");
    side_close(&s);
    return st;
}

/* Each lane fails because the ranks disagree, or because worker 0 has aborted, and runs no later
 * job. */
struct disagreement {
    bool abort;
    int told;
};

static enum sotto_status disagreeing_worker(struct worker *w, void *arg)
{
    struct disagreement *d = arg;
    const struct status_note note = {SOTTO_EIO, "the disk is gone"};
    struct side s;
    TRY(side_open(&s, w, w->rank == 2 ? 7 : 8));
    if (d->abort && w->rank == 0) {
        TRY(compute(w, 1));
        w->world->ops->abort(w->world, &note);
    } else {
        TRY(side_start(&s));
        TRY(lane_start(s.lane, trouble, NULL));
        const enum sotto_status st = lane_wait(s.lane);
        d->told += st == (d->abort ? SOTTO_EIO : SOTTO_EPEER) && lane_wait(s.lane) == st;
    }
    side_close(&s);
    return fail(SOTTO_ENUMERIC, "it cannot go on");
}

static void lanes_disagree(void **state)
{
    (void)state;
    struct engine_config config = {.workers = 3};
    struct disagreement d = {.abort = false}, gone = {.abort = true};
    assert_fails(engine_virtual(&config, disagreeing_worker, &d), SOTTO_ENUMERIC, "cannot go on");
    assert_int_equal(d.told, 3);
    assert_fails(engine_virtual(&config, disagreeing_worker, &gone), SOTTO_EIO, "disk is gone");
    assert_int_equal(gone.told, 2);
}

/* Jobs in the queue are dropped when the lane is closed while a job runs. */
static enum sotto_status closing_worker(struct worker *w, void *arg)
{
    (void)arg;
    struct side s;
    TRY(side_open(&s, w, 1 << 18));
    for (int i = 0; i < 3; i++)
        TRY(side_start(&s));
    TRY(compute(w, 0.125));
    lane_close(s.lane);
    CHECK(now(w) == 0.25, "closed at %g", now(w));
    comm_free(s.c);
    return SOTTO_OK;
}

static void closing_drops_jobs(void **state)
{
    (void)state;
    const struct link_model links = {.intra = {1 << 22, 0}, .inter = {1 << 22, 0}};
    struct engine_config config = {.workers = 2, .links = &links};
    assert_ok(engine_virtual(&config, closing_worker, NULL));
}

static void stuck_lanes(void **state)
{
    (void)state;
    struct engine_config config = {.workers = 2};
    assert_fails(engine_virtual(&config, stuck_worker, &(bool){true}), SOTTO_EPEER,
                 "worker 1 in lane_close, worker 1's lane in allreduce; worker 1 had failed: "
                 "the disk is gone");
    assert_fails(engine_virtual(&config, stuck_worker, &(bool){false}), SOTTO_EPEER,
                 "in allreduce");
    assert_null(
        strstr(sotto_error(), "had failed")); /* the message of the previous run is not repeated */
}

/* Computations that end only when all of them have begun. */
struct gathering {
    atomic_int come, order;
    int all;
    int place[4];
};

static enum sotto_status gather(void *arg)
{
    struct gathering *g = arg;
    atomic_fetch_add(&g->come, 1);
    double until = clock_now(&clock_real) + 2;
    while (atomic_load(&g->come) < g->all)
        if (clock_now(&clock_real) > until)
            return fail(SOTTO_EINVAL, "%d of %d computations run at once", atomic_load(&g->come),
                        g->all);
    return SOTTO_OK;
}

static enum sotto_status gather_worker(struct worker *w, void *arg)
{
    struct gathering *g = arg;
    TRY(w->ops->compute(w, gather, g, w->size - w->rank));
    g->place[w->rank] = g->order++; /* workers continue in the order of virtual time */
    CHECK(now(w) == w->size - w->rank, "worker %d at %g", w->rank, now(w));
    return SOTTO_OK;
}

static void computations_overlap(void **state)
{
    (void)state;
    struct engine_config config = {.workers = 4, .cores = 4};
    struct gathering g = {.all = 4};
    assert_ok(engine_virtual(&config, gather_worker, &g));
    for (int r = 0; r < 4; r++)
        assert_int_equal(g.place[r], 3 - r);
}

struct beside {
    struct worker *w;
    struct gathering *g;
};

/* The same for computations that take no time: evaluations of many workers run on all cores. */
static enum sotto_status free_worker(struct worker *w, void *arg)
{
    TRY(w->ops->compute(w, gather, arg, 0));
    CHECK(now(w) == 0, "worker %d at %g", w->rank, now(w));
    return SOTTO_OK;
}

static enum sotto_status free_job(void *arg)
{
    struct beside *b = arg;
    return b->w->ops->compute(b->w, gather, b->g, 0);
}

/* A lane's job that takes no time is done when the worker polls, on every thread. */
static enum sotto_status asking_worker(struct worker *w, void *arg)
{
    struct beside b = {w, arg};
    struct side s;
    bool done = false;
    enum sotto_status st = side_open(&s, w, 0);
    if (st == SOTTO_OK)
        st = lane_start(s.lane, free_job, &b);
    if (st == SOTTO_OK)
        st = lane_done(s.lane, &done);
    if (st == SOTTO_OK && !done)
        st = fail(SOTTO_EINVAL, "the lane of worker %d is at work at %g", w->rank, now(w));
    side_close(&s);
    return st;
}

static void free_computations_overlap(void **state)
{
    (void)state;
    struct engine_config config = {.workers = 4, .cores = 4};
    struct gathering g = {.all = 4}, beside = {.all = 4};
    assert_ok(engine_virtual(&config, free_worker, &g));
    assert_ok(engine_virtual(&config, asking_worker, &beside));
}

/* Work over vectors takes bytes over bandwidth at the worker's speed, in lanes too, and has no
 * jitter. */
static enum sotto_status count_up(void *arg)
{
    ++*(int *)arg;
    return SOTTO_OK;
}

struct moving {
    struct worker *w;
    int done;
};

static enum sotto_status move_job(void *arg)
{
    struct moving *m = arg;
    return m->w->ops->move(m->w, count_up, &m->done, 3 * MB);
}

static enum sotto_status moving_worker(struct worker *w, void *arg)
{
    const double *memory = arg, speed = w->rank ? 0.5 : 1;
    const double second = *memory > 0 ? MB / *memory / speed : 0; /* seconds per MB */
    struct moving m = {w, 0};
    struct lane *lane;
    TRY(w->ops->lane(w, &lane));
    enum sotto_status st = lane_start(lane, move_job, &m);
    if (st == SOTTO_OK)
        st = w->ops->move(w, NULL, NULL, MB);
    const double alone = now(w);
    if (st == SOTTO_OK)
        st = lane_wait(lane);
    if (st == SOTTO_OK && (!near(alone, second) || !near(now(w), 3 * second) || m.done != 1))
        st = fail(SOTTO_EINVAL, "a MB took %g s, three took %g s, and were moved %d times", alone,
                  now(w), m.done);
    lane_close(lane);
    return st;
}

static void memory(void **state)
{
    (void)state;
    const double speed[] = {1, 0.5};
    struct engine_config config = {.workers = 2, .speed = speed, .jitter = 0.5};
    for (int k = 0; k < 2; k++) {
        config.memory = k ? 2e6 : 0;
        assert_ok(engine_virtual(&config, moving_worker, &config.memory));
    }
    config.memory = -1;
    assert_fails(engine_virtual(&config, moving_worker, &config.memory), SOTTO_EINVAL, "memory");
}

/* The time of a micro-batch depends only on its number, and all its parts have the same jitter. */
static enum sotto_status jitter_worker(struct worker *w, void *arg)
{
    const int *from = arg;
    double whole[4];
    for (int i = 0; i < 4; i++) {
        const double before = now(w);
        w->computing = i;
        TRY(w->ops->move(w, NULL, NULL, 1));
        TRY(compute(w, 1));
        whole[i] = now(w) - before;
        CHECK(i == 0 || whole[i] != whole[i - 1], "micro-batches %d and %d take as long", i, i - 1);
    }
    for (int i = *from; i < 4; i++) {
        w->computing = i;
        for (int part = 1; part <= 3; part++) {
            const double before = now(w);
            TRY(compute(w, part / 6.0));
            CHECK(near(now(w) - before, whole[i] * part / 6), "micro-batch %d: %.15g, then %.15g",
                  i, whole[i], now(w) - before);
        }
    }
    return SOTTO_OK;
}

/* The mean time is the configured time, for every jitter. */
static enum sotto_status scatter_worker(struct worker *w, void *arg)
{
    enum { N = 20000 };
    const double want = *(const double *)arg;
    double sum = 0, squares = 0;
    for (int i = 0; i < N; i++) {
        const double begin = now(w);
        w->computing = i;
        TRY(compute(w, 1));
        const double took = now(w) - begin;
        if (!(took > 0))
            return fail(SOTTO_EINVAL, "a computation took %g s", took);
        sum += took;
        squares += took * took;
    }
    const double mean = sum / N, deviation = sqrt(squares / N - mean * mean);
    if (fabs(mean - 1) > 4 * want / sqrt(N) || fabs(deviation / want - 1) > 0.1)
        return fail(SOTTO_EINVAL, "mean %g, deviation %g, want 1 and %g", mean, deviation, want);
    return SOTTO_OK;
}

static void jitter_keeps_the_mean(void **state)
{
    (void)state;
    for (double jitter = 0.05; jitter < 1; jitter *= 4) {
        struct engine_config config = {.workers = 1, .jitter = jitter, .seed = 3};
        assert_ok(engine_virtual(&config, scatter_worker, &jitter));
    }
}

static void jitter_has_numbers(void **state)
{
    (void)state;
    struct engine_config config = {.workers = 3, .jitter = 0.2, .seed = 9};
    assert_ok(engine_virtual(&config, jitter_worker, &(int){2}));
}

/* A lane that computes in parallel with its worker, both on threads of the pool. */
static enum sotto_status beside_job(void *arg)
{
    struct beside *b = arg;
    return b->w->ops->compute(b->w, gather, b->g, 0.75);
}

static enum sotto_status beside_worker(struct worker *w, void *arg)
{
    struct beside b = {w, arg};
    struct side s;
    enum sotto_status st = side_open(&s, w, 0);
    if (st == SOTTO_OK)
        st = lane_start(s.lane, beside_job, &b);
    if (st == SOTTO_OK)
        st = w->ops->compute(w, gather, arg, 0.5);
    if (st == SOTTO_OK)
        st = lane_wait(s.lane);
    if (st == SOTTO_OK && (now(w) != 1.5 || s.lane->busy != 1.5 || s.lane->exposed != 0.5))
        st = fail(SOTTO_EINVAL, "ends at %g, busy %g, exposed %g", now(w), s.lane->busy,
                  s.lane->exposed);
    side_close(&s);
    return st;
}

/* As many queued jobs as there is time to start, done in order; several times. */
struct counted {
    int *next, number, wrong;
};

static enum sotto_status counted_job(void *arg)
{
    struct counted *c = arg;
    c->wrong = (*c->next)++ != c->number;
    return SOTTO_OK;
}

static enum sotto_status many_jobs_worker(struct worker *w, void *arg)
{
    (void)arg;
    enum { MOST_JOBS = 200 };
    struct counted job[MOST_JOBS];
    struct lane *lane;
    TRY(w->ops->lane(w, &lane));
    for (int jobs = 1; jobs <= MOST_JOBS; jobs = 2 * jobs + 7) {
        int next = 0;
        for (int i = 0; i < jobs; i++) {
            job[i] = (struct counted){&next, i, 1};
            TRY(lane_start(lane, counted_job, &job[i]));
        }
        TRY(lane_wait(lane));
        for (int i = 0; i < jobs; i++)
            CHECK(!job[i].wrong, "job %d of %d is not run in its turn", i, jobs);
    }
    lane_close(lane);
    return SOTTO_OK;
}

static void many_jobs(void **state)
{
    (void)state;
    struct engine_config config = {.workers = 2};
    assert_ok(engine_virtual(&config, many_jobs_worker, NULL));
}

/* Jobs begin at the time of their start: not earlier, though the worker is far ahead when the jobs
 * run, and not later, even if the worker runs them itself. */
struct stamped {
    struct worker *w;
    double seconds, begin, end;
};

static enum sotto_status stamped_job(void *arg)
{
    struct stamped *j = arg;
    j->begin = now(j->w);
    TRY(compute(j->w, j->seconds));
    j->end = now(j->w);
    return SOTTO_OK;
}

static enum sotto_status stamping_worker(struct worker *w, void *arg)
{
    (void)arg;
    struct stamped j[6];
    static const double seconds[] = {0.5, 0.5, 4, 0.25, 0.5, 0.5}, begin[] = {1, 3, 3, 7, 10, 11};
    struct lane *a, *b;
    TRY(w->ops->lane(w, &a));
    TRY(w->ops->lane(w, &b));
    for (int i = 0; i < 6; i++)
        j[i] = (struct stamped){w, seconds[i], -1, -1};
    TRY(compute(w, 1));
    TRY(lane_start(a, stamped_job, &j[0]));
    TRY(compute(w, 2));
    TRY(lane_start(a, stamped_job, &j[1]));
    TRY(lane_start(b, stamped_job, &j[2]));
    TRY(compute(w, 1));
    TRY(lane_wait(a));
    TRY(lane_wait(b));
    TRY(lane_start(b, stamped_job, &j[3]));
    TRY(compute(w, 3));
    TRY(lane_wait(b));
    TRY(lane_start(b, stamped_job, &j[4]));
    TRY(compute(w, 1));
    TRY(lane_start(b, stamped_job, &j[5]));
    TRY(lane_wait(b));
    for (int i = 0; i < 6; i++)
        CHECK(j[i].begin == begin[i] && j[i].end == begin[i] + seconds[i],
              "job %d runs from %g to %g", i, j[i].begin, j[i].end);
    CHECK(now(w) == 11.5 && a->busy == 1 && b->busy == 5.25, "ends at %g, busy %g and %g", now(w),
          a->busy, b->busy);
    CHECK(a->exposed == 0 && b->exposed == 3.5, "exposed %g and %g", a->exposed, b->exposed);
    lane_close(a);
    lane_close(b);
    return SOTTO_OK;
}

static void jobs_begin_when_started(void **state)
{
    (void)state;
    struct engine_config config = {.workers = 3};
    assert_ok(engine_virtual(&config, stamping_worker, NULL));
}

/* Worker 0 pauses at 2, with a job of its lane in flight since 1 and another queued; worker 1
 * pauses at 3. They continue at 3 and 4. The job in flight, with 3 seconds left, is done at 6, and
 * the queued job, of one second, at 7. */
static enum sotto_status pausing_worker(struct worker *w, void *arg)
{
    (void)arg;
    struct stamped j[] = {{w, 4, -1, -1}, {w, 1, -1, -1}};
    struct lane *lane;
    TRY(w->ops->lane(w, &lane));
    TRY(compute(w, 1));
    for (int i = 0; i < 2 && w->rank == 0; i++)
        TRY(lane_start(lane, stamped_job, &j[i]));
    TRY(compute(w, 1 + w->rank));
    const double trained = now(w);
    w->ops->pause(w);
    TRY(w->ops->end_pause(w, trained, 0));
    CHECK(now(w) == 3 + w->rank, "worker %d goes on at %g", w->rank, now(w));
    TRY(lane_wait_but(lane, 1));
    CHECK(now(w) == (w->rank ? 4 : 6), "worker %d has its exchange at %g", w->rank, now(w));
    TRY(lane_wait(lane));
    CHECK(now(w) == (w->rank ? 4 : 7), "worker %d has all of them at %g", w->rank, now(w));
    lane_close(lane);
    return SOTTO_OK;
}

static void pauses_put_jobs_off(void **state)
{
    (void)state;
    struct engine_config config = {.workers = 2};
    assert_ok(engine_virtual(&config, pausing_worker, NULL));
}

static void lanes_compute(void **state)
{
    (void)state;
    const double speed[] = {0.5, 0.5};
    struct engine_config config = {.workers = 2, .speed = speed, .cores = 4};
    struct gathering g = {.all = 4};
    assert_ok(engine_virtual(&config, beside_worker, &g));
}

/* An error message survives the calls of other workers while its worker closes its lane. */
static enum sotto_status tidy_worker(struct worker *w, void *arg)
{
    (void)arg;
    struct side s;
    enum sotto_status st = side_open(&s, w, MB);
    if (st == SOTTO_OK)
        st = side_start(&s);
    if (st == SOTTO_OK)
        st = compute(w, 0.5 + w->rank);
    if (st == SOTTO_OK)
        st = fail(SOTTO_EIO, "trouble of %d", w->rank);
    side_close(&s); /* until 4 s, when all have failed */
    return st;
}

static void messages_stay_apart(void **state)
{
    (void)state;
    const struct link_model links = {.intra = {MB, 0}, .inter = {MB, 0}};
    struct engine_config config = {.workers = 2, .links = &links};
    assert_fails(engine_virtual(&config, tidy_worker, NULL), SOTTO_EIO, "worker 0: trouble of 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(suite),
        cmocka_unit_test(on_nodes),
        cmocka_unit_test(costs),
        cmocka_unit_test(overlap),
        cmocka_unit_test(done_is_exact),
        cmocka_unit_test(speeds),
        cmocka_unit_test(runs_are_equal),
        cmocka_unit_test(many_workers),
        cmocka_unit_test(messages),
        cmocka_unit_test(mesh),
        cmocka_unit_test(failures),
        cmocka_unit_test(disagreements),
        cmocka_unit_test(stuck_lanes),
        cmocka_unit_test(computations_overlap),
        cmocka_unit_test(free_computations_overlap),
        cmocka_unit_test(memory),
        cmocka_unit_test(jitter_has_numbers),
        cmocka_unit_test(jitter_keeps_the_mean),
        cmocka_unit_test(lanes_compute),
        cmocka_unit_test(many_jobs),
        cmocka_unit_test(jobs_begin_when_started),
        cmocka_unit_test(pauses_put_jobs_off),
        cmocka_unit_test(waits_are_told_apart),
        cmocka_unit_test(lanes_disagree),
        cmocka_unit_test(closing_drops_jobs),
        cmocka_unit_test(messages_stay_apart),
    };
    const struct CMUnitTest lanes[] = {
        cmocka_unit_test(overlap),
        cmocka_unit_test(done_is_exact),
        cmocka_unit_test(runs_are_equal),
        cmocka_unit_test(failures),
        cmocka_unit_test(disagreements),
        cmocka_unit_test(stuck_lanes),
        cmocka_unit_test(waits_are_told_apart),
        cmocka_unit_test(lanes_disagree),
        cmocka_unit_test(closing_drops_jobs),
        cmocka_unit_test(messages_stay_apart),
    };
    side_job = side_reduce;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    side_job = comm_collect;
    return failed + cmocka_run_group_tests_name("collectives as jobs", lanes, NULL, NULL);
}
