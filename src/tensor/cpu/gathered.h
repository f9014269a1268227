/* Matrices that are never whole in memory: rows are gathered while a product packs them.
 *
 * A convolution is a product of such matrices: the windows of an image are its rows, the taps of a
 * window times the channels its columns. */
#ifndef SOTTO_TENSOR_CPU_GATHERED_H
#define SOTTO_TENSOR_CPU_GATHERED_H

#include "tensor/cpu/cpu.h"

/* Row (image, y, x), column (ky, kx, channel): the pixel at (y * stride - top + ky, x * stride -
 * left + kx), zero outside of the image. A plain matrix (rows, columns) is images of one pixel. */
struct windows {
    struct view from; /* (images, h, w, channels) */
    int h, w, channels;
    int tall, wide; /* windows of an image, down and across */
    int kernel_h, kernel_w, stride, top, left;
};

/* The weight (out, kernel, kernel, in) of some taps, as what a gradient is multiplied by: row (u,
 * v, o), column i: tap (first_y + step (taps_y - 1 - u), first_x + step (taps_x - 1 - v)). */
struct turned {
    struct view from;
    int in, out, kernel;
    int taps_y, taps_x, first_y, first_x, step;
};

/* One of them. */
struct gathered {
    const struct windows *windows;
    const struct turned *turned;
};

/* to[r * ld + c] = row `row` + r, column `column` + c. */
void cpu_gather(const struct kernels *k, struct gathered m, float *to, size_t ld, size_t row,
                int rows, int column, int columns);

/* Rows of c = a b + bias. */
struct row_product {
    size_t m;
    int n, k;
    bool half; /* operands may be rounded to bf16 */
    struct gathered a, b;
    bool b_turned; /* rows of b are columns of the product, else they are its depth */
    struct view c;
    const float *bias; /* (optional) (n) */
    bool add;          /* c += */
    /* Where rows of the product go: row (image, y, x), of `tall` times `wide` in an image, is pixel
     * (first_y + y * step, first_x + x * step) of one of (h, w). step 1: in order. */
    int step, first_y, first_x, tall, wide, h, w;
};

/* c (m, n) += a^T b, summed over the k rows of both; c is fp32. */
struct sum_product {
    int m, n;
    size_t k;
    bool half;
    struct gathered a, b;
    float *c;
};

/* Floats of scratch, and the products, which take it at `room`. */
size_t cpu_row_product_room(const struct device *dev, const struct row_product *p);
void cpu_row_product(struct device *dev, const struct row_product *p, float *room);
size_t cpu_sum_product_room(const struct device *dev, const struct sum_product *p);
void cpu_sum_product(struct device *dev, const struct sum_product *p, float *room);

#endif
