/* Ops of models of images. A convolution is a product with windows, which are gathered first, of
 * as many images at once as fit WINDOW_BYTES. */
#include "tensor/carve.h"
#include "tensor/cuda/products.h"

enum { WINDOW_BYTES = 1 << 28 };

static struct window_shape window_shape_of(const struct conv *p, int rows)
{
    return (struct window_shape){rows,
                                 p->h,
                                 p->w,
                                 p->in,
                                 p->kernel,
                                 p->stride,
                                 p->pad,
                                 window_count(p->h, p->kernel, p->stride, p->pad),
                                 window_count(p->w, p->kernel, p->stride, p->pad)};
}

/* A convolution as products, image by image or several at once. */
struct conv_plan {
    size_t windows, depth; /* windows of an image; elements of a window */
    int images;            /* images of one product */
    bool half;             /* windows are bf16 */
    bool as_is;            /* true: x itself is the windows */
};

static struct conv_plan plan_of(const struct conv *p, bool half, size_t size)
{
    const struct window_shape s = window_shape_of(p, 1);
    struct conv_plan plan = {.windows = (size_t)s.out_h * (size_t)s.out_w,
                             .depth = (size_t)p->kernel * (size_t)p->kernel * (size_t)p->in,
                             .half = half,
                             .as_is = p->kernel == 1 && p->stride == 1 && p->pad == 0};
    const size_t most = WINDOW_BYTES / (plan.windows * plan.depth * size + 1);
    plan.images = most < 1 ? 1 : most < (size_t)p->rows ? (int)most : p->rows;
    return plan;
}

/* Returns the windows of images [at, at + n) of x. Data are NULL after a kept failure, and on a
 * device that counts. */
static struct vec gather_image_windows(struct device *dev, const struct conv *p,
                                       const struct conv_plan *plan, struct view x, int at, int n)
{
    const struct vec images =
        cuda_vec(view_at(x, (size_t)at * (size_t)p->h * (size_t)p->w * (size_t)p->in));
    if (plan->as_is)
        return images;
    const size_t all = (size_t)plan->images * plan->windows * plan->depth;
    const struct vec to = {cuda_grow(dev, &cuda_of(dev)->windows, all * (plan->half ? 2 : 4)),
                           plan->half};
    if (to.data)
        cuda_check(dev, launch_gather_windows(cuda_stream(dev), window_shape_of(p, n), to, images),
                   "gather windows");
    return to;
}

static int images_at(const struct conv_plan *plan, int rows, int at)
{
    return rows - at < plan->images ? rows - at : plan->images;
}

void cuda_conv_forward(struct device *dev, const struct conv *p, struct view y, struct view x,
                       struct view w, struct view bias)
{
    const bool half = w.type == DTYPE_BF16;
    const struct conv_plan plan = plan_of(p, half, half ? 2 : 4);
    for (int at = 0; at < p->rows; at += plan.images) {
        const int n = images_at(&plan, p->rows, at);
        const struct vec windows = gather_image_windows(dev, p, &plan, x, at, n);
        if (!windows.data && !cuda_counts(dev))
            return;
        const struct product q = {
            .m = (int)((size_t)n * plan.windows),
            .n = p->out,
            .k = (int)plan.depth,
            .a = {windows, plan.depth, 1},
            .b = {cuda_vec(w), 1, plan.depth},
            .c = cuda_vec(view_at(y, (size_t)at * plan.windows * (size_t)p->out)),
            .bias = cuda_vec(bias)};
        cuda_product(dev, &q, half);
    }
}

void cuda_conv_backward_x(struct device *dev, const struct conv *p, struct view dx, struct view dy,
                          struct view w, bool add)
{
    const struct conv_plan plan = plan_of(p, false, 4);
    for (int at = 0; at < p->rows; at += plan.images) {
        const int n = images_at(&plan, p->rows, at);
        const size_t all = (size_t)plan.images * plan.windows * plan.depth;
        const struct vec images =
            cuda_vec(view_at(dx, (size_t)at * (size_t)p->h * (size_t)p->w * (size_t)p->in));
        struct product q = {.m = (int)((size_t)n * plan.windows),
                            .n = (int)plan.depth,
                            .k = p->out,
                            .a = {cuda_vec(view_at(dy, (size_t)at * plan.windows * (size_t)p->out)),
                                  (size_t)p->out, 1},
                            .b = {cuda_vec(w), plan.depth, 1},
                            .c = images};
        if (plan.as_is) {
            q.residual = add ? images : (struct vec){0};
            cuda_product(dev, &q, w.type == DTYPE_BF16);
            continue;
        }
        q.c = (struct vec){cuda_grow(dev, &cuda_of(dev)->windows, all * sizeof(float)), false};
        if (!q.c.data && !cuda_counts(dev))
            return;
        cuda_product(dev, &q, w.type == DTYPE_BF16);
        if (!cuda_counts(dev))
            cuda_check(dev,
                       launch_scatter_windows(cuda_stream(dev), window_shape_of(p, n), images,
                                              q.c.data, add),
                       "add up windows");
    }
}

/* Sums over several products stay in fp32 until they are rounded into dw, in a buffer of their
 * own. */
void cuda_conv_backward_w(struct device *dev, const struct conv *p, struct view dw,
                          struct view dbias, struct view dy, struct view x)
{
    const bool half = p->half || dw.type == DTYPE_BF16;
    const struct conv_plan plan = plan_of(p, half, half ? 2 : 4);
    const size_t weights = (size_t)p->out * plan.depth;
    const bool separate = dw.type == DTYPE_BF16 && plan.images < p->rows;
    struct buffer sum = {0};
    if (dbias.data)
        cuda_add_columns(dev, dbias, dy, (int)((size_t)p->rows * plan.windows), p->out);
    if (separate) {
        const enum sotto_status st = buffer_init(&sum, dev, DTYPE_F32, weights, MEMORY_SCRATCH);
        if (st != SOTTO_OK) {
            device_fail(dev, st);
            return;
        }
        if (!cuda_counts(dev))
            cuda_copy(dev, sum.view, dw, weights);
    }
    const struct vec to = cuda_vec(separate ? sum.view : dw);
    for (int at = 0; at < p->rows; at += plan.images) {
        const int n = images_at(&plan, p->rows, at);
        const struct vec windows = gather_image_windows(dev, p, &plan, x, at, n);
        if (!windows.data && !cuda_counts(dev))
            break;
        const struct product q = {
            .m = p->out,
            .n = (int)plan.depth,
            .k = (int)((size_t)n * plan.windows),
            .a = {cuda_vec(view_at(dy, (size_t)at * plan.windows * (size_t)p->out)), 1,
                  (size_t)p->out},
            .b = {windows, plan.depth, 1},
            .c = to,
            .residual = to};
        cuda_product(dev, &q, half);
    }
    if (separate && !cuda_counts(dev))
        cuda_copy(dev, dw, sum.view, weights);
    buffer_free(&sum);
}

static struct window_shape pool_shape_of(const struct pooling *p)
{
    return (struct window_shape){p->rows,
                                 p->h,
                                 p->w,
                                 p->channels,
                                 p->kernel,
                                 p->stride,
                                 p->pad,
                                 window_count(p->h, p->kernel, p->stride, p->pad),
                                 window_count(p->w, p->kernel, p->stride, p->pad)};
}

void cuda_maxpool_forward(struct device *dev, const struct pooling *p, struct view y,
                          struct view winner, struct view x)
{
    cuda_check(dev,
               launch_maxpool_forward(cuda_stream(dev), pool_shape_of(p), cuda_vec(y), winner.data,
                                      cuda_vec(x)),
               "pool");
}

void cuda_maxpool_backward(struct device *dev, const struct pooling *p, struct view dx,
                           struct view dy, struct view winner)
{
    cuda_check(dev,
               launch_maxpool_backward(cuda_stream(dev), pool_shape_of(p), cuda_vec(dx),
                                       cuda_vec(dy), winner.data),
               "pool");
}

void cuda_meanpool_forward(struct device *dev, int rows, int pixels, int channels, struct view y,
                           struct view x)
{
    cuda_check(
        dev,
        launch_meanpool_forward(cuda_stream(dev), rows, pixels, channels, cuda_vec(y), cuda_vec(x)),
        "pool");
}

void cuda_meanpool_backward(struct device *dev, int rows, int pixels, int channels, struct view dx,
                            struct view dy)
{
    cuda_check(dev,
               launch_meanpool_backward(cuda_stream(dev), rows, pixels, channels, cuda_vec(dx),
                                        cuda_vec(dy)),
               "pool");
}

static struct batchnorm_shape batchnorm_of(const struct batchnorm *p)
{
    return (struct batchnorm_shape){p->rows,     p->width, p->eps,  p->momentum,
                                    p->training, p->relu,  p->given};
}

/* Returns scratch for partial sums, and two totals a column. */
static double *batchnorm_parts(struct device *dev, const struct batchnorm *p)
{
    const size_t parts = column_parts(p->rows, p->width, 2) + 2 * (size_t)p->width;
    return device_scratch(dev, parts * sizeof(double));
}

void cuda_batchnorm_forward(struct device *dev, const struct batchnorm *p, struct view y,
                            struct view x, struct view gain, struct view bias, struct view residual,
                            struct view running_mean, struct view running_variance,
                            struct view stats)
{
    double *parts = batchnorm_parts(dev, p);
    if (parts)
        cuda_check(dev,
                   launch_batchnorm_forward(cuda_stream(dev), batchnorm_of(p), cuda_vec(y),
                                            cuda_vec(x), cuda_vec(gain), cuda_vec(bias),
                                            cuda_vec(residual), running_mean.data,
                                            running_variance.data, stats.data, parts),
                   "normalize");
}

void cuda_batchnorm_backward(struct device *dev, const struct batchnorm *p, struct view dx,
                             struct view dgain, struct view dbias, struct view dresidual,
                             struct view dy, struct view x, struct view y, struct view gain,
                             struct view stats)
{
    double *parts = batchnorm_parts(dev, p);
    if (parts)
        cuda_check(dev,
                   launch_batchnorm_backward(cuda_stream(dev), batchnorm_of(p), cuda_vec(dx),
                                             cuda_vec(dgain), cuda_vec(dbias), cuda_vec(dresidual),
                                             cuda_vec(dy), cuda_vec(x), cuda_vec(y), cuda_vec(gain),
                                             stats.data, parts),
                   "normalize");
}
