/* Parameters to and from Hugging Face files. */
#ifndef SOTTO_HF_WEIGHTS_H
#define SOTTO_HF_WEIGHTS_H

#include "io/safetensors.h"
#include "nn/model.h"

/* Reads the configuration of the model in `folder` (config.json). */
enum sotto_status weights_config(struct model_config *config, const char *folder);

/* Reads the parameters (model.safetensors or shards; `path` may also be one file) into a whole flat
 * fp32 vector. Every tensor of the model must be in the files with its shape; further tensors are
 * ignored (see weights_check). */
enum sotto_status weights_load(const struct model *model, const char *path, float *flat);

/* Reads parameters without the classifier of a model over images, which stays unchanged in `flat`.
 */
enum sotto_status weights_load_body(const struct model *model, const char *path, float *flat);

/* Sets `have` to true if the files have a classifier, of any classes. */
enum sotto_status weights_have_classifier(const struct model *model, const char *path, bool *have);

/* Reads the model's untrained state (model->state). */
enum sotto_status weights_load_state(const struct model *model, const char *path, float *state);

/* Checks that the files have all tensors of the model in their shapes and no others, before memory
 * is allocated for sizes that a file claims. Ignored are leftovers of other versions of
 * transformers that no model computes with, and the output projection of a model with tied
 * embeddings, if equal to the embedding. `body`: any classifier is ignored, too. */
enum sotto_status weights_check(const struct model *model, const char *path, bool body);

/* Returns the types (model->table.n) of the tensors in the files: F32, BF16 or F16; wider types are
 * read as F32. `body`: the classifier is not read, and gets the type of the tensor before it. */
enum sotto_status weights_types(const struct model *model, const char *path, bool body,
                                enum safetensors_type *types);

/* Writes a safetensors file, atomically. `types`: of the tensors, NULL: F32; a tensor with numbers
 * too large for its type is written as F32, with a warning. A parameter that is no number is
 * SOTTO_ENUMERIC, and leaves the old file unchanged. */
enum sotto_status weights_save(const struct model *model, const char *path, const float *flat,
                               const float *state, const enum safetensors_type *types);

#endif
