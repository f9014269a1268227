/* Parameters to and from Hugging Face files. */
#ifndef SOTTO_HF_WEIGHTS_H
#define SOTTO_HF_WEIGHTS_H

#include "io/safetensors.h"
#include "nn/model.h"

/* The configuration of the model in `folder` (config.json). */
enum sotto_status weights_config(struct model_config *config, const char *folder);

/* Its parameters (model.safetensors or shards; `path` may also be one file) into a whole flat fp32
 * vector. Every tensor of the model must be there in its shape; others are ignored, which
 * weights_check is for. */
enum sotto_status weights_load(const struct model *model, const char *path, float *flat);

/* The same but for the classifier of a model over images, which stays as it is in `flat`. */
enum sotto_status weights_load_body(const struct model *model, const char *path, float *flat);

/* Whether the files have that classifier, of whatever classes. */
enum sotto_status weights_have_classifier(const struct model *model, const char *path, bool *have);

/* ... and what the model keeps beside its parameters (model->state). */
enum sotto_status weights_load_state(const struct model *model, const char *path, float *state);

/* Looks whether the files have all tensors of the model in their shapes and no others, before
 * memory is taken for sizes that a file claims. Passed over are leftovers of other versions of
 * transformers that no model is computed with, and the output projection of a model that ties it,
 * if it equals the embedding. `body`: so is whatever classifier there is. */
enum sotto_status weights_check(const struct model *model, const char *path, bool body);

/* The types (model->table.n) that the tensors have in those files: F32, BF16 or F16; what was wider
 * is F32, which it is read as. `body`: the classifier is not looked for, and has the type of the
 * tensor before it. */
enum sotto_status weights_types(const struct model *model, const char *path, bool body,
                                enum safetensors_type *types);

/* Writes a safetensors file, atomically. `types`: of the tensors, NULL: F32; a tensor with numbers
 * too large for its type is written as F32 all the same, with a warning. A parameter that is no
 * number is SOTTO_ENUMERIC, and leaves the old file as it was. */
enum sotto_status weights_save(const struct model *model, const char *path, const float *flat,
                               const float *state, const enum safetensors_type *types);

#endif
