/* Vectors in device memory: every call has the bits of host memory, on the device or through the
 * host, and jobs of lanes begin after the ops that their starter has issued. */
#include <math.h>

#include "base/scratch.h"
#include "comm/stay.h"

typedef enum sotto_status engine(const struct engine_config *config, worker_job *job, void *arg);
static engine *const engines[] = {engine_threads, engine_virtual};

static void suite_on_a_device(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size++) {
        const struct engine_config config = {.workers = size};
        struct suite_config how = {size == 3 ? 20000 : 1023, true, stay_device()};
        for (int e = 0; e < 2; e++)
            assert_ok(engines[e](&config, suite_run, &how));
    }
}

/* Host memory on one side of a call, device memory on the other. */
static enum sotto_status mix(struct worker *w, void *arg)
{
    enum { N = 100 };
    struct memory memory = {0};
    struct device dev;
    struct buffer b;
    float host[N], back[N];
    (void)arg;
    TRY(device_open(&dev, "apart", &memory, 1));
    TRY(buffer_init(&b, &dev, DTYPE_F32, N, MEMORY_OUTER));
    w->world->dev = &dev;
    for (int i = 0; i < N; i++)
        host[i] = suite_value(w->rank, (size_t)i, 0);
    const struct view h = view_of(host, DTYPE_F32), r = view_of(back, DTYPE_F32);
    TRY(comm_allreduce(w->world, b.view, h, N)); /* host to device, and back */
    TRY(comm_allreduce(w->world, r, b.view, N));
    for (int i = 0; i < N; i++)
        CHECK(back[i] == (float)w->size * suite_total(w->size, (size_t)i, 0), "[%d] is %g", i,
              back[i]);
    const size_t whole = N * sizeof(float);
    CHECK(memory.now[MEMORY_COMMUNICATION] == (w->size > 1 ? whole : 0) &&
              memory.peak[MEMORY_COMMUNICATION] == memory.now[MEMORY_COMMUNICATION],
          "%zu bytes to stage vectors of %zu", (size_t)memory.now[MEMORY_COMMUNICATION], whole);
    w->world->dev = NULL;
    buffer_free(&b);
    device_close(&dev);
    CHECK(memory.total == 0, "%zu bytes are left", (size_t)memory.total);
    return SOTTO_OK;
}

static void places_mix(void **state)
{
    (void)state;
    for (int size = 1; size <= 3; size++)
        for (int e = 0; e < 2; e++)
            assert_ok(engines[e](&(struct engine_config){.workers = size}, mix, NULL));
}

static void sums_stay_on_the_device(void **state)
{
    static const int node[] = {0, 0, 1, 1};
    size_t counts[] = {1, 3, 10007};
    (void)state;
    assert_int_equal(setenv("SOTTO_APART_DELAY", "200", 1), 0);
    for (int e = 0; e < 2; e++)
        for (int size = 2; size <= 4; size++)
            for (int i = 0; i < 3; i++)
                assert_ok(engines[e](
                    &(struct engine_config){.workers = size, .node = size == 4 ? node : NULL},
                    stay_run, &counts[i]));
    assert_int_equal(unsetenv("SOTTO_APART_DELAY"), 0);
}

enum { LETTER = 1000 };

static enum sotto_status check_letter(struct device *dev, struct view got, float expected)
{
    float host[LETTER];
    if (got.place == PLACE_DEVICE)
        dev->ops->read(dev, host, got, LETTER);
    else
        memcpy(host, got.data, sizeof host);
    for (int i = 0; i < LETTER; i++)
        CHECK(host[i] == expected, "[%d] is %g instead of %g", i, host[i], expected);
    return SOTTO_OK;
}

/* Rank 0 sends its device's vector twice and the host's once, overwrites each at once, and closes
 * its device before rank 1 receives: the first message to its device, by either call, the second to
 * the host, and the third to its device. */
static enum sotto_status send_and_go(struct worker *w, struct device *dev, struct view x)
{
    float host[LETTER];
    for (int i = 1; i <= 2; i++) {
        dev->ops->fill(dev, x, LETTER, (float)i);
        TRY(comm_send(w->world, x, LETTER, 1));
    }
    dev->ops->fill(dev, x, LETTER, 7);
    for (int i = 0; i < LETTER; i++)
        host[i] = 3;
    TRY(comm_send(w->world, view_of(host, DTYPE_F32), LETTER, 1));
    host[0] = 7;
    return SOTTO_OK;
}

static enum sotto_status receive_from_the_gone(struct worker *w, struct device *dev, struct view x,
                                               bool any)
{
    struct comm *c = w->world;
    float host[LETTER];
    const struct view h = view_of(host, DTYPE_F32);
    const size_t whole = sizeof host;
    int from = 0;
    TRY(w->ops->compute(w, NULL, NULL, 1));
    dev->ops->fill(dev, x, LETTER, 9); /* must not overwrite a message received later */
    TRY(any ? comm_recv_any(c, x, LETTER, NULL, INFINITY, &from) : comm_recv(c, x, LETTER, 0));
    TRY(check_letter(dev, x, 1));
    CHECK(c->staged == 0, "%lld bytes went through the host", (long long)c->staged);
    TRY(comm_recv(c, h, LETTER, 0));
    TRY(check_letter(dev, h, 2));
    TRY(comm_recv(c, x, LETTER, 0));
    TRY(check_letter(dev, x, 3));
    CHECK(c->staged == (int64_t)(2 * whole), "%lld bytes went through the host",
          (long long)c->staged);
    return SOTTO_OK;
}

static enum sotto_status letters_job(struct worker *w, void *arg)
{
    struct memory memory = {0};
    struct device dev;
    struct buffer x;
    TRY(device_open(&dev, stay_device(), &memory, 1));
    TRY(buffer_init(&x, &dev, DTYPE_F32, LETTER, MEMORY_OUTER));
    w->world->dev = &dev;
    const enum sotto_status st = w->rank == 0
                                     ? send_and_go(w, &dev, x.view)
                                     : receive_from_the_gone(w, &dev, x.view, *(const bool *)arg);
    w->world->dev = NULL;
    CHECK(memory.now[MEMORY_COMMUNICATION] == 0, "staging for a message that stays");
    buffer_free(&x);
    device_close(&dev);
    return st;
}

static void messages_stay_on_the_device(void **state)
{
    (void)state;
    assert_int_equal(setenv("SOTTO_APART_DELAY", "200", 1), 0);
    for (int any = 0; any < 2; any++)
        assert_ok(
            engine_virtual(&(struct engine_config){.workers = 2}, letters_job, &(bool){any == 1}));
    assert_int_equal(unsetenv("SOTTO_APART_DELAY"), 0);
}

/* A rank with host memory among ranks with device memory. */
static enum sotto_status disagree(struct worker *w, void *arg)
{
    struct memory memory = {0};
    struct device dev;
    struct buffer b;
    float host[4] = {0};
    (void)arg;
    TRY(device_open(&dev, "apart", &memory, 1));
    TRY(buffer_init(&b, &dev, DTYPE_F32, 4, MEMORY_OUTER));
    w->world->dev = &dev;
    const struct view v = w->rank == 1 ? view_of(host, DTYPE_F32) : b.view;
    const enum sotto_status st = comm_allreduce(w->world, v, v, 4);
    w->world->dev = NULL;
    buffer_free(&b);
    device_close(&dev);
    return st;
}

static void places_disagree(void **state)
{
    (void)state;
    for (int e = 0; e < 2; e++)
        assert_fails(engines[e](&(struct engine_config){.workers = 3}, disagree, NULL), SOTTO_EPEER,
                     "workers make different calls: the vectors of rank ");
}

enum { N = 64, ROUNDS = 40 };

struct copying {
    struct device dev[2]; /* the worker's, the lane's */
    struct buffer x, y;
};

static enum sotto_status copy_job(void *arg)
{
    struct copying *c = arg;
    c->dev[1].ops->copy(&c->dev[1], c->y.view, c->x.view, N);
    return SOTTO_OK; /* no wait here: a job ends when its ops have */
}

/* Returns how often a lane's job did not see the ops that its starter had issued. */
static enum sotto_status start_and_look(struct worker *w, struct copying *c, bool behind,
                                        int *wrong)
{
    struct lane *lane;
    float host[N];
    TRY(w->ops->lane(w, &lane));
    lane_bind(lane, &c->dev[1], &c->dev[0]);
    *wrong = 0;
    for (int i = 1; i <= ROUNDS; i++) {
        c->dev[0].ops->fill(&c->dev[0], c->x.view, N, (float)i);
        TRY(behind ? lane_start(lane, copy_job, c)
                   : lane->ops->start(lane, (struct lane_call){copy_job, c, 0}));
        TRY(lane_wait(lane));
        c->dev[0].ops->read(&c->dev[0], host, c->y.view, N);
        *wrong += host[0] != (float)i || host[N - 1] != (float)i;
    }
    lane_close(lane);
    return SOTTO_OK;
}

static enum sotto_status look(struct worker *w, void *arg)
{
    struct memory memory = {0};
    struct copying c;
    int wrong;
    (void)arg;
    for (int i = 0; i < 2; i++)
        TRY(device_open(&c.dev[i], "apart", &memory, 1));
    TRY(buffer_init(&c.x, &c.dev[0], DTYPE_F32, N, MEMORY_OUTER));
    TRY(buffer_init(&c.y, &c.dev[0], DTYPE_F32, N, MEMORY_OUTER));
    TRY(start_and_look(w, &c, true, &wrong));
    CHECK(wrong == 0, "%d jobs began before what was issued", wrong);
#ifndef SANITIZED_THREAD /* ThreadSanitizer reports the race */
    TRY(start_and_look(w, &c, false, &wrong));
    CHECK(wrong > 0, "a lane that follows nobody goes unnoticed");
#endif
    buffer_free(&c.x);
    buffer_free(&c.y);
    for (int i = 0; i < 2; i++)
        device_close(&c.dev[i]);
    return SOTTO_OK;
}

static void lanes_begin_behind_a_mark(void **state)
{
    (void)state;
    assert_int_equal(setenv("SOTTO_APART_DELAY", "2000", 1), 0);
    for (int e = 0; e < 2; e++)
        assert_ok(engines[e](&(struct engine_config){.workers = 1}, look, NULL));
    assert_int_equal(unsetenv("SOTTO_APART_DELAY"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(suite_on_a_device),       cmocka_unit_test(places_mix),
        cmocka_unit_test(sums_stay_on_the_device), cmocka_unit_test(messages_stay_on_the_device),
        cmocka_unit_test(places_disagree),         cmocka_unit_test(lanes_begin_behind_a_mark),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
