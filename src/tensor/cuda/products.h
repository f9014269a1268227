/* Products and column sums, for linear layers and convolutions. */
#ifndef SOTTO_TENSOR_CUDA_PRODUCTS_H
#define SOTTO_TENSOR_CUDA_PRODUCTS_H

#include "tensor/cuda/cublaslt.h"

/* Issues a product; `half`: factors may be rounded to bf16. */
void cuda_product(struct device *dev, const struct product *p, bool half);
/* y (width) += the column sums of x (rows, width). */
void cuda_add_columns(struct device *dev, struct view y, struct view x, int rows, int width);

#endif
