/* Ops on flat vectors: chunks of fixed size over threads. An fp32 chunk is computed in place; a
 * bf16 chunk is widened on the thread's stack and rounded back. */
#include <math.h>
#include <string.h>

#include "tensor/cpu/cpu.h"

static size_t chunk_count(size_t count)
{
    return (count + CHUNK - 1) / CHUNK;
}

static size_t chunk_size(size_t c, size_t count)
{
    return min_size(CHUNK, count - c * CHUNK);
}

enum op { FILL, AXPY, AXPBY, SCALE, GELU, GELU_BACK, SWIGLU, SWIGLU_BACK, RELU, RELU_BACK };

/* An op on flat vectors; all views but out[0] are optional. */
struct elementwise_call {
    enum op op;
    struct view out[2], in[3];
    bool adds;  /* out[0] is also read */
    bool sends; /* other threads will read out[0] */
    float a, b;
    enum gelu_kind kind;
};

static void compute_chunk(const struct kernels *k, const struct elementwise_call *c,
                          float *const *out, const float *const *in, size_t n)
{
    switch (c->op) {
    case FILL:
        k->vector->fill(out[0], c->a, n);
        break;
    case AXPY:
        k->vector->axpy(out[0], c->a, in[0], n);
        break;
    case AXPBY:
        k->vector->axpby(out[0], c->b, c->a, in[0], n);
        break;
    case SCALE:
        k->vector->scale(out[0], c->a, n);
        break;
    case GELU:
        k->activation->gelu_forward(c->kind, out[0], in[0], n);
        break;
    case GELU_BACK:
        k->activation->gelu_backward(c->kind, out[0], in[0], in[1], n);
        break;
    case SWIGLU:
        k->activation->swiglu_forward(out[0], in[0], in[1], n);
        break;
    case SWIGLU_BACK:
        k->activation->swiglu_backward(out[0], out[1], in[0], in[1], in[2], n);
        break;
    case RELU:
        k->activation->relu_forward(out[0], in[0], n);
        break;
    case RELU_BACK:
        k->activation->relu_backward(out[0], in[0], in[1], n);
        break;
    }
}

static void each_chunk(struct device *dev, const struct elementwise_call *call, size_t count)
{
    const struct kernels *k = kernels_of(dev);
#pragma omp parallel num_threads(team_size(dev, count))
    {
#pragma omp for schedule(dynamic, chunks_per_turn(chunk_count(count), thread_count())) nowait
        for (size_t c = 0; c < chunk_count(count); c++) {
            float room[5][CHUNK], *out[2];
            const float *in[3];
            const size_t at = c * CHUNK, n = chunk_size(c, count);
            out[0] = call->adds    ? load_floats(k, call->out[0], at, n, room[0])
                     : call->sends ? place_to_send(k, call->out[0], at, room[0])
                                   : place_floats(call->out[0], at, room[0]);
            out[1] = place_floats(call->out[1], at, room[1]);
            for (int i = 0; i < 3; i++)
                in[i] = load_floats(k, call->in[i], at, n, room[2 + i]);
            compute_chunk(k, call, out, in, n);
            send_floats(k, call->out[0], at, n, out[0]);
            store_floats(k, call->out[1], at, n, out[1]);
        }
        finish_sending(k);
    }
}

void cpu_fill(struct device *dev, struct view y, size_t count, float value)
{
    if (value != 0 || signbit(value)) {
        each_chunk(dev, &(struct elementwise_call){FILL, .out = {y}, .a = value}, count);
        return;
    }
    enum { BLOCK = 16 * CHUNK }; /* memset writes zeros without reading them first */
    const size_t size = dtype_size(y.type);
#pragma omp parallel for schedule(static) num_threads(team_size(dev, count))
    for (size_t at = 0; at < count; at += BLOCK)
        memset((char *)y.data + at * size, 0, min_size(BLOCK, count - at) * size);
}

/* Copies n <= CHUNK elements. */
static void copy_chunk(const struct kernels *k, struct view y, struct view x, size_t n)
{
    float room[CHUNK];
    if (y.type == x.type)
        memcpy(y.data, x.data, n * dtype_size(y.type));
    else if (y.type == DTYPE_F32)
        load_floats(k, x, 0, n, y.data);
    else
        store_floats(k, y, 0, n, load_floats(k, x, 0, n, room));
}

void cpu_copy(struct device *dev, struct view y, struct view x, size_t count)
{
    const struct kernels *k = kernels_of(dev);
#pragma omp parallel for schedule(static) num_threads(team_size(dev, count))
    for (size_t c = 0; c < chunk_count(count); c++)
        copy_chunk(k, view_at(y, c * CHUNK), view_at(x, c * CHUNK), chunk_size(c, count));
}

void cpu_copy_rows(struct device *dev, const struct row_copy *p, struct view y, struct view x)
{
    const struct kernels *k = kernels_of(dev);
    const size_t rows = (size_t)p->rows, all = (size_t)p->batch * rows, width = (size_t)p->width;
#pragma omp parallel for schedule(static) num_threads(team_size(dev, all *width))
    for (size_t i = 0; i < all; i++) {
        const size_t b = i / rows, r = i % rows;
        const struct view to = view_at(y, b * p->y_batch_stride + r * p->y_stride);
        const struct view from = view_at(x, b * p->x_batch_stride + r * p->x_stride);
        for (size_t c = 0; c < chunk_count(width); c++)
            copy_chunk(k, view_at(to, c * CHUNK), view_at(from, c * CHUNK), chunk_size(c, width));
    }
}

void cpu_axpy(struct device *dev, struct view y, float a, struct view x, size_t count)
{
    each_chunk(dev, &(struct elementwise_call){AXPY, .out = {y}, .in = {x}, .adds = true, .a = a},
               count);
}

void cpu_axpby(struct device *dev, struct view y, float b, float a, struct view x, size_t count)
{
    each_chunk(
        dev, &(struct elementwise_call){AXPBY, .out = {y}, .in = {x}, .adds = true, .a = a, .b = b},
        count);
}

void cpu_scale(struct device *dev, struct view y, float a, size_t count)
{
    each_chunk(dev, &(struct elementwise_call){SCALE, .out = {y}, .adds = true, .a = a}, count);
}

/* Returns |x - y|^2, or |x|^2 without y. Partial sums of chunks are added in order, so the
 * result is the same for any number of threads. */
static double sum_parts(struct device *dev, struct view x, struct view y, size_t count)
{
    const struct kernels *k = kernels_of(dev);
    size_t parts = chunk_count(count);
    double *partial = device_scratch(dev, (parts + 1) * sizeof *partial);
    if (!partial)
        return 0;
#pragma omp parallel for schedule(static) num_threads(team_size(dev, count))
    for (size_t c = 0; c < parts; c++) {
        float room[CHUNK], y_room[CHUNK];
        size_t at = c * CHUNK, n = chunk_size(c, count);
        const float *part = load_floats(k, x, at, n, room);
        if (y.data) {
            if (part != room)
                memcpy(room, part, n * sizeof *room);
            k->vector->axpy(room, -1, load_floats(k, y, at, n, y_room), n);
            part = room;
        }
        partial[c] = k->vector->sum_squares(part, n);
    }
    double sum = 0;
    for (size_t c = 0; c < parts; c++)
        sum += partial[c];
    return sum;
}

double cpu_sum_squares(struct device *dev, const struct vector_pair *p, int n, double *each)
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
    each_chunk(dev,
               &(struct elementwise_call){GELU, .out = {y}, .in = {x}, .sends = true, .kind = kind},
               count);
}

void cpu_gelu_backward(struct device *dev, enum gelu_kind kind, struct view dx, struct view dy,
                       struct view x, size_t count)
{
    each_chunk(dev, &(struct elementwise_call){GELU_BACK, .out = {dx}, .in = {dy, x}, .kind = kind},
               count);
}

void cpu_swiglu_forward(struct device *dev, struct view y, struct view gate, struct view up,
                        size_t count)
{
    each_chunk(dev, &(struct elementwise_call){SWIGLU, .out = {y}, .sends = true, .in = {gate, up}},
               count);
}

void cpu_swiglu_backward(struct device *dev, struct view dgate, struct view dup, struct view dy,
                         struct view gate, struct view up, size_t count)
{
    each_chunk(dev,
               &(struct elementwise_call){SWIGLU_BACK, .out = {dgate, dup}, .in = {dy, gate, up}},
               count);
}

void cpu_relu_forward(struct device *dev, struct view y, struct view x, size_t count)
{
    each_chunk(dev, &(struct elementwise_call){RELU, .out = {y}, .in = {x}}, count);
}

void cpu_relu_backward(struct device *dev, struct view dx, struct view dy, struct view y,
                       size_t count)
{
    each_chunk(dev, &(struct elementwise_call){RELU_BACK, .out = {dx}, .in = {dy, y}}, count);
}
