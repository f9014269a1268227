/* A convolution and its batch norm, the part that image networks are made of.
 *
 * Only the convolution's result and the norm's statistics are kept; the norm's output is computed
 * again in backward, in one pass over memory. */
#ifndef SOTTO_NN_LAYERS_CONV_H
#define SOTTO_NN_LAYERS_CONV_H

#include "nn/layer.h"

struct conv_part {
    int h, w, in, out; /* rows and columns of an input image, input and output channels */
    int kernel, stride;
    int weight, gain, bias;   /* tensors */
    int mean, variance, seen; /* of the state; seen: micro-batches */
};

enum { CONV_MOMENTUM_PERCENT = 10 }; /* of the running statistics, and eps, as torch has them */
#define CONV_EPS 1e-5f

/* Returns the rows or columns of the output for `side` rows or columns of input. */
static inline int conv_side(const struct conv_part *p, int side)
{
    return window_count(side, p->kernel, p->stride, p->kernel / 2);
}

static inline size_t conv_pixels(const struct conv_part *p, int rows)
{
    return (size_t)rows * (size_t)conv_side(p, p->h) * (size_t)conv_side(p, p->w);
}

/* Returns the elements of the output of `rows` images. */
static inline size_t conv_count(const struct conv_part *p, int rows)
{
    return conv_pixels(p, rows) * (size_t)p->out;
}

static inline double conv_flops(const struct conv_part *p, int rows)
{
    return 2.0 * (double)conv_count(p, rows) * p->kernel * p->kernel * p->in;
}

/* Memory that forward leaves for backward. */
struct conv_kept {
    struct view c;     /* (rows, h', w', out) the convolution's result */
    struct view stats; /* (2, out) */
};

struct conv_kept conv_carve(const struct conv_part *p, struct extent e, struct room *room);

/* Computes y = norm(conv(x)) + residual, then relu; residual (optional). `one` (1): scratch for the
 * number 1, which is added to the count of seen batches. */
void conv_part_forward(const struct conv_part *p, struct pass *pass, const struct view *theta,
                       const struct conv_kept *k, struct view y, struct view x,
                       struct view residual, bool relu, struct view one);

/* Computes the same y again, in backward. */
void conv_part_again(const struct conv_part *p, struct pass *pass, const struct view *theta,
                     const struct conv_kept *k, struct view y, struct view residual, bool relu);

/* dx (optional) =, or += when `add`; dresidual (optional) =. `dc`: room for the gradient of c,
 * which may be dy unless there is a dresidual. `y` is read after relu. */
struct conv_gradient {
    struct view dx, dresidual, dc, dy, x, y;
    bool add, relu;
};
void conv_part_backward(const struct conv_part *p, struct pass *pass, const struct view *theta,
                        const struct view *grad, const struct conv_kept *k,
                        const struct conv_gradient *g);

#endif
