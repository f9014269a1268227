/* Convolutions as products of gathered windows. The forward pass gathers windows of x, the gradient
 * of x gathers for each pixel the windows of dy that met the pixel, the gradient of w is the sum
 * over all windows.
 *
 * With stride s the pixels of x fall into s^2 classes by their place modulo s. The pixels of a
 * class met the same taps, so a class is a convolution of its own without zeros between the taps.
 */
#include "tensor/cpu/gemm/gemm.h"
#include "tensor/cpu/gemm/products.h"

/* Returns the windows of a (rows, columns) matrix: images of one pixel each. */
static struct windows matrix_windows(struct view from, int columns)
{
    return (struct windows){.from = from,
                            .h = 1,
                            .w = 1,
                            .channels = columns,
                            .tall = 1,
                            .wide = 1,
                            .kernel_h = 1,
                            .kernel_w = 1,
                            .stride = 1};
}

static struct windows conv_windows(const struct conv *p, struct view x)
{
    return (struct windows){.from = x,
                            .h = p->h,
                            .w = p->w,
                            .channels = p->in,
                            .tall = window_count(p->h, p->kernel, p->stride, p->pad),
                            .wide = window_count(p->w, p->kernel, p->stride, p->pad),
                            .kernel_h = p->kernel,
                            .kernel_w = p->kernel,
                            .stride = p->stride,
                            .top = p->pad,
                            .left = p->pad};
}

static size_t windows_count(const struct conv *p, const struct windows *s)
{
    return (size_t)p->rows * (size_t)s->tall * (size_t)s->wide;
}

void cpu_conv_forward(struct device *dev, const struct conv *p, struct view y, struct view x,
                      struct view w, struct view bias)
{
    const int taps = p->kernel * p->kernel * p->in;
    const struct windows windows = conv_windows(p, x), weight = matrix_windows(w, taps);
    struct row_product product = {.m = windows_count(p, &windows),
                                  .n = p->out,
                                  .k = taps,
                                  .half = is_half(w),
                                  .a = {.windows = &windows},
                                  .b = {.windows = &weight},
                                  .b_turned = true,
                                  .c = y,
                                  .step = 1,
                                  .tall = 1,
                                  .wide = 1,
                                  .h = 1,
                                  .w = 1};
    const size_t floats[] = {cpu_row_products_room(dev, &product, 1),
                             is_half(bias) ? (size_t)p->out : 0};
    struct room room = cpu_room(dev, floats, 2);
    if (!room.data)
        return;
    float *product_room = cpu_take(&room, floats[0]);
    product.bias =
        load_floats(kernels_of(dev), bias, 0, (size_t)p->out, cpu_take(&room, floats[1]));
    cpu_row_products(dev, &product, 1, product_room);
}

/* A class of pixels along one side: pixels at `first` + t * stride. */
struct class_side {
    int pixels; /* of x */
    int tap;    /* the first tap that met the pixels; other taps are stride apart */
    int taps;
    int before; /* pixels of dy before the first window */
};

static struct class_side class_side_of(const struct conv *p, int size, int first)
{
    const int tap = (first + p->pad) % p->stride;
    struct class_side s = {.pixels = first < size ? (size - first + p->stride - 1) / p->stride : 0,
                           .tap = tap,
                           .taps =
                               tap < p->kernel ? (p->kernel - tap + p->stride - 1) / p->stride : 0};
    s.before = s.taps - 1 - (first + p->pad - tap) / p->stride;
    return s;
}

/* The operands of the convolution of a class of pixels. */
struct pixel_class {
    struct windows windows;
    struct turned_weight weight;
};

/* Makes the product for the pixels at (first_y, first_x) and every stride from there. Returns
 * false if no window met these pixels. */
static bool class_init(struct pixel_class *c, struct row_product *product, const struct conv *p,
                       struct view dx, struct view dy, struct view w, bool add, int first_y,
                       int first_x)
{
    const struct class_side y = class_side_of(p, p->h, first_y),
                            x = class_side_of(p, p->w, first_x);
    if (!y.pixels || !x.pixels || !y.taps || !x.taps)
        return false;
    c->windows = (struct windows){.from = dy,
                                  .h = window_count(p->h, p->kernel, p->stride, p->pad),
                                  .w = window_count(p->w, p->kernel, p->stride, p->pad),
                                  .channels = p->out,
                                  .tall = y.pixels,
                                  .wide = x.pixels,
                                  .kernel_h = y.taps,
                                  .kernel_w = x.taps,
                                  .stride = 1,
                                  .top = y.before,
                                  .left = x.before};
    c->weight = (struct turned_weight){w,      p->in, p->out, p->kernel, y.taps,
                                       x.taps, y.tap, x.tap,  p->stride};
    *product = (struct row_product){.m = windows_count(p, &c->windows),
                                    .n = p->in,
                                    .k = y.taps * x.taps * p->out,
                                    .half = is_half(w),
                                    .a = {.windows = &c->windows},
                                    .b = {.turned = &c->weight},
                                    .c = dx,
                                    .add = add,
                                    .step = p->stride,
                                    .first_y = first_y,
                                    .first_x = first_x,
                                    .tall = y.pixels,
                                    .wide = x.pixels,
                                    .h = p->h,
                                    .w = p->w};
    return true;
}

static void multiply_classes(struct device *dev, const struct row_product *product, int n)
{
    const size_t floats = cpu_row_products_room(dev, product, n);
    struct room room = cpu_room(dev, &floats, 1);
    if (room.data)
        cpu_row_products(dev, product, n, cpu_take(&room, floats));
}

void cpu_conv_backward_x(struct device *dev, const struct conv *p, struct view dx, struct view dy,
                         struct view w, bool add)
{
    struct pixel_class classes[ROW_PRODUCTS];
    struct row_product product[ROW_PRODUCTS];
    int n = 0;
    if (p->kernel < p->stride && !add && !cpu_counts(dev)) /* pixels that met no window */
        cpu_fill(dev, dx, (size_t)p->rows * (size_t)p->h * (size_t)p->w * (size_t)p->in, 0);
    for (int i = 0; i < p->stride * p->stride; i++) {
        n += class_init(&classes[n], &product[n], p, dx, dy, w, add, i / p->stride, i % p->stride);
        if (n == ROW_PRODUCTS || (n && i + 1 == p->stride * p->stride)) {
            multiply_classes(dev, product, n);
            n = 0;
        }
    }
}

void cpu_conv_backward_w(struct device *dev, const struct conv *p, struct view dw,
                         struct view dbias, struct view dy, struct view x)
{
    const int taps = p->kernel * p->kernel * p->in;
    const size_t count = (size_t)p->out * (size_t)taps;
    const struct windows windows = conv_windows(p, x), rows = matrix_windows(dy, p->out);
    struct sum_product product = {.m = p->out,
                                  .n = taps,
                                  .k = windows_count(p, &windows),
                                  .half = p->half || is_half(dw),
                                  .a = {.windows = &rows},
                                  .b = {.windows = &windows}};
    const size_t floats[] = {cpu_sum_product_room(dev, &product), is_half(dw) ? count : 0};
    struct room room = cpu_room(dev, floats, 2);
    if (!room.data)
        return;
    float *product_room = cpu_take(&room, floats[0]), *wide = cpu_take(&room, floats[1]);
    if (is_half(dw))
        cpu_copy(dev, view_of(wide, DTYPE_F32), dw, count);
    product.c = is_half(dw) ? wide : dw.data;
    cpu_sum_product(dev, &product, product_room);
    if (is_half(dw))
        cpu_copy(dev, dw, view_of(wide, DTYPE_F32), count);
    if (dbias.data)
        cpu_add_columns(dev, dbias, dy, (size_t)p->out, product.k, (size_t)p->out);
}
