/* What architectures make a model with. */
#ifndef SOTTO_NN_ARCH_BUILD_H
#define SOTTO_NN_ARCH_BUILD_H

#include "nn/layers/layers.h"
#include "nn/model.h"

/* Building: a layer is begun, its tensors are added, the next one is begun. `model_begin` returns
 * zeroed memory of the layer's own struct, NULL without memory. */
void *model_begin(struct model *m, const struct layer_ops *ops, size_t bytes);

/* Begins a layer as a copy of the one begun last, for what comes behind a place inside of it where
 * a stage may end; and takes a tensor over into it. */
void *model_split(struct model *m, const struct layer_ops *ops, size_t bytes);
void model_take(struct model *m, int tensor);

/* Adds a tensor of the layer begun last and returns its index, -1 without memory. d1 0: a vector.
 */
int model_matrix(struct model *m, double std, int d0, int d1, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
int model_ones(struct model *m, int d0, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int model_zeros(struct model *m, int d0, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* (d0, d1, d2), and the weight of a convolution: (out, kernel, kernel, in). */
int model_cube(struct model *m, double std, int d0, int d1, int d2, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
int model_kernel(struct model *m, double std, int out, int kernel, int in, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

/* The same for state that is not trained: of ones or of zeros, to begin with. */
int model_state(struct model *m, bool ones, int d0, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* ... or one number that counts. */
int model_counter(struct model *m, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
