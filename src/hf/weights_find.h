/* How tensors of a model are found in files; for weights*.c only. */
#ifndef SOTTO_HF_WEIGHTS_FIND_H
#define SOTTO_HF_WEIGHTS_FIND_H

#include "io/safetensors.h"
#include "nn/model.h"

/* Without the outer module's name, which files that were saved from a bare model lack ("h.0..." for
 * "transformer.h.0..."). */
const char *weights_bare_name(const char *name);

/* By this name or the bare one; NULL: neither. */
const struct safetensors_entry *weights_find_name(const struct safetensors *set, const char *name);

/* The tensor by any of its names; a fault if there is none or it has another shape. `*out` is NULL
 * where there is none. */
enum sotto_status weights_find(const struct safetensors *set, const struct model *model,
                               const struct table_entry *e, const struct safetensors_entry **out);

/* The shape that a file has. */
void weights_shape(const struct table_entry *e, int64_t shape[TABLE_DIMS]);

/* Whether the tensor is the classifier's, of a model over images. */
bool weights_classify(const struct table_entry *e);

#endif
