/* Linear layers: products over panels of outputs.
 *
 * With fp32 operands there is one panel, and nothing is copied. A bf16 operand is widened into
 * scratch, panel by panel, so that a head of 50 thousand outputs does not need scratch of its size;
 * a bf16 weight is not widened where kernels multiply bf16. */
#include "tensor/cpu/gemm/gemm.h"

enum { PANEL = 4 << 20 }; /* elements of a widened panel */

/* An fp32 matrix: the view itself or a widened copy. */
struct matrix {
    float *data;
    size_t ld;
};

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t panel_size(const struct linear *p, bool half)
{
    size_t out = (size_t)p->out;
    if (!half)
        return out;
    size_t deep = max_size(max_size((size_t)p->rows, (size_t)p->in), 1);
    return min_size(out, round_up(PANEL / deep + 1, 64));
}

/* Returns columns [at, at + columns) of a (rows, stride) view, widened into `room` if bf16. */
static struct matrix open_block(struct device *dev, struct view x, size_t rows, size_t stride,
                                size_t at, size_t columns, float *room)
{
    const struct kernels *k = kernels_of(dev);
    if (x.type == DTYPE_F32)
        return (struct matrix){x.data ? (float *)x.data + at : NULL, stride};
#pragma omp parallel for schedule(static) num_threads(team_size(dev, rows *columns))
    for (size_t r = 0; r < rows; r++)
        load_floats(k, x, r * stride + at, columns, room + r * columns);
    return (struct matrix){room, columns};
}

/* Makes columns [at, at + columns) of y the result of a product, rounded if y is bf16. `first`:
 * the product adds to y; `last`: no later product adds to y. */
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

/* Makes the panel of w for outputs [at, at + n) the right operand of a product. */
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
        g.bias = load_floats(kernels_of(dev), bias, at, n, bias_at);
        cpu_gemm(dev, &g);
    }
}

/* sums += column sums of y. A thread owns columns, so that a column is summed in the order of
 * its rows. */
void cpu_add_columns(struct device *dev, struct view sums, struct view y, size_t stride,
                     size_t rows, size_t n)
{
    const struct kernels *k = kernels_of(dev);
    enum { STRIP = 256, NARROW = 64 };
    const int threads = team_size(dev, rows * n);
    const size_t strip = n < STRIP * (size_t)threads ? NARROW : STRIP;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (size_t c = 0; c < n; c += strip) {
        size_t size = min_size(strip, n - c);
        float room[STRIP], total[STRIP] = {0};
        for (size_t r = 0; r < rows; r++)
            k->vector->add(total, load_floats(k, y, r * stride + c, size, room), size);
        float *to = load_floats(k, sums, c, size, room);
        k->vector->add(to, total, size);
        store_floats(k, sums, c, size, to);
    }
}

enum { GEMM, TILES, RESULT, WEIGHT, DY, X, PIECES };

/* A product of a backward pass: outputs of a panel, and scratch by piece; at[i] is NULL for a
 * piece of 0 floats. */
struct backward_product {
    size_t n;
    size_t floats[PIECES];
    float *at[PIECES];
};

static struct backward_product backward_x(const struct device *dev, const struct linear *p,
                                          struct view dx, struct view dy, struct view w)
{
    const size_t rows = (size_t)p->rows, in = (size_t)p->in;
    const bool widened = is_half(w) && !cpu_gemm_takes_half(p->rows);
    const size_t n = panel_size(p, is_half(dy) || widened);
    return (struct backward_product){
        .n = n,
        .floats = {[GEMM] = cpu_gemm_room(dev, p->rows, p->in, (int)n, is_half(w)),
                   [RESULT] = is_half(dx) ? rows * in : 0,
                   [WEIGHT] = widened ? n * in : 0,
                   [DY] = is_half(dy) ? rows * n : 0}};
}

static struct backward_product backward_w(const struct device *dev, const struct linear *p,
                                          struct view dw, struct view dy, struct view x)
{
    const size_t rows = (size_t)p->rows, in = (size_t)p->in;
    const bool out_in = p->layout == LINEAR_OUT_IN, half = p->half || is_half(dw);
    const size_t tiles = is_half(dw) ? cpu_gemm_tiles(dev, p->rows, half) : 0;
    const bool whole = is_half(dw) && !tiles; /* c is as large as a panel */
    const size_t n = panel_size(p, is_half(dy) || whole);
    return (struct backward_product){
        .n = n,
        .floats = {[GEMM] = out_in ? cpu_gemm_room(dev, (int)n, p->in, p->rows, half)
                                   : cpu_gemm_room(dev, p->in, (int)n, p->rows, half),
                   [TILES] = tiles,
                   [RESULT] = whole ? n * in : 0,
                   [DY] = is_half(dy) ? rows * n : 0,
                   [X] = is_half(x) ? rows * in : 0}};
}

/* Takes scratch for one product, or for both. Returns false if there is too little memory. */
static bool take_backward_scratch(struct device *dev, struct backward_product *one,
                                  struct backward_product *other)
{
    struct backward_product *both[] = {one, other};
    size_t floats[2 * PIECES] = {0};
    for (int i = 0; i < 2 && both[i]; i++)
        memcpy(floats + i * PIECES, both[i]->floats, sizeof both[i]->floats);
    struct room room = cpu_room(dev, floats, 2 * PIECES);
    for (int i = 0; i < 2 && both[i] && room.data; i++)
        for (int piece = 0; piece < PIECES; piece++)
            if (both[i]->floats[piece])
                both[i]->at[piece] = cpu_take(&room, both[i]->floats[piece]);
    return room.data;
}

/* Returns the product for dx over the panel of outputs that begins at `at`. */
static struct gemm panel_x(struct device *dev, const struct linear *p,
                           const struct backward_product *b, struct view dx, struct view dy,
                           struct view w, bool add, size_t at)
{
    const size_t rows = (size_t)p->rows, in = (size_t)p->in, out = (size_t)p->out;
    const size_t n = min_size(b->n, out - at);
    struct gemm g = {.m = p->rows,
                     .n = p->in,
                     .k = (int)n,
                     .trans_b = p->layout == LINEAR_IN_OUT,
                     .half = is_half(w),
                     .add = add || at > 0,
                     .room = b->at[GEMM]};
    read_weight(dev, &g, p, w, at, n, b->at[WEIGHT]);
    const struct matrix my = open_block(dev, dy, rows, out, at, n, b->at[DY]);
    g.a = my.data, g.lda = my.ld;
    write_block(&g, dx, in, 0, in, b->at[RESULT], add && at == 0, at + n == out);
    return g;
}

static struct gemm panel_w(struct device *dev, const struct linear *p,
                           const struct backward_product *b, struct view dw, struct view dy,
                           struct matrix x, size_t at)
{
    const size_t rows = (size_t)p->rows, in = (size_t)p->in, out = (size_t)p->out;
    const size_t n = min_size(b->n, out - at);
    const bool out_in = p->layout == LINEAR_OUT_IN;
    const struct matrix my = open_block(dev, dy, rows, out, at, n, b->at[DY]);
    const struct matrix left = out_in ? my : x, right = out_in ? x : my;
    struct gemm g = {.m = out_in ? (int)n : p->in,
                     .n = out_in ? p->in : (int)n,
                     .k = p->rows,
                     .trans_a = true,
                     .add = !p->fresh,
                     .half = p->half || is_half(dw),
                     .a = left.data,
                     .lda = left.ld,
                     .b = right.data,
                     .ldb = right.ld,
                     .room = b->at[GEMM],
                     .tiles = b->at[TILES]};
    if (out_in)
        write_block(&g, view_at(dw, at * in), in, 0, in, b->at[RESULT], !p->fresh, true);
    else
        write_block(&g, dw, out, at, n, b->at[RESULT], !p->fresh, true);
    return g;
}

static struct matrix open_x(struct device *dev, const struct linear *p,
                            const struct backward_product *b, struct view x)
{
    return open_block(dev, x, (size_t)p->rows, (size_t)p->in, 0, (size_t)p->in, b->at[X]);
}

void cpu_linear_backward_x(struct device *dev, const struct linear *p, struct view dx,
                           struct view dy, struct view w, bool add)
{
    struct backward_product b = backward_x(dev, p, dx, dy, w);
    if (!take_backward_scratch(dev, &b, NULL))
        return;
    for (size_t at = 0; at < (size_t)p->out; at += b.n) {
        const struct gemm g = panel_x(dev, p, &b, dx, dy, w, add, at);
        cpu_gemm(dev, &g);
    }
}

void cpu_linear_backward_w(struct device *dev, const struct linear *p, struct view dw,
                           struct view dbias, struct view dy, struct view x)
{
    const size_t rows = (size_t)p->rows, out = (size_t)p->out;
    struct backward_product b = backward_w(dev, p, dw, dy, x);
    if (!take_backward_scratch(dev, &b, NULL))
        return;
    const struct matrix mx = open_x(dev, p, &b, x);
    for (size_t at = 0; at < out; at += b.n) {
        const struct gemm g = panel_w(dev, p, &b, dw, dy, mx, at);
        cpu_gemm(dev, &g);
    }
    if (dbias.data)
        cpu_add_columns(dev, dbias, dy, out, rows, out);
}

static void backward_in_turn(struct device *dev, const struct linear *p, struct view dx,
                             struct view dw, struct view dbias, struct view dy, struct view x,
                             struct view w, bool add)
{
    cpu_linear_backward_w(dev, p, dw, dbias, dy, x);
    cpu_linear_backward_x(dev, p, dx, dy, w, add);
}

/* Both products at once if there is one panel and nothing is widened. Many rows with a bf16 dw
 * have several panels; they still take the scratch of fewer rows, since a smaller batch must
 * never take more. */
void cpu_linear_backward(struct device *dev, const struct linear *p, struct view dx, struct view dw,
                         struct view dbias, struct view dy, struct view x, struct view w, bool add)
{
    const bool widens = is_half(dx) || is_half(dy) || is_half(x) || !cpu_gemm_takes_half(p->rows);
    if (widens || !cpu_gemm_takes_both(dev)) {
        backward_in_turn(dev, p, dx, dw, dbias, dy, x, w, add);
        return;
    }
    struct linear q = *p;
    if (is_half(dw))
        q.rows = min_int(p->rows, cpu_gemm_slice(dev, true));
    struct backward_product of_x = backward_x(dev, &q, dx, dy, w),
                            of_w = backward_w(dev, &q, dw, dy, x);
    if (!take_backward_scratch(dev, &of_x, &of_w))
        return;
    if (q.rows < p->rows) {
        backward_in_turn(dev, p, dx, dw, dbias, dy, x, w, add);
        return;
    }
    const struct gemm g = panel_x(dev, p, &of_x, dx, dy, w, add, 0);
    const struct gemm h = panel_w(dev, p, &of_w, dw, dy, open_x(dev, p, &of_w, x), 0);
    cpu_gemm_both(dev, &g, &h);
    if (dbias.data)
        cpu_add_columns(dev, dbias, dy, (size_t)p->out, (size_t)p->rows, (size_t)p->out);
}
