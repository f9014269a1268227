/* Finding the tensors of a model in files; for weights*.c only. */
#ifndef SOTTO_HF_WEIGHTS_FIND_H
#define SOTTO_HF_WEIGHTS_FIND_H

#include "io/safetensors.h"
#include "nn/model.h"

/* Returns the name without the outer module's name, which files of a bare model lack ("h.0..." for
 * "transformer.h.0..."). */
const char *weights_bare_name(const char *name);

/* Finds a tensor by this name or the bare name; NULL if there is neither. */
const struct safetensors_entry *weights_find_name(const struct safetensors *set, const char *name);

/* Finds the tensor by any of its names; an error if the tensor is missing (then `*out` is NULL) or
 * has another shape. */
enum sotto_status weights_find(const struct safetensors *set, const struct model *model,
                               const struct table_entry *e, const struct safetensors_entry **out);

/* Writes the tensor's shape in files. */
void weights_shape(const struct table_entry *e, int64_t shape[TABLE_DIMS]);

/* True if the tensor is a classifier's, of a model over images. */
bool weights_classify(const struct table_entry *e);

#endif
