/* Flat vectors: chunks of fixed size over threads. An fp32 chunk is worked on in place; a bf16
 * chunk is widened into the thread's stack and rounded back. */
#include <string.h>

#include "tensor/cpu/cpu.h"

static size_t chunks(size_t count)
{
    return (count + CHUNK - 1) / CHUNK;
}

static size_t chunk_size(size_t c, size_t count)
{
    return min_size(CHUNK, count - c * CHUNK);
}

void cpu_fill(struct device *dev, struct view y, size_t count, float value)
{
    const struct kernels *k = kernels_of(dev);
#pragma omp parallel for schedule(static) num_threads(team(dev, count))
    for (size_t c = 0; c < chunks(count); c++) {
        float room[CHUNK];
        size_t at = c * CHUNK, n = chunk_size(c, count);
        float *out = place(y, at, room);
        k->vector->fill(out, value, n);
        store(k, y, at, n, out);
    }
}

/* n <= CHUNK elements. */
static void copy_chunk(const struct kernels *k, struct view y, struct view x, size_t n)
{
    float room[CHUNK];
    if (y.type == x.type)
        memcpy(y.data, x.data, n * dtype_size(y.type));
    else if (y.type == DTYPE_F32)
        load(k, x, 0, n, y.data);
    else
        store(k, y, 0, n, load(k, x, 0, n, room));
}

void cpu_copy(struct device *dev, struct view y, struct view x, size_t count)
{
    const struct kernels *k = kernels_of(dev);
#pragma omp parallel for schedule(static) num_threads(team(dev, count))
    for (size_t c = 0; c < chunks(count); c++)
        copy_chunk(k, view_at(y, c * CHUNK), view_at(x, c * CHUNK), chunk_size(c, count));
}

void cpu_copy_rows(struct device *dev, const struct row_copy *p, struct view y, struct view x)
{
    const struct kernels *k = kernels_of(dev);
    const size_t rows = (size_t)p->rows, all = (size_t)p->batch * rows, width = (size_t)p->width;
#pragma omp parallel for schedule(static) num_threads(team(dev, all *width))
    for (size_t i = 0; i < all; i++) {
        const size_t b = i / rows, r = i % rows;
        const struct view to = view_at(y, b * p->y_batch_stride + r * p->y_stride);
        const struct view from = view_at(x, b * p->x_batch_stride + r * p->x_stride);
        for (size_t c = 0; c < chunks(width); c++)
            copy_chunk(k, view_at(to, c * CHUNK), view_at(from, c * CHUNK), chunk_size(c, width));
    }
}

void cpu_axpy(struct device *dev, struct view y, float a, struct view x, size_t count)
{
    const struct kernels *k = kernels_of(dev);
#pragma omp parallel for schedule(static) num_threads(team(dev, count))
    for (size_t c = 0; c < chunks(count); c++) {
        float y_room[CHUNK], x_room[CHUNK];
        size_t at = c * CHUNK, n = chunk_size(c, count);
        float *out = load(k, y, at, n, y_room);
        k->vector->axpy(out, a, load(k, x, at, n, x_room), n);
        store(k, y, at, n, out);
    }
}

void cpu_scale(struct device *dev, struct view y, float a, size_t count)
{
    const struct kernels *k = kernels_of(dev);
#pragma omp parallel for schedule(static) num_threads(team(dev, count))
    for (size_t c = 0; c < chunks(count); c++) {
        float room[CHUNK];
        size_t at = c * CHUNK, n = chunk_size(c, count);
        float *out = load(k, y, at, n, room);
        k->vector->scale(out, a, n);
        store(k, y, at, n, out);
    }
}

/* |x - y|^2, or |x|^2 without y. One partial sum a chunk, added in order: the result is the same
 * for any number of threads. */
static double sum_parts(struct device *dev, struct view x, struct view y, size_t count)
{
    const struct kernels *k = kernels_of(dev);
    size_t parts = chunks(count);
    double *partial = device_scratch(dev, (parts + 1) * sizeof *partial);
    if (!partial)
        return 0;
#pragma omp parallel for schedule(static) num_threads(team(dev, count))
    for (size_t c = 0; c < parts; c++) {
        float room[CHUNK], y_room[CHUNK];
        size_t at = c * CHUNK, n = chunk_size(c, count);
        const float *part = load(k, x, at, n, room);
        if (y.data) {
            if (part != room)
                memcpy(room, part, n * sizeof *room);
            k->vector->axpy(room, -1, load(k, y, at, n, y_room), n);
            part = room;
        }
        partial[c] = k->vector->sum_squares(part, n);
    }
    double sum = 0;
    for (size_t c = 0; c < parts; c++)
        sum += partial[c];
    return sum;
}

double cpu_sum_squares(struct device *dev, const struct pair *p, int n, double *each)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        const double part = sum_parts(dev, p[i].x, p[i].y, p[i].count);
        sum += part;
        if (each)
            each[i] = part;
    }
    return sum;
}

void cpu_gelu_forward(struct device *dev, enum gelu_kind kind, struct view y, struct view x,
                      size_t count)
{
    const struct kernels *k = kernels_of(dev);
#pragma omp parallel for schedule(static) num_threads(team(dev, count))
    for (size_t c = 0; c < chunks(count); c++) {
        float y_room[CHUNK], x_room[CHUNK];
        size_t at = c * CHUNK, n = chunk_size(c, count);
        float *out = place(y, at, y_room);
        k->activation->gelu_forward(kind, out, load(k, x, at, n, x_room), n);
        store(k, y, at, n, out);
    }
}

void cpu_gelu_backward(struct device *dev, enum gelu_kind kind, struct view dx, struct view dy,
                       struct view x, size_t count)
{
    const struct kernels *k = kernels_of(dev);
#pragma omp parallel for schedule(static) num_threads(team(dev, count))
    for (size_t c = 0; c < chunks(count); c++) {
        float dx_room[CHUNK], dy_room[CHUNK], x_room[CHUNK];
        size_t at = c * CHUNK, n = chunk_size(c, count);
        float *out = place(dx, at, dx_room);
        k->activation->gelu_backward(kind, out, load(k, dy, at, n, dy_room),
                                     load(k, x, at, n, x_room), n);
        store(k, dx, at, n, out);
    }
}

void cpu_swiglu_forward(struct device *dev, struct view y, struct view gate, struct view up,
                        size_t count)
{
    const struct kernels *k = kernels_of(dev);
#pragma omp parallel for schedule(static) num_threads(team(dev, count))
    for (size_t c = 0; c < chunks(count); c++) {
        float y_room[CHUNK], gate_room[CHUNK], up_room[CHUNK];
        size_t at = c * CHUNK, n = chunk_size(c, count);
        float *out = place(y, at, y_room);
        k->activation->swiglu_forward(out, load(k, gate, at, n, gate_room),
                                      load(k, up, at, n, up_room), n);
        store(k, y, at, n, out);
    }
}

void cpu_swiglu_backward(struct device *dev, struct view dgate, struct view dup, struct view dy,
                         struct view gate, struct view up, size_t count)
{
    const struct kernels *k = kernels_of(dev);
#pragma omp parallel for schedule(static) num_threads(team(dev, count))
    for (size_t c = 0; c < chunks(count); c++) {
        float dgate_room[CHUNK], dup_room[CHUNK], dy_room[CHUNK], gate_room[CHUNK], up_room[CHUNK];
        size_t at = c * CHUNK, n = chunk_size(c, count);
        float *dgate_out = place(dgate, at, dgate_room), *dup_out = place(dup, at, dup_room);
        k->activation->swiglu_backward(dgate_out, dup_out, load(k, dy, at, n, dy_room),
                                       load(k, gate, at, n, gate_room), load(k, up, at, n, up_room),
                                       n);
        store(k, dgate, at, n, dgate_out);
        store(k, dup, at, n, dup_out);
    }
}

void cpu_relu_forward(struct device *dev, struct view y, struct view x, size_t count)
{
    const struct kernels *k = kernels_of(dev);
#pragma omp parallel for schedule(static) num_threads(team(dev, count))
    for (size_t c = 0; c < chunks(count); c++) {
        float y_room[CHUNK], x_room[CHUNK];
        size_t at = c * CHUNK, n = chunk_size(c, count);
        float *out = place(y, at, y_room);
        k->activation->relu_forward(out, load(k, x, at, n, x_room), n);
        store(k, y, at, n, out);
    }
}

void cpu_relu_backward(struct device *dev, struct view dx, struct view dy, struct view y,
                       size_t count)
{
    const struct kernels *k = kernels_of(dev);
#pragma omp parallel for schedule(static) num_threads(team(dev, count))
    for (size_t c = 0; c < chunks(count); c++) {
        float dx_room[CHUNK], dy_room[CHUNK], y_room[CHUNK];
        size_t at = c * CHUNK, n = chunk_size(c, count);
        float *out = place(dx, at, dx_room);
        k->activation->relu_backward(out, load(k, dy, at, n, dy_room), load(k, y, at, n, y_room),
                                     n);
        store(k, dx, at, n, out);
    }
}
