/* A tiny model with everything it takes to run it: device, pool, parameters, gradient. */
#ifndef SOTTO_TESTS_NN_LAB_H
#define SOTTO_TESTS_NN_LAB_H

#include "nn/tiny.h"

enum { LAB_STAGES = 16 };

struct lab {
    struct memory memory;
    struct device dev;
    struct pool pool;
    struct model model;
    struct buffer theta, grad;
    struct view theta_stage[LAB_STAGES], grad_stage[LAB_STAGES];
};

/* Elements of a vector as the host sees them; the caller frees. */
static inline float *lab_read(struct lab *l, struct view x, size_t count)
{
    float *host = malloc((count + 1) * sizeof *host);
    assert_non_null(host);
    l->dev.ops->read(&l->dev, host, x, count);
    assert_ok(device_check(&l->dev));
    return host;
}

/* y of one lab <- x of another, as if it were sent. */
static inline void lab_send(struct lab *to, struct view y, struct lab *from, struct view x,
                            size_t count)
{
    float *host = lab_read(from, x, count);
    to->dev.ops->write(&to->dev, y, host, count);
    free(host);
}

static inline void lab_randomize(struct lab *l, uint64_t seed, const struct buffer *theta)
{
    float *host = calloc(theta->count, sizeof *host);
    assert_non_null(host);
    tiny_parameters(&l->model, seed, host);
    l->dev.ops->write(&l->dev, theta->view, host, theta->count);
    free(host);
}

/* `device` "cpu": the one that is tested. */
static inline void lab_open(struct lab *l, const char *device, int threads,
                            const struct model_config *config, int stages)
{
    struct model_config c = *config;
    memset(l, 0, sizeof *l);
    assert_ok(model_config_resolve(&c));
    assert_ok(model_init(&l->model, &c, stages, 8));
    const char *name = strcmp(device, "cpu") == 0 ? test_device() : device;
    assert_ok(device_open(&l->dev, name, &l->memory, threads));
    pool_init(&l->pool, &l->dev, MEMORY_ACTIVATIONS);
    const size_t count = table_count(&l->model.table);
    assert_ok(buffer_init(&l->theta, &l->dev, DTYPE_F32, count, MEMORY_PARAMETERS));
    assert_ok(buffer_init(&l->grad, &l->dev, DTYPE_F32, count, MEMORY_GRADIENTS));
    lab_randomize(l, 3, &l->theta);
    table_stages(&l->model.table, l->theta.view, l->theta_stage);
    table_stages(&l->model.table, l->grad.view, l->grad_stage);
}

/* Also checks that everything that was taken has been given back. */
static inline void lab_close(struct lab *l)
{
    buffer_free(&l->theta);
    buffer_free(&l->grad);
    pool_free(&l->pool);
    device_close(&l->dev);
    model_free(&l->model);
    for (int c = 0; c < MEMORY_CATEGORIES; c++)
        assert_int_equal(l->memory.now[c], 0);
}

static inline void lab_zero(struct lab *l)
{
    l->dev.ops->fill(&l->dev, l->grad.view, l->grad.count, 0);
}

/* The tensors of a whole vector one after another, which no cut or padding changes; the caller
 * frees. */
static inline float *lab_tensors(struct lab *l, struct view whole)
{
    float *out = malloc(l->model.table.parameters * sizeof *out), *to = out;
    float *flat = lab_read(l, whole, table_count(&l->model.table));
    for (int i = 0; i < l->model.table.n; i++) {
        const struct table_entry *e = &l->model.table.entry[i];
        memcpy(to, flat + l->model.table.stage_start[e->stage] + e->offset, e->count * sizeof *to);
        to += e->count;
    }
    free(flat);
    return out;
}

/* One micro-batch on a tape of its own: the mean loss, and its gradient as lab_tensors. Many
 * threads keep what they can. */
static inline double lab_gradient(struct lab *l, const struct batch *batch, bool recompute,
                                  float **gradient)
{
    struct tape tape;
    const bool all = !recompute && l->dev.threads > MANY_THREADS;
    assert_ok(tape_init(&tape, &l->model, &l->dev, &l->pool,
                        (struct extent){batch->rows, batch->t, DTYPE_F32, all}, recompute));
    lab_zero(l);
    assert_ok(tape_run(&tape, batch, TAPE_TRAIN, 1 / (float)batch->n_targets, l->theta_stage,
                       l->grad_stage));
    struct tape_result r = tape_result(&tape, tape.dev);
    assert_int_equal(r.targets, batch->n_targets);
    tape_free(&tape);
    *gradient = lab_tensors(l, l->grad.view);
    return r.loss / (double)r.targets;
}

/* Begins a micro-batch whose backward writes, and runs it. */
static inline void lab_run_fresh(struct lab *l, struct tape *tape, const struct batch *batch)
{
    const int n = l->model.n_stage;
    assert_ok(tape_begin(tape, batch, TAPE_TRAIN, 1 / (float)batch->n_targets));
    tape_fresh(tape);
    for (int k = 0; k < n; k++)
        assert_ok(tape_forward(tape, k, l->theta_stage));
    for (int k = n - 1; k >= 0; k--)
        assert_ok(tape_backward(tape, k, l->theta_stage, l->grad_stage));
}

/* Gradients written over numbers that are none, padding and all, are those added to zeros, but for
 * the sign of a zero; a second micro-batch adds to them, and what is not fresh adds still. */
static inline void lab_check_fresh(struct lab *l, struct tape *tape, const struct batch *batch)
{
    const size_t count = l->grad.count;
    const float scale = 1 / (float)batch->n_targets;
    float *want[2], *have[2];
    lab_zero(l);
    for (int i = 0; i < 2; i++) {
        assert_ok(tape_run(tape, batch, TAPE_TRAIN, scale, l->theta_stage, l->grad_stage));
        want[i] = lab_read(l, l->grad.view, count);
    }
    l->dev.ops->fill(&l->dev, l->grad.view, count, NAN);
    lab_run_fresh(l, tape, batch);
    have[0] = lab_read(l, l->grad.view, count);
    assert_ok(tape_run(tape, batch, TAPE_TRAIN, scale, l->theta_stage, l->grad_stage));
    have[1] = lab_read(l, l->grad.view, count);
    for (int i = 0; i < 2; i++) {
        for (size_t e = 0; e < count; e++)
            if (!(have[i][e] == want[i][e]))
                fail_with("%d stages: element %zu is %g behind %d micro-batches, not %g",
                          l->model.n_stage, e, have[i][e], i + 1, want[i][e]);
        free(have[i]);
        free(want[i]);
    }
}

/* |a - b| / |b| */
static inline double lab_distance(const float *a, const float *b, size_t count)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += (double)b[i] * b[i];
    }
    return sqrt(difference / norm);
}

static inline void lab_assert_bits(const float *a, const float *b, size_t count, const char *what)
{
    for (size_t i = 0; i < count; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0)
            fail_with("%s: element %zu is %.9g, want %.9g", what, i, a[i], b[i]);
}

/* Bytes of the blocks that wait in the pool. */
static inline size_t lab_idle(const struct pool *pool)
{
    size_t bytes = 0;
    for (const struct pool_block *b = pool->idle; b; b = b->next)
        bytes += b->buffer.count * dtype_size(b->buffer.view.type);
    return bytes;
}

#endif
