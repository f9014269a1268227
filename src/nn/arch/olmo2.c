/* OLMo 2 (2024): Llama's parts with the norms after the sublayers, and q and k normalised over all
 * heads before the rotation. */
#include "nn/arch/llama.h"

static void olmo2_defaults(struct model_config *c)
{
    llama_defaults(c, 1e-6, 500000);
}

static enum sotto_status olmo2_check(const struct model_config *c)
{
    if (c->head_width * c->heads != c->width)
        return fail(SOTTO_EINVAL, "olmo2 wants width = %d to be heads (%d) times head_width (%d)",
                    c->width, c->heads, c->head_width);
    return llama_check(c);
}

static enum sotto_status olmo2_build(struct model *m)
{
    return llama_chain(m, true);
}

static enum sotto_status olmo2_from_json(struct model_config *c, const json_t *json)
{
    return llama_read(c, json, 1e-5);
}

static json_t *olmo2_to_json(const struct model_config *c)
{
    json_t *json = llama_write(c, arch_olmo2.hf_class);
    json_object_del(json, "head_dim"); /* always hidden_size / heads here */
    return json;
}

const struct arch arch_olmo2 = {
    .number = ARCH_OLMO2,
    .name = "olmo2",
    .about = "OLMo 2 (2024): as Llama, with norms after the sublayers, and norms of q and k",
    .hf_class = "Olmo2ForCausalLM",
    .text = true,
    .defaults = olmo2_defaults,
    .check = olmo2_check,
    .from_json = olmo2_from_json,
    .to_json = olmo2_to_json,
    .build = olmo2_build};
