/* Names of the modules of decoders in model.safetensors, by role: a table a family. */
#include "nn/arch/decoder.h"

/* What GPT-2 and GPT-Neo share, and what Llama and its relatives share. */
#define GPT_NAMES                                                                                  \
    [ROLE_EMBED] = "transformer.wte", [ROLE_POSITIONS] = "transformer.wpe",                        \
    [ROLE_NORM1] = "transformer.h.%d.ln_1", [ROLE_NORM2] = "transformer.h.%d.ln_2",                \
    [ROLE_UP] = "transformer.h.%d.mlp.c_fc", [ROLE_DOWN] = "transformer.h.%d.mlp.c_proj",          \
    [ROLE_NORM] = "transformer.ln_f", [ROLE_HEAD] = "lm_head"
#define LLAMA_NAMES                                                                                \
    [ROLE_EMBED] = "model.embed_tokens", [ROLE_Q] = "model.layers.%d.self_attn.q_proj",            \
    [ROLE_K] = "model.layers.%d.self_attn.k_proj", [ROLE_V] = "model.layers.%d.self_attn.v_proj",  \
    [ROLE_OUT] = "model.layers.%d.self_attn.o_proj",                                               \
    [ROLE_Q_NORM] = "model.layers.%d.self_attn.q_norm",                                            \
    [ROLE_K_NORM] = "model.layers.%d.self_attn.k_norm",                                            \
    [ROLE_GATE] = "model.layers.%d.mlp.gate_proj", [ROLE_UP] = "model.layers.%d.mlp.up_proj",      \
    [ROLE_DOWN] = "model.layers.%d.mlp.down_proj", [ROLE_NORM] = "model.norm",                     \
    [ROLE_HEAD] = "lm_head"

decoder_names gpt2_names = {
    GPT_NAMES,
    [ROLE_QKV] = "transformer.h.%d.attn.c_attn",
    [ROLE_OUT] = "transformer.h.%d.attn.c_proj",
};

decoder_names gpt_neo_names = {
    GPT_NAMES,
    [ROLE_Q] = "transformer.h.%d.attn.attention.q_proj",
    [ROLE_K] = "transformer.h.%d.attn.attention.k_proj",
    [ROLE_V] = "transformer.h.%d.attn.attention.v_proj",
    [ROLE_OUT] = "transformer.h.%d.attn.attention.out_proj",
};

decoder_names llama_names = {
    LLAMA_NAMES,
    [ROLE_NORM1] = "model.layers.%d.input_layernorm",
    [ROLE_NORM2] = "model.layers.%d.post_attention_layernorm",
};

decoder_names olmo2_names = {
    LLAMA_NAMES,
    [ROLE_NORM1] = "model.layers.%d.post_attention_layernorm",
    [ROLE_NORM2] = "model.layers.%d.post_feedforward_layernorm",
};
