/* Products with weights: which operands are rounded, and who multiplies them. */
#include "tensor/carve.h"
#include "tensor/cuda/products.h"

/* Elements from the first of a factor to its last. */
static size_t span(const struct factor *f, int rows, int columns)
{
    return (size_t)(rows - 1) * f->row + (size_t)(columns - 1) * f->column + 1;
}

/* A copy of a factor in the other type, laid out as it is. */
static void convert(struct device *dev, struct factor *f, struct room *room, size_t count,
                    bool half)
{
    if (f->v.half == half)
        return;
    const struct vec to = {carve(room, count, half ? DTYPE_BF16 : DTYPE_F32).data, half};
    cuda_check(dev, launch_copy(cuda_stream(dev), to, f->v, count), "convert");
    f->v = to;
}

void cuda_product(struct device *dev, const struct product *p, bool half)
{
    struct cuda *c = cuda_of(dev);
    if (!c->lt && !(c->lt = lt_open(dev))) {
        device_fail(dev, fail(SOTTO_ENOMEM, "no memory for products"));
        return;
    }
    stream_t s = cuda_stream(dev);
    struct product q = *p;
    const size_t a = span(&p->a, p->m, p->k), b = span(&p->b, p->k, p->n),
                 all = (size_t)p->m * (size_t)p->n;
    half = half || (p->a.v.half && p->b.v.half); /* of bf16 numbers nothing is lost */
    const bool direct =
        (half || !p->c.half) && (!p->residual.data || p->residual.half == p->c.half) &&
        (!p->bias.data || (p->bias.half == p->c.half && (uintptr_t)p->bias.data % 16 == 0));
    assert(direct || !p->c_row);
    struct room room = {.size = (p->a.v.half != half ? carve_bytes(a, DTYPE_F32) : 0) +
                                (p->b.v.half != half ? carve_bytes(b, DTYPE_F32) : 0) +
                                (direct ? 0 : carve_bytes(all, DTYPE_F32)),
                        .place = PLACE_DEVICE};
    if (room.size && !(room.data = device_scratch(dev, room.size)))
        return;
    convert(dev, &q.a, &room, a, half);
    convert(dev, &q.b, &room, b, half);
    if (direct) {
        if (!lt_product(c->lt, dev, &q))
            cuda_check(dev, launch_product(s, &q), "multiply");
        return;
    }
    q.c = (struct vec){carve(&room, all, DTYPE_F32).data, false};
    q.bias = q.residual = (struct vec){0};
    if (!lt_product(c->lt, dev, &q)) { /* which takes all types, and adds the rest itself */
        q.c = p->c;
        q.bias = p->bias;
        q.residual = p->residual;
        cuda_check(dev, launch_product(s, &q), "multiply");
        return;
    }
    cuda_check(dev, launch_finish(s, p->c, q.c.data, p->bias, p->residual, (size_t)p->m, p->n),
               "add a bias");
}

void cuda_add_columns(struct device *dev, struct view y, struct view x, int rows, int width)
{
    double *parts = device_scratch(dev, column_parts(rows, width, 1) * sizeof *parts);
    if (parts)
        cuda_check(
            dev, launch_column_sums(cuda_stream(dev), cuda_vec(y), cuda_vec(x), rows, width, parts),
            "add up columns");
}

/* w as a factor (in, out), and turned. */
static struct factor weight_of(const struct linear *p, struct view w, bool turned)
{
    const bool out_in = p->layout == LINEAR_OUT_IN;
    const size_t in = out_in ? 1 : (size_t)p->out, out = out_in ? (size_t)p->in : 1;
    return (struct factor){cuda_vec(w), turned ? out : in, turned ? in : out};
}

/* Rows of activations, and turned. */
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
    cuda_product(dev, &q, w.type == DTYPE_BF16);
}

/* dw += of dy (rows, out) and x (rows, in), each as it is and turned. */
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
                              .residual = cuda_vec(dw)};
    cuda_product(dev, &q, p->half || dw.type == DTYPE_BF16);
}

void cuda_linear_backward_w(struct device *dev, const struct linear *p, struct view dw,
                            struct view dbias, struct view dy, struct view x)
{
    if (dbias.data)
        cuda_add_columns(dev, dbias, dy, p->rows, p->out);
    weight_gradient(dev, p, p->rows, rows_of(dy, p->out, false), rows_of(dy, p->out, true),
                    rows_of(x, p->in, false), rows_of(x, p->in, true), dw);
}

enum { LOGIT_ROWS = 8192 }; /* that are held at once, at most */

/* Rows of logits begin on 128 bytes whatever the vocabulary: without that the products of an odd
 * one are several times slower. */
void cuda_linear_loss(struct device *dev, const struct linear *p, const struct linear_loss *l)
{
    const bool half = l->x.type == DTYPE_BF16 && l->w.type == DTYPE_BF16;
    const size_t stride = ((size_t)p->out + 63) / 64 * 64;
    const int chunks = (p->rows + LOGIT_ROWS - 1) / LOGIT_ROWS;
    const int most = chunks ? (p->rows + chunks - 1) / chunks : 0;
    const struct vec logits = {
        cuda_grow(dev, &cuda_of(dev)->logits, (size_t)most * stride * (half ? 2 : 4)), half};
    for (int row = 0; row < p->rows && logits.data; row += most) {
        const int rows = p->rows - row < most ? p->rows - row : most;
        const size_t at = (size_t)row * (size_t)p->in;
        const struct factor x = rows_of(view_at(l->x, at), p->in, false);
        const struct factor given = {logits, stride, 1}, turned = {logits, 1, stride};
        const struct product forward = {.m = rows,
                                        .n = p->out,
                                        .k = p->in,
                                        .a = x,
                                        .b = weight_of(p, l->w, false),
                                        .c = logits,
                                        .c_row = stride};
        cuda_product(dev, &forward, l->w.type == DTYPE_BF16);
        cuda_check(
            dev,
            launch_cross_entropy(cuda_stream(dev), rows, p->out, stride, logits,
                                 view_at(l->targets, (size_t)row).data, l->scale,
                                 view_at(l->losses, (size_t)row).data,
                                 l->places.data ? view_at(l->places, (size_t)row).data : NULL),
            "compute the loss");
        if (l->scale == 0)
            continue;
        weight_gradient(dev, p, rows, given, turned, x, rows_of(view_at(l->x, at), p->in, true),
                        l->dw);
        const struct product back = {.m = rows,
                                     .n = p->in,
                                     .k = p->out,
                                     .a = given,
                                     .b = weight_of(p, l->w, true),
                                     .c = cuda_vec(view_at(l->dx, at))};
        cuda_product(dev, &back, l->w.type == DTYPE_BF16);
    }
}
