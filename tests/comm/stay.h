/* Collectives of vectors in device memory stay there: the bits of the host's sums, and no byte
 * passes the host. Vectors are made and changed right before and after the calls. */
#ifndef SOTTO_TESTS_COMM_STAY_H
#define SOTTO_TESTS_COMM_STAY_H

#include "comm/suite.h"

/* Returns the device of the test; a GPU has the bits of the host's sums too. */
static inline const char *stay_device(void)
{
    const char *name = getenv("SOTTO_TEST_DEVICE");
    return name ? name : "apart";
}

struct stay {
    struct device dev;
    struct memory memory;
    struct buffer x, y;
    float *host; /* (2, count) */
    size_t count;
};

static inline float stay_value(int rank, size_t i)
{
    return 1.0f / (float)(1 + (i * 37 + (size_t)rank * 101) % 1009);
}

static inline enum sotto_status stay_calls(struct worker *w, struct stay *s, enum dtype type)
{
    struct comm *c = w->world;
    const struct ops *ops = s->dev.ops;
    const struct comm_block mine = comm_block(s->count, c->size, c->rank);
    struct view x = s->x.view, y = s->y.view, host = view_of(s->host, type);
    x.type = y.type = type;
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < s->count; i++)
            suite_put(host, i, stay_value(c->rank, i + (size_t)round));
        ops->write(&s->dev, x, s->host, s->count);
        TRY(comm_allreduce(c, y, x, s->count));
        ops->fill(&s->dev, x, s->count, 7); /* after all ranks have read x */
        TRY(comm_allreduce(c, host, host, s->count));
        const struct view got = view_of(s->host + s->count, type);
        ops->read(&s->dev, got.data, y, s->count);
        CHECK(memcmp(got.data, host.data, s->count * dtype_size(type)) == 0, "other bits");
        ops->write(&s->dev, x, s->host, s->count);
        TRY(comm_reduce_scatter(c, view_at(y, mine.begin), x, s->count));
        TRY(comm_allgather(c, x, view_at(y, mine.begin), s->count));
        ops->fill(&s->dev, y, s->count, (float)c->rank);
        TRY(comm_broadcast(c, y, s->count, round % c->size));
        ops->axpy(&s->dev, y, 1, x, s->count);
        TRY(comm_reduce_scatter(c, view_at(host, mine.begin), host, s->count));
        TRY(comm_allgather(c, host, view_at(host, mine.begin), s->count));
        ops->read(&s->dev, got.data, x, s->count);
        CHECK(memcmp(got.data, host.data, s->count * dtype_size(type)) == 0, "other bits");
        ops->read(&s->dev, got.data, y, s->count);
        for (size_t i = 0; i < s->count; i++) {
            suite_put(host, i, suite_get(host, i) + (float)(round % c->size));
            CHECK(suite_get(got, i) == suite_get(host, i), "[%zu] is %g", i, suite_get(got, i));
        }
    }
    CHECK(c->staged == 0, "%lld bytes went through the host", (long long)c->staged);
    return SOTTO_OK;
}

static inline enum sotto_status stay_run(struct worker *w, void *arg)
{
    const size_t *count = arg;
    struct stay s = {.count = *count};
    TRY(device_open(&s.dev, stay_device(), &s.memory, 1));
    TRY(buffer_init(&s.x, &s.dev, DTYPE_F32, s.count, MEMORY_OUTER));
    TRY(buffer_init(&s.y, &s.dev, DTYPE_F32, s.count, MEMORY_OUTER));
    s.host = malloc(2 * s.count * sizeof *s.host);
    w->world->dev = &s.dev;
    enum sotto_status st = stay_calls(w, &s, DTYPE_F32);
    if (st == SOTTO_OK)
        st = stay_calls(w, &s, DTYPE_BF16);
    w->world->dev = NULL;
    free(s.host);
    buffer_free(&s.x);
    buffer_free(&s.y);
    device_close(&s.dev); /* at once: no rank needs the device any more */
    return st;
}

#endif
