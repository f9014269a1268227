/* Parts that GPT-2 and GPT-Neo share. */
#ifndef SOTTO_NN_ARCH_GPT2_H
#define SOTTO_NN_ARCH_GPT2_H

#include "nn/arch/build.h"

/* Names and storage of the attention of a family. */
struct gpt2_names {
    const char *attention, *out; /* "attn", "c_proj" */
    bool fused;                  /* q, k and v in one projection, stored as (in, out) */
    bool scaled;                 /* scores by 1/sqrt(head_width) */
    double out_std;              /* initial std of tensors added to the residual stream */
};

void gpt2_defaults(struct model_config *c);
enum sotto_status gpt2_check(const struct model_config *c);
enum sotto_status gpt2_chain(struct model *m, const struct gpt2_names *n);
enum sotto_status gpt2_read_activation(struct model_config *c, const json_t *json);

#endif
