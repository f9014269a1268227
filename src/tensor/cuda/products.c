/* Products with weights: rounding of operands, and the choice between cuBLASLt and our kernels. */
#include "tensor/carve.h"
#include "tensor/cuda/products.h"

/* Returns the elements from the first of a factor to its last. */
static size_t factor_span(const struct factor *f, int rows, int columns)
{
    return (size_t)(rows - 1) * f->row + (size_t)(columns - 1) * f->column + 1;
}

/* Replaces a factor by a copy in the other type, with the same layout. */
static void convert_factor(struct device *dev, stream_t s, struct factor *f, struct room *room,
                           size_t count, bool half)
{
    if (f->v.half == half)
        return;
    const struct vec to = {carve_piece(room, count, half ? DTYPE_BF16 : DTYPE_F32).data, half};
    cuda_check(dev, launch_copy(s, to, f->v, count), "convert");
    f->v = to;
}

static void issue_product(struct device *dev, stream_t s, const struct product *p, bool half)
{
    struct cuda *c = cuda_of(dev);
    if (!c->cublaslt && !(c->cublaslt = cublaslt_open(dev))) {
        device_fail(dev, fail(SOTTO_ENOMEM, "no memory for products"));
        return;
    }
    struct product q = *p;
    const size_t a = factor_span(&p->a, p->m, p->k), b = factor_span(&p->b, p->k, p->n),
                 all = (size_t)p->m * (size_t)p->n;
    half = half || (p->a.v.half && p->b.v.half); /* products of bf16 numbers are exact */
    const bool direct =
        (half || !p->c.half) && (!p->residual.data || p->residual.half == p->c.half) &&
        (!p->bias.data || (p->bias.half == p->c.half && (uintptr_t)p->bias.data % 16 == 0));
    assert(direct || !p->c_row);
    struct room room = {.size = (p->a.v.half != half ? carve_bytes(a, DTYPE_F32) : 0) +
                                (p->b.v.half != half ? carve_bytes(b, DTYPE_F32) : 0) +
                                (direct ? 0 : carve_bytes(all, DTYPE_F32)),
                        .place = PLACE_DEVICE};
    if (cuda_counts(dev))
        (void)cublaslt_take_workspace(c->cublaslt, dev);
    if (room.size)
        room.data = device_scratch(dev, room.size);
    if (cuda_counts(dev) || (room.size && !room.data))
        return;
    convert_factor(dev, s, &q.a, &room, a, half);
    convert_factor(dev, s, &q.b, &room, b, half);
    if (direct) {
        if (!cublaslt_product(c->cublaslt, dev, s, &q))
            cuda_check(dev, launch_product(s, &q), "multiply");
        return;
    }
    q.c = (struct vec){carve_piece(&room, all, DTYPE_F32).data, false};
    q.bias = q.residual = (struct vec){0};
    if (!cublaslt_product(
            c->cublaslt, dev, s,
            &q)) { /* launch_product takes all types, and adds bias and residual itself */
        q.c = p->c;
        q.bias = p->bias;
        q.residual = p->residual;
        cuda_check(dev, launch_product(s, &q), "multiply");
        return;
    }
    cuda_check(dev, launch_finish(s, p->c, q.c.data, p->bias, p->residual, (size_t)p->m, p->n),
               "add a bias");
}

void cuda_product(struct device *dev, const struct product *p, bool half)
{
    issue_product(dev, cuda_stream(dev), p, half);
}

void cuda_add_columns(struct device *dev, struct view y, struct view x, int rows, int width)
{
    double *parts = device_scratch(dev, column_parts(rows, width, 1) * sizeof *parts);
    if (parts)
        cuda_check(
            dev, launch_column_sums(cuda_stream(dev), cuda_vec(y), cuda_vec(x), rows, width, parts),
            "add up columns");
}

/* Column sums on the side stream, in parallel with the products that are issued after
 * mark_side_ready until the next cuda_stream: products leave multiprocessors and most of the
 * memory's bandwidth unused. */
static void mark_side_ready(struct device *dev)
{
    if (cuda_counts(dev))
        return;
    stream_t s = cuda_stream(dev);
    cuda_check(dev, cudaEventRecord(cuda_of(dev)->side.ready, s), "add up columns");
}

static void add_columns_side(struct device *dev, struct view y, struct view x, int rows, int width)
{
    struct cuda_side_stream *a = &cuda_of(dev)->side;
    const size_t bytes = column_parts(rows, width, 1) * sizeof(double);
    double *parts = cuda_grow(dev, &a->parts, bytes);
    if (!parts)
        return;
    cuda_check(dev, cudaStreamWaitEvent(a->stream, a->ready, 0), "add up columns");
    cuda_check(dev, launch_column_sums(a->stream, cuda_vec(y), cuda_vec(x), rows, width, parts),
               "add up columns");
    cuda_check(dev, cudaEventRecord(a->done, a->stream), "add up columns");
    a->begin = x.data;
    a->end = a->begin + (size_t)rows * (size_t)width * dtype_size(x.type);
    a->in_flight = true;
}

/* Returns w as a factor (in, out); with `turned`, (out, in). */
static struct factor weight_of(const struct linear *p, struct view w, bool turned)
{
    const bool out_in = p->layout == LINEAR_OUT_IN;
    const size_t in = out_in ? 1 : (size_t)p->out, out = out_in ? (size_t)p->in : 1;
    return (struct factor){cuda_vec(w), turned ? out : in, turned ? in : out};
}

/* Returns activations as a factor (rows, width); with `turned`, (width, rows). */
static struct factor rows_of(struct view x, int width, bool turned)
{
    return (struct factor){cuda_vec(x), turned ? 1 : (size_t)width, turned ? (size_t)width : 1};
}

void cuda_linear_forward(struct device *dev, const struct linear *p, struct view y, struct view x,
                         struct view w, struct view bias, struct view residual)
{
    const struct product q = {.m = p->rows,
                              .n = p->out,
                              .k = p->in,
                              .a = rows_of(x, p->in, false),
                              .b = weight_of(p, w, false),
                              .c = cuda_vec(y),
                              .bias = cuda_vec(bias),
                              .residual = cuda_vec(residual)};
    cuda_product(dev, &q, w.type == DTYPE_BF16);
}

void cuda_linear_backward_x(struct device *dev, const struct linear *p, struct view dx,
                            struct view dy, struct view w, bool add)
{
    const struct product q = {.m = p->rows,
                              .n = p->in,
                              .k = p->out,
                              .a = rows_of(dy, p->out, false),
                              .b = weight_of(p, w, true),
                              .c = cuda_vec(dx),
                              .residual = cuda_vec(add ? dx : view_none)};
    const struct cuda_side_stream *a = &cuda_of(dev)->side;
    const char *begin = dx.data;
    const char *end = begin + (size_t)p->rows * (size_t)p->in * dtype_size(dx.type);
    const bool unordered = a->in_flight && (end <= a->begin || a->end <= begin);
    issue_product(dev, unordered ? cuda_stream_unordered(dev) : cuda_stream(dev), &q,
                  w.type == DTYPE_BF16);
}

/* dw += dy^T x (p->fresh: dw =) for dy (rows, out) and x (rows, in), each given as it is and
 * turned. */
static void weight_gradient(struct device *dev, const struct linear *p, int rows, struct factor dy,
                            struct factor dy_turned, struct factor x, struct factor x_turned,
                            struct view dw)
{
    const bool out_in = p->layout == LINEAR_OUT_IN;
    const struct product q = {.m = out_in ? p->out : p->in,
                              .n = out_in ? p->in : p->out,
                              .k = rows,
                              .a = out_in ? dy_turned : x_turned,
                              .b = out_in ? x : dy,
                              .c = cuda_vec(dw),
                              .residual = cuda_vec(p->fresh ? view_none : dw)};
    cuda_product(dev, &q, p->half || dw.type == DTYPE_BF16);
}

void cuda_linear_backward_w(struct device *dev, const struct linear *p, struct view dw,
                            struct view dbias, struct view dy, struct view x)
{
    if (dbias.data)
        mark_side_ready(dev);
    weight_gradient(dev, p, p->rows, rows_of(dy, p->out, false), rows_of(dy, p->out, true),
                    rows_of(x, p->in, false), rows_of(x, p->in, true), dw);
    if (dbias.data)
        add_columns_side(dev, dbias, dy, p->rows, p->out);
}

enum { LOGIT_ROWS = 8192 }; /* rows of logits held at once, at most */

/* Memory of linear_loss. The library's fast kernels need sides that are multiples of 8 and rows
 * aligned to 16 bytes, so weights of an odd vocabulary are padded with zeros. */
struct logits {
    struct vec w, logits;
    int rows, wide; /* rows of a chunk; columns, padded */
    size_t stride;  /* elements from row to row of logits */
};

static bool open_logits(struct device *dev, const struct linear *p, const struct linear_loss *l,
                        struct logits *out)
{
    const bool half = l->x.type == DTYPE_BF16 && l->w.type == DTYPE_BF16;
    const int chunks = (p->rows + LOGIT_ROWS - 1) / LOGIT_ROWS;
    const bool widen = p->out % 8 != 0 && l->w.type == DTYPE_BF16 && p->layout == LINEAR_OUT_IN;
    const size_t stride = ((size_t)p->out + 63) / 64 * 64;
    *out = (struct logits){.w = cuda_vec(l->w),
                           .logits.half = half,
                           .rows = chunks ? (p->rows + chunks - 1) / chunks : 0,
                           .wide = widen ? (int)stride : p->out,
                           .stride = stride};
    const size_t all = stride * (size_t)p->in, given = (size_t)p->out * (size_t)p->in;
    /* Fewer rows may make longer chunks, so the memory is for the longest chunk. */
    const size_t held = (size_t)(p->rows < LOGIT_ROWS ? p->rows : LOGIT_ROWS) * stride;
    const enum dtype type = half ? DTYPE_BF16 : DTYPE_F32;
    struct room room = {.size =
                            carve_bytes(held, type) + (widen ? carve_bytes(all, DTYPE_BF16) : 0),
                        .place = PLACE_DEVICE};
    room.data = cuda_grow(dev, &cuda_of(dev)->logits, room.size);
    if (!room.data)
        return cuda_counts(dev);
    out->logits.data = carve_piece(&room, held, type).data;
    if (!widen)
        return true;
    const struct view w = carve_piece(&room, all, DTYPE_BF16);
    stream_t s = cuda_stream(dev);
    cuda_check(dev, launch_copy(s, cuda_vec(w), out->w, given), "widen");
    cuda_check(dev, launch_fill(s, cuda_vec(view_at(w, given)), all - given, 0), "widen");
    out->w = cuda_vec(w);
    return true;
}

/* dw += the gradient of rows of logits and x; dw = for the `first` rows with p->fresh. With
 * padded weights in two parts, since dw is not padded. */
static void logits_gradient(struct device *dev, const struct linear *p, const struct logits *t,
                            bool first, int rows, struct view x, struct view dw)
{
    const struct factor x_as_is = rows_of(x, p->in, false), x_turned = rows_of(x, p->in, true);
    struct factor as_is = {t->logits, t->stride, 1}, turned = {t->logits, 1, t->stride};
    struct linear part = *p;
    part.fresh = p->fresh && first;
    if (t->wide != p->out) {
        part.out = p->out / 8 * 8;
        weight_gradient(dev, &part, rows, as_is, turned, x_as_is, x_turned, dw);
        dw = view_at(dw, (size_t)part.out * (size_t)p->in);
        as_is.v.data = turned.v.data =
            (char *)t->logits.data + (size_t)part.out * (t->logits.half ? 2 : 4);
        part.out = p->out % 8;
    }
    weight_gradient(dev, &part, rows, as_is, turned, x_as_is, x_turned, dw);
}

void cuda_linear_loss(struct device *dev, const struct linear *p, const struct linear_loss *l)
{
    struct logits t;
    if (!open_logits(dev, p, l, &t))
        return;
    const bool half = l->w.type == DTYPE_BF16;
    struct factor w = weight_of(p, l->w, false), w_turned = weight_of(p, l->w, true);
    w.v = w_turned.v = t.w;
    for (int row = 0; row < p->rows; row += t.rows) {
        const int rows = p->rows - row < t.rows ? p->rows - row : t.rows;
        const size_t at = (size_t)row * (size_t)p->in;
        const struct view x = view_at(l->x, at);
        const struct product forward = {.m = rows,
                                        .n = t.wide,
                                        .k = p->in,
                                        .a = rows_of(x, p->in, false),
                                        .b = w,
                                        .c = t.logits,
                                        .c_row = t.stride};
        cuda_product(dev, &forward, half);
        if (!cuda_counts(dev))
            cuda_check(dev,
                       launch_cross_entropy(cuda_stream(dev), rows, p->out, t.stride, t.logits,
                                            view_at(l->targets, (size_t)row).data, l->scale,
                                            view_at(l->losses, (size_t)row).data,
                                            view_at(l->places, (size_t)row).data),
                       "compute the loss");
        if (l->scale == 0)
            continue;
        logits_gradient(dev, p, &t, row == 0, rows, x, l->dw);
        const struct product back = {.m = rows,
                                     .n = p->in,
                                     .k = t.wide,
                                     .a = {t.logits, t.stride, 1},
                                     .b = w_turned,
                                     .c = cuda_vec(view_at(l->dx, at))};
        cuda_product(dev, &back, half);
    }
}
