/* Products of gathered matrices, with the kernels of all matrix products. */
#ifndef SOTTO_TENSOR_CPU_GEMM_PRODUCTS_H
#define SOTTO_TENSOR_CPU_GEMM_PRODUCTS_H

#include "tensor/cpu/gemm/gathered.h"

/* Rows of c = a b + bias. */
struct row_product {
    size_t m;
    int n, k;
    bool half; /* operands may be rounded to bf16 */
    struct gathered_matrix a, b;
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
    struct gathered_matrix a, b;
    float *c;
};

/* Floats of scratch, and the products, which take it at `room`; of row products several at once,
 * ROW_PRODUCTS at most, which write different rows. */
enum { ROW_PRODUCTS = 4 };
size_t cpu_row_products_room(const struct device *dev, const struct row_product *p, int n);
void cpu_row_products(struct device *dev, const struct row_product *p, int n, float *room);
size_t cpu_sum_product_room(const struct device *dev, const struct sum_product *p);
void cpu_sum_product(struct device *dev, const struct sum_product *p, float *room);

#endif
