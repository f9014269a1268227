/* Parameters to and from Hugging Face files. */
#ifndef SOTTO_TRAIN_WEIGHTS_H
#define SOTTO_TRAIN_WEIGHTS_H

#include "nn/model.h"

/* The configuration of the model in `folder` (config.json). */
enum sotto_status weights_config(struct model_config *config, const char *folder);

/* Its parameters (model.safetensors or shards) into a whole flat fp32 vector. Every tensor of the
 * model must be there in its shape; others are ignored, since published files hold buffers too. */
enum sotto_status weights_load(const struct model *model, const char *folder, float *flat);

/* Writes model.safetensors and config.json into `folder`, atomically each. `end` is the end-of-text
 * token's id, -1: none. A parameter that is no number is SOTTO_ENUMERIC. */
enum sotto_status weights_save(const struct model *model, const char *folder, const float *flat,
                               int end);

#endif
