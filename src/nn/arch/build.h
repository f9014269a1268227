/* Functions for architectures to build a model. */
#ifndef SOTTO_NN_ARCH_BUILD_H
#define SOTTO_NN_ARCH_BUILD_H

#include "nn/layers/layers.h"
#include "nn/model.h"

/* Begins a layer, to which tensors are then added, until the next layer is begun. Returns zeroed
 * memory for the layer's own struct, NULL without memory. */
void *model_begin(struct model *m, const struct layer_ops *ops, size_t bytes);

/* Begins a layer as a copy of the latest layer, for the second half of a sublayer that a stage may
 * cut; model_take moves a tensor into the new layer. */
void *model_split(struct model *m, const struct layer_ops *ops, size_t bytes);
void model_take(struct model *m, int tensor);

/* Adds a tensor to the latest layer and returns its index, -1 without memory. d1 0: a vector. */
int model_matrix(struct model *m, double std, int d0, int d1, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
int model_ones(struct model *m, int d0, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int model_zeros(struct model *m, int d0, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds a tensor (d0, d1, d2), or the weight of a convolution: (out, kernel, kernel, in). */
int model_cube(struct model *m, double std, int d0, int d1, int d2, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
int model_kernel(struct model *m, double std, int out, int kernel, int in, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

/* Adds untrained state, of ones or zeros at the start. */
int model_state(struct model *m, bool ones, int d0, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Adds a counter to the untrained state. */
int model_counter(struct model *m, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
