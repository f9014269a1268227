/* Waits of calls: for other ranks until they arrive, then for the transfer; and how long a worker
 * waits for its lanes. */
#include "base/scratch.h"
#include "comm/suite.h"

#include <math.h>
#include <time.h>

enum { MB = 1000000 };

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9;
}

static enum sotto_status compute(struct worker *w, double seconds)
{
    return w->ops->compute(w, NULL, NULL, seconds);
}

static enum sotto_status check_call(const struct worker *w, enum comm_call call, double waiting,
                                    double seconds)
{
    const struct comm_stats *t = &w->world->stats[call];
    CHECK(near(t->waiting, waiting) && near(t->seconds, seconds),
          "rank %d, %s: waits %.12g of %.12g s, not %.12g of %.12g", w->rank, comm_call_name(call),
          t->waiting, t->seconds, waiting, seconds);
    return SOTTO_OK;
}

/* Rank 1 arrives 2 s later; half a MB is sent in 0.5 s. */
static enum sotto_status late_worker(struct worker *w, void *arg)
{
    (void)arg;
    const size_t count = MB / 8; /* fp32, two ranks: the ring takes bytes / bandwidth */
    const bool late = w->rank == 1;
    size_t came;
    TRY(compute(w, late ? 2 : 0));
    TRY(comm_allreduce(w->world, view_none, view_none, count));
    TRY(check_call(w, COMM_ALLREDUCE, late ? 0 : 2, late ? 0.5 : 2.5));
    TRY(compute(w, late ? 2 : 0));
    if (late)
        TRY(comm_send(w->world, view_none, count, 0));
    else
        TRY(comm_recv(w->world, view_none, count, 1));
    TRY(check_call(w, late ? COMM_SEND : COMM_RECV, late ? 0 : 2, late ? 0.5 : 2.5));
    TRY(compute(w, late ? 2 : 0)); /* rank 0 sends for 0.5 s before it waits */
    TRY(comm_exchange(w->world, view_none, count, 1 - w->rank, view_none, count, 1 - w->rank,
                      &came));
    return check_call(w, COMM_EXCHANGE, late ? 0 : 1.5, late ? 0.5 : 2.5);
}

static const struct link_model links = {.intra = {MB, 0}, .inter = {MB, 0}};

static void calls(void **state)
{
    (void)state;
    struct engine_config config = {.workers = 2, .links = &links};
    assert_ok(engine_virtual(&config, late_worker, NULL));
}

/* An outer lane, whose job waits for a job of an inner lane, which communicates. */
struct lanes {
    struct lane *outer, *inner;
    struct comm *c;
    bool nested;
};

static enum sotto_status reduce(void *arg)
{
    struct lanes *l = arg;
    return comm_allreduce(l->c, view_none, view_none, MB / 8);
}

static enum sotto_status reduce_inside(void *arg)
{
    struct lanes *l = arg;
    TRY(lane_start(l->inner, reduce, l));
    return lane_wait(l->inner);
}

/* Rank 0 waits, from 1 s on, for a call that waits for rank 1 until 2 s and ends at 2.5 s. */
static enum sotto_status wait_worker(struct worker *w, struct lanes *l)
{
    TRY(comm_duplicate(w->world, &l->c));
    TRY(w->ops->lane(w, &l->outer));
    TRY(w->ops->lane(w, &l->inner));
    l->inner->above = l->nested ? l->outer : NULL;
    l->c->lane = l->nested ? l->inner : l->outer;
    TRY(compute(w, w->rank == 1 ? 2 : 0));
    TRY(lane_start(l->outer, l->nested ? reduce_inside : reduce, l));
    TRY(compute(w, w->rank == 1 ? 0 : 1));
    TRY(lane_wait(l->outer));
    const double others = w->rank == 1 ? 0 : 1;
    CHECK(near(l->outer->others, others) && near(l->outer->wire, 0.5) &&
              near(l->outer->exposed, others + 0.5),
          "rank %d waits %.12g s for others, %.12g s for the wire, of %.12g s", w->rank,
          l->outer->others, l->outer->wire, l->outer->exposed);
    TRY(lane_start(l->outer, l->nested ? reduce_inside : reduce, l));
    TRY(compute(w, 3)); /* hidden: no wait is added */
    TRY(lane_wait(l->outer));
    CHECK(near(l->outer->others, others) && near(l->outer->wire, 0.5), "what is hidden is counted");
    return SOTTO_OK;
}

static enum sotto_status lane_worker(struct worker *w, void *arg)
{
    struct lanes l = {.nested = *(const bool *)arg};
    enum sotto_status st = wait_worker(w, &l);
    lane_close(l.outer);
    lane_close(l.inner);
    comm_free(l.c);
    return st;
}

static void lanes(void **state)
{
    (void)state;
    struct engine_config config = {.workers = 2, .links = &links};
    for (int nested = 0; nested < 2; nested++)
        assert_ok(engine_virtual(&config, lane_worker, &(bool){nested}));
}

/* In real time: rank 1 sleeps, so the other ranks wait about as long for it, and rank 1 does not
 * wait, unless the machine keeps a thread from running. */
static enum sotto_status sleepy_worker(struct worker *w, void *arg)
{
    (void)arg;
    float x[4] = {0};
    const struct view v = view_of(x, DTYPE_F32);
    const struct timespec nap = {0, 50000000};
    TRY(comm_barrier(w->world));
    const double before = w->world->stats[COMM_ALLREDUCE].waiting;
    if (w->rank == 1)
        nanosleep(&nap, NULL);
    TRY(comm_allreduce(w->world, v, v, 4));
    const double waited = w->world->stats[COMM_ALLREDUCE].waiting - before;
    CHECK(w->rank == 1 || waited > 0.04, "rank %d waited %g s", w->rank, waited);
    CHECK(w->rank != 1 || waited < 0.04, "the last one waited %g s", waited);
    if (w->rank == 1)
        nanosleep(&nap, NULL);
    if (w->rank == 1)
        return comm_send(w->world, v, 4, 0);
    if (w->rank == 0)
        TRY(comm_recv(w->world, v, 4, 1));
    CHECK(w->rank != 0 || w->world->stats[COMM_RECV].waiting > 0.04, "the receiver waited %g s",
          w->world->stats[COMM_RECV].waiting);
    return SOTTO_OK;
}

static void real_time(void **state)
{
    (void)state;
    enum { TRIES = 20 };
    struct engine_config config = {.workers = 3};
    enum sotto_status st = SOTTO_EINVAL;
    for (int i = 0; i < TRIES && st != SOTTO_OK; i++)
        st = engine_threads(&config, sleepy_worker, NULL);
    assert_ok(st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls),
        cmocka_unit_test(lanes),
        cmocka_unit_test(real_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
