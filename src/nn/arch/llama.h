/* Parts that Llama and OLMo 2 share. */
#ifndef SOTTO_NN_ARCH_LLAMA_H
#define SOTTO_NN_ARCH_LLAMA_H

#include "nn/arch/build.h"

/* Derives sizes as both families do; norm_eps and rope_theta are the caller's defaults. */
void llama_defaults(struct model_config *c, double norm_eps, double rope_theta);
enum sotto_status llama_check(const struct model_config *c);

/* Builds the chain. `after`: norms after the sublayers, and norms of q and k (OLMo 2). */
enum sotto_status llama_chain(struct model *m, bool after);

/* Reads config.json. `norm_eps`: the default of transformers, for files without a value. */
enum sotto_status llama_read(struct model_config *c, const json_t *json, double norm_eps);
json_t *llama_write(const struct model_config *c, const char *hf_class);

#endif
