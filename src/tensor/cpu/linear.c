/* Linear layers: products over panels of outputs.
 *
 * Where everything is fp32 there is one panel and nothing is copied. A bf16 operand is widened into
 * scratch, panel by panel, so that a head of 50 thousand outputs does not need scratch of its size;
 * weights are not where the kernels multiply bf16. */
#include "tensor/cpu/gemm.h"

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

/* Columns [at, at + columns) of a (rows, stride) view; widened into `room` where it is bf16. */
static struct matrix open_block(struct device *dev, struct view x, size_t rows, size_t stride,
                                size_t at, size_t columns, float *room)
{
    const struct kernels *k = kernels_of(dev);
    if (x.type == DTYPE_F32)
        return (struct matrix){x.data ? (float *)x.data + at : NULL, stride};
#pragma omp parallel for schedule(static) num_threads(team(dev, rows *columns))
    for (size_t r = 0; r < rows; r++)
        load(k, x, r * stride + at, columns, room + r * columns);
    return (struct matrix){room, columns};
}

/* Columns [at, at + columns) of y are what a product makes; it rounds them where y is bf16.
 * `first`: and adds to what is there; `last`: nothing else will be added. */
static void write_block(struct gemm *g, struct view y, size_t stride, size_t at, size_t columns,
                        float *room, bool first, bool last)
{
    const bool half = is_half(y);
    uint16_t *to = half ? (uint16_t *)y.data + at : NULL;
    g->c = !half ? (float *)y.data + at : g->tiles ? NULL : room;
    g->ldc = half ? columns : stride;
    g->c_from = first ? to : NULL;
    g->c_to = last ? to : NULL;
    g->ld_half = stride;
}

/* The panel of w that makes outputs [at, at + n), as the right operand. */
static void read_weight(struct device *dev, struct gemm *g, const struct linear *p, struct view w,
                        size_t at, size_t n, float *room)
{
    if (cpu_gemm_takes_half(g->m) && is_half(w)) {
        const bool out_in = p->layout == LINEAR_OUT_IN;
        g->b_half = (const uint16_t *)w.data + (out_in ? at * (size_t)p->in : at);
        g->ldb = (size_t)(out_in ? p->in : p->out);
        return;
    }
    const size_t in = (size_t)p->in;
    const struct matrix m = p->layout == LINEAR_OUT_IN
                                ? open_block(dev, view_at(w, at * in), n, in, 0, in, room)
                                : open_block(dev, w, in, (size_t)p->out, at, n, room);
    g->b = m.data, g->ldb = m.ld;
}

void cpu_linear_forward(struct device *dev, const struct linear *p, struct view y, struct view x,
                        struct view w, struct view bias, struct view residual)
{
    size_t rows = (size_t)p->rows, in = (size_t)p->in, out = (size_t)p->out;
    bool widened = is_half(w) && !cpu_gemm_takes_half(p->rows);
    size_t n = panel_size(p, is_half(y) || widened || is_half(bias) || is_half(residual));
    size_t gemm_room = cpu_gemm_room(dev, p->rows, (int)n, p->in, is_half(w));
    size_t x_room = is_half(x) ? rows * in : 0, w_room = widened ? n * in : 0;
    size_t y_room = is_half(y) ? rows * n : 0, residual_room = is_half(residual) ? rows * n : 0;
    size_t bias_room = is_half(bias) ? n : 0;
    const size_t floats[] = {gemm_room, x_room, w_room, y_room, residual_room, bias_room};
    struct room room = cpu_room(dev, floats, 6);
    if (!room.data)
        return;
    struct gemm g = {
        .m = p->rows, .k = p->in, .trans_b = p->layout == LINEAR_OUT_IN, .half = is_half(w)};
    g.room = cpu_take(&room, gemm_room);
    struct matrix mx = open_block(dev, x, rows, in, 0, in, cpu_take(&room, x_room));
    float *w_at = cpu_take(&room, w_room), *y_at = cpu_take(&room, y_room);
    float *residual_at = cpu_take(&room, residual_room), *bias_at = cpu_take(&room, bias_room);
    g.a = mx.data, g.lda = mx.ld;
    for (size_t at = 0; at < out; at += n) {
        n = min_size(n, out - at);
        read_weight(dev, &g, p, w, at, n, w_at);
        struct matrix mr = open_block(dev, residual, rows, out, at, n, residual_at);
        g.n = (int)n;
        write_block(&g, y, out, at, n, y_at, false, true);
        g.residual = mr.data, g.ld_residual = mr.ld;
        g.bias = load(kernels_of(dev), bias, at, n, bias_at);
        cpu_gemm(dev, &g);
    }
}

void cpu_linear_backward_x(struct device *dev, const struct linear *p, struct view dx,
                           struct view dy, struct view w, bool add)
{
    size_t rows = (size_t)p->rows, in = (size_t)p->in, out = (size_t)p->out;
    bool widened = is_half(w) && !cpu_gemm_takes_half(p->rows);
    size_t n = panel_size(p, is_half(dy) || widened);
    size_t gemm_room = cpu_gemm_room(dev, p->rows, p->in, (int)n, is_half(w));
    size_t dx_room = is_half(dx) ? rows * in : 0, w_room = widened ? n * in : 0;
    size_t dy_room = is_half(dy) ? rows * n : 0;
    const size_t floats[] = {gemm_room, dx_room, w_room, dy_room};
    struct room room = cpu_room(dev, floats, 4);
    if (!room.data)
        return;
    struct gemm g = {
        .m = p->rows, .n = p->in, .trans_b = p->layout == LINEAR_IN_OUT, .half = is_half(w)};
    g.room = cpu_take(&room, gemm_room);
    float *dx_at = cpu_take(&room, dx_room);
    float *w_at = cpu_take(&room, w_room), *dy_at = cpu_take(&room, dy_room);
    for (size_t at = 0; at < out; at += n) {
        n = min_size(n, out - at);
        read_weight(dev, &g, p, w, at, n, w_at);
        struct matrix my = open_block(dev, dy, rows, out, at, n, dy_at);
        write_block(&g, dx, in, 0, in, dx_at, add && at == 0, at + n == out);
        g.k = (int)n;
        g.a = my.data, g.lda = my.ld;
        g.add = add || at > 0;
        cpu_gemm(dev, &g);
    }
}

/* Threads own columns, so that a column is summed in the order of its rows. */
void cpu_add_columns(struct device *dev, struct view sums, size_t at, struct view y, size_t stride,
                     size_t rows, size_t n)
{
    const struct kernels *k = kernels_of(dev);
    enum { STRIP = 256, NARROW = 64 };
    const int threads = team(dev, rows * n);
    const size_t strip = n < STRIP * (size_t)threads ? NARROW : STRIP;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (size_t c = 0; c < n; c += strip) {
        size_t size = min_size(strip, n - c);
        float room[STRIP], total[STRIP] = {0};
        for (size_t r = 0; r < rows; r++)
            k->vector->add(total, load(k, y, r * stride + c, size, room), size);
        float *to = load(k, sums, at + c, size, room);
        k->vector->add(to, total, size);
        store(k, sums, at + c, size, to);
    }
}

void cpu_linear_backward_w(struct device *dev, const struct linear *p, struct view dw,
                           struct view dbias, struct view dy, struct view x)
{
    size_t rows = (size_t)p->rows, in = (size_t)p->in, out = (size_t)p->out;
    bool out_in = p->layout == LINEAR_OUT_IN, half = p->half || is_half(dw);
    size_t tiles = is_half(dw) ? cpu_gemm_tiles(dev, p->rows, half) : 0;
    bool whole = is_half(dw) && !tiles; /* c is as large as a panel */
    size_t n = panel_size(p, is_half(dy) || whole);
    size_t gemm_room = out_in ? cpu_gemm_room(dev, (int)n, p->in, p->rows, half)
                              : cpu_gemm_room(dev, p->in, (int)n, p->rows, half);
    size_t x_room = is_half(x) ? rows * in : 0, w_room = whole ? n * in : 0;
    size_t dy_room = is_half(dy) ? rows * n : 0;
    const size_t floats[] = {gemm_room, tiles, x_room, w_room, dy_room};
    struct room room = cpu_room(dev, floats, 5);
    if (!room.data)
        return;
    struct gemm g = {.k = p->rows, .trans_a = true, .add = !p->fresh, .half = half};
    g.room = cpu_take(&room, gemm_room);
    if (tiles)
        g.tiles = cpu_take(&room, tiles);
    struct matrix mx = open_block(dev, x, rows, in, 0, in, cpu_take(&room, x_room));
    float *w_at = cpu_take(&room, w_room), *dy_at = cpu_take(&room, dy_room);
    for (size_t at = 0; at < out; at += n) {
        n = min_size(n, out - at);
        struct matrix my = open_block(dev, dy, rows, out, at, n, dy_at);
        struct matrix ma = out_in ? my : mx, mb = out_in ? mx : my;
        g.m = out_in ? (int)n : p->in;
        g.n = out_in ? p->in : (int)n;
        g.a = ma.data, g.lda = ma.ld;
        g.b = mb.data, g.ldb = mb.ld;
        if (out_in)
            write_block(&g, view_at(dw, at * in), in, 0, in, w_at, !p->fresh, true);
        else
            write_block(&g, dw, out, at, n, w_at, !p->fresh, true);
        cpu_gemm(dev, &g);
        if (dbias.data)
            cpu_add_columns(dev, dbias, at, view_of(my.data, DTYPE_F32), my.ld, rows, n);
    }
}
