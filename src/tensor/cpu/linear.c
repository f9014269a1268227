/* Linear layers: products over panels of outputs.
 *
 * Where everything is fp32 there is one panel and nothing is copied. A bf16 operand is widened into
 * scratch, panel by panel, so that a head of 50 thousand outputs does not need scratch of its size.
 */
#include "tensor/cpu/cpu.h"

enum { PANEL = 4 << 20 }; /* elements of a widened panel */

/* A matrix as fp32: the view itself or a widened copy. */
struct matrix {
    float *data;
    size_t ld;
};

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static bool is_half(struct view v)
{
    return v.data && v.type == DTYPE_BF16;
}

static size_t panel_size(const struct linear *p, bool half)
{
    size_t out = (size_t)p->out;
    if (!half)
        return out;
    size_t deep = larger(larger((size_t)p->rows, (size_t)p->in), 1);
    return min_size(out, round_up(PANEL / deep + 1, 64));
}

/* Columns [at, at + columns) of a (rows, stride) view; widened into `room` where it is bf16.
 * `read`: its values are wanted. */
static struct matrix open_block(struct device *dev, struct view x, size_t rows, size_t stride,
                                size_t at, size_t columns, float *room, bool read)
{
    const struct kernels *k = kernels_of(dev);
    if (x.type == DTYPE_F32)
        return (struct matrix){(float *)x.data + at, stride};
    if (read) {
#pragma omp parallel for schedule(static) num_threads(team(dev, rows *columns))
        for (size_t r = 0; r < rows; r++)
            load(k, x, r * stride + at, columns, room + r * columns);
    }
    return (struct matrix){room, columns};
}

/* Rounds what was computed in a bf16 block back into its view. */
static void close_block(struct device *dev, struct view x, size_t rows, size_t stride, size_t at,
                        size_t columns, struct matrix block)
{
    const struct kernels *k = kernels_of(dev);
    if (x.type == DTYPE_F32)
        return;
#pragma omp parallel for schedule(static) num_threads(team(dev, rows *columns))
    for (size_t r = 0; r < rows; r++)
        store(k, x, r * stride + at, columns, block.data + r * block.ld);
}

/* The panel of w that makes outputs [at, at + n). */
static struct matrix open_weight(struct device *dev, const struct linear *p, struct view w,
                                 size_t at, size_t n, float *room)
{
    size_t in = (size_t)p->in;
    if (p->layout == LINEAR_OUT_IN)
        return open_block(dev, view_at(w, at * in), n, in, 0, in, room, true);
    return open_block(dev, w, in, (size_t)p->out, at, n, room, true);
}

static void close_weight(struct device *dev, const struct linear *p, struct view w, size_t at,
                         size_t n, struct matrix block)
{
    size_t in = (size_t)p->in;
    if (p->layout == LINEAR_OUT_IN)
        close_block(dev, view_at(w, at * in), n, in, 0, in, block);
    else
        close_block(dev, w, in, (size_t)p->out, at, n, block);
}

/* y = bias + residual in pieces of CHUNK columns, ready for a product to be added. */
static void start_row(const struct kernels *k, float *y, struct view bias, struct view residual,
                      size_t bias_at, size_t residual_at, size_t n)
{
    float room[CHUNK];
    for (size_t c = 0; c < n; c += CHUNK) {
        size_t size = min_size(CHUNK, n - c);
        float *to = y + c;
        const float *first = load(k, residual, residual_at + c, size, room);
        if (!first)
            memset(to, 0, size * sizeof *to);
        else if (first != to)
            memcpy(to, first, size * sizeof *to);
        if (bias.data)
            k->vector->add(to, load(k, bias, bias_at + c, size, room), size);
    }
}

void cpu_linear_forward(struct device *dev, const struct linear *p, struct view y, struct view x,
                        struct view w, struct view bias, struct view residual)
{
    const struct kernels *k = kernels_of(dev);
    size_t rows = (size_t)p->rows, in = (size_t)p->in, out = (size_t)p->out;
    size_t n = panel_size(p, is_half(y) || is_half(w));
    size_t x_room = is_half(x) ? rows * in : 0, w_room = is_half(w) ? n * in : 0;
    size_t y_room = is_half(y) ? rows * n : 0;
    float *room = device_scratch(dev, (x_room + w_room + y_room + 1) * sizeof *room);
    if (!room)
        return;
    struct matrix mx = open_block(dev, x, rows, in, 0, in, room, true);
    for (size_t at = 0; at < out; at += n) {
        n = min_size(n, out - at);
        struct matrix mw = open_weight(dev, p, w, at, n, room + x_room);
        struct matrix my = open_block(dev, y, rows, out, at, n, room + x_room + w_room, false);
        bool start = bias.data || residual.data;
        if (start) {
#pragma omp parallel for schedule(static) num_threads(team(dev, rows *n))
            for (size_t r = 0; r < rows; r++)
                start_row(k, my.data + r * my.ld, bias, residual, at, r * out + at, n);
        }
        cpu_gemm(dev, false, p->layout == LINEAR_OUT_IN, p->rows, (int)n, p->in, mx.data, mx.ld,
                 mw.data, mw.ld, start ? 1 : 0, my.data, my.ld);
        close_block(dev, y, rows, out, at, n, my);
    }
}

void cpu_linear_backward_x(struct device *dev, const struct linear *p, struct view dx,
                           struct view dy, struct view w, bool add)
{
    size_t rows = (size_t)p->rows, in = (size_t)p->in, out = (size_t)p->out;
    size_t n = panel_size(p, is_half(dy) || is_half(w));
    size_t dx_room = is_half(dx) ? rows * in : 0, w_room = is_half(w) ? n * in : 0;
    size_t dy_room = is_half(dy) ? rows * n : 0;
    float *room = device_scratch(dev, (dx_room + w_room + dy_room + 1) * sizeof *room);
    if (!room)
        return;
    struct matrix mx = open_block(dev, dx, rows, in, 0, in, room, add);
    for (size_t at = 0; at < out; at += n) {
        n = min_size(n, out - at);
        struct matrix mw = open_weight(dev, p, w, at, n, room + dx_room);
        struct matrix my = open_block(dev, dy, rows, out, at, n, room + dx_room + w_room, true);
        cpu_gemm(dev, false, p->layout == LINEAR_IN_OUT, p->rows, p->in, (int)n, my.data, my.ld,
                 mw.data, mw.ld, add || at > 0 ? 1 : 0, mx.data, mx.ld);
    }
    close_block(dev, dx, rows, in, 0, in, mx);
}

/* Threads own columns, so that a column is summed in the order of its rows. */
static void add_column_sums(struct device *dev, struct view sums, size_t at, struct matrix y,
                            size_t rows, size_t n)
{
    const struct kernels *k = kernels_of(dev);
    enum { STRIP = 256 };
#pragma omp parallel for schedule(static) num_threads(team(dev, rows *n))
    for (size_t c = 0; c < n; c += STRIP) {
        size_t size = min_size(STRIP, n - c);
        float room[STRIP], total[STRIP] = {0};
        for (size_t r = 0; r < rows; r++)
            k->vector->add(total, y.data + r * y.ld + c, size);
        float *to = load(k, sums, at + c, size, room);
        k->vector->add(to, total, size);
        store(k, sums, at + c, size, to);
    }
}

void cpu_linear_backward_w(struct device *dev, const struct linear *p, struct view dw,
                           struct view dbias, struct view dy, struct view x)
{
    size_t rows = (size_t)p->rows, in = (size_t)p->in, out = (size_t)p->out;
    size_t n = panel_size(p, is_half(dy) || is_half(dw));
    size_t x_room = is_half(x) ? rows * in : 0, w_room = is_half(dw) ? n * in : 0;
    size_t dy_room = is_half(dy) ? rows * n : 0;
    float *room = device_scratch(dev, (x_room + w_room + dy_room + 1) * sizeof *room);
    if (!room)
        return;
    struct matrix mx = open_block(dev, x, rows, in, 0, in, room, true);
    for (size_t at = 0; at < out; at += n) {
        n = min_size(n, out - at);
        struct matrix mw = open_weight(dev, p, dw, at, n, room + x_room);
        struct matrix my = open_block(dev, dy, rows, out, at, n, room + x_room + w_room, true);
        if (p->layout == LINEAR_OUT_IN)
            cpu_gemm(dev, true, false, (int)n, p->in, p->rows, my.data, my.ld, mx.data, mx.ld, 1,
                     mw.data, mw.ld);
        else
            cpu_gemm(dev, true, false, p->in, (int)n, p->rows, mx.data, mx.ld, my.data, my.ld, 1,
                     mw.data, mw.ld);
        if (dbias.data)
            add_column_sums(dev, dbias, at, my, rows, n);
        close_weight(dev, p, dw, at, n, mw);
    }
}
