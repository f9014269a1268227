/* Products of gathered matrices, with the kernels of all matrix products. */
#ifndef SOTTO_TENSOR_CPU_GEMM_PRODUCTS_H
#define SOTTO_TENSOR_CPU_GEMM_PRODUCTS_H

#include "tensor/cpu/gemm/gathered.h"

/* A product c = a b + bias of gathered operands, computed by rows. */
struct row_product {
    size_t m;
    int n, k;
    bool half; /* operands may be rounded to bf16 */
    struct gathered_matrix a, b;
    bool b_turned; /* true: rows of b are columns of the product; false: rows of b are its depth */
    struct view c;
    const float *bias; /* (optional) (n) */
    bool add;          /* c += */
    /* Place of the product's rows in c: row (image, y, x), of `tall` times `wide` in an image, is
     * pixel (first_y + y * step, first_x + x * step) of an image of (h, w). step 1: rows in
     * order. */
    int step, first_y, first_x, tall, wide, h, w;
};

/* c (m, n) += a^T b, summed over the k rows of a and b; c is fp32. */
struct sum_product {
    int m, n;
    size_t k;
    bool half;
    struct gathered_matrix a, b;
    float *c;
};

/* The functions ..._room return the floats of scratch that a product takes at `room`. `n` row
 * products, at most ROW_PRODUCTS, run at once and write different rows. */
enum { ROW_PRODUCTS = 4 };
size_t cpu_row_products_room(const struct device *dev, const struct row_product *p, int n);
void cpu_row_products(struct device *dev, const struct row_product *p, int n, float *room);
size_t cpu_sum_product_room(const struct device *dev, const struct sum_product *p);
void cpu_sum_product(struct device *dev, const struct sum_product *p, float *room);

#endif
