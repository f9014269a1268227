/* Products by cuBLASLt, which is loaded if the machine has the library. The kernel for a shape
 * follows from the library's heuristics and stays the same, so that results do. */
#ifndef SOTTO_TENSOR_CUDA_CUBLASLT_H
#define SOTTO_TENSOR_CUDA_CUBLASLT_H

#include "tensor/cuda/cuda.h"

/* Returns NULL only if there is too little memory. Without the library, cublaslt_product returns
 * false. */
struct cublaslt *cublaslt_open(struct device *dev);
void cublaslt_free_workspace(struct cublaslt *lt,
                             struct device *dev); /* frees the workspace; lt may be NULL */
void cublaslt_close(struct cublaslt *lt);         /* after cublaslt_free_workspace */
const char *cublaslt_describe(const struct cublaslt *lt);

/* Allocates the workspace of cublaslt_product. Returns true if the workspace exists. */
bool cublaslt_take_workspace(struct cublaslt *lt, struct device *dev);

/* Issues a product to the stream s and returns true, or returns false if the library cannot
 * compute the product. Both factors have one type, and other operands the type of c: fp32 with
 * fp32 factors. A bias is aligned to 16 bytes. A failure is kept. */
bool cublaslt_product(struct cublaslt *lt, struct device *dev, stream_t s, const struct product *p);

#endif
