/* Products by cuBLASLt, which is loaded when there is one. The kernel for a shape follows from what
 * its heuristics name and stays the same, so that results are. */
#ifndef SOTTO_TENSOR_CUDA_CUBLASLT_H
#define SOTTO_TENSOR_CUDA_CUBLASLT_H

#include "tensor/cuda/cuda.h"

/* Never NULL unless there is no memory for it; without the library lt_product takes nothing. */
struct lt *lt_open(struct device *dev);
void lt_rest(struct lt *lt, struct device *dev); /* gives back what it works in; NULL is fine */
void lt_close(struct lt *lt);                    /* which rests */
const char *lt_describe(const struct lt *lt);

/* Asks for what lt_product works in. Whether it is there. */
bool lt_take(struct lt *lt, struct device *dev);

/* Whether it took it, to the stream s: factors of one type and the rest of c's, fp32 with fp32
 * factors; bias on 16 bytes. A failure is kept. */
bool lt_product(struct lt *lt, struct device *dev, stream_t s, const struct product *p);

#endif
