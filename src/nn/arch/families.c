/* The families of decoders, a row each. */
#include <string.h>

#include "nn/arch/decoder.h"

/* Appends the kinds in `list`, `repeat` times. */
static enum sotto_status read_kinds(struct model_config *c, const json_t *list, json_int_t repeat)
{
    size_t used = strlen(c->pattern);
    if (repeat < 0 ||
        (json_int_t)json_array_size(list) * repeat >= (json_int_t)(sizeof c->pattern - used))
        return fail(SOTTO_EFORMAT, "the attention pattern has more than %zu layers",
                    sizeof c->pattern - 1);
    for (json_int_t r = 0; r < repeat; r++) {
        size_t i;
        json_t *kind;
        json_array_foreach(list, i, kind)
        {
            const char *name = json_is_string(kind) ? json_string_value(kind) : "";
            if (strcmp(name, "global") != 0 && strcmp(name, "local") != 0)
                return fail(SOTTO_EFORMAT, "attention kind %zu must be \"global\" or \"local\"", i);
            c->pattern[used++] = name[0];
            c->pattern[used] = '\0';
        }
    }
    return SOTTO_OK;
}

/* Reads "attention_layers": ["global", "local", ...], or "attention_types": [[["global", "local"],
 * 12]]. */
static enum sotto_status gpt_neo_read(struct model_config *c, const json_t *json)
{
    const json_t *layers = json_object_get(json, "attention_layers");
    const json_t *types = json_object_get(json, "attention_types");
    if (json_is_array(layers))
        return read_kinds(c, layers, 1);
    size_t i;
    json_t *pair;
    json_array_foreach(types, i, pair)
    {
        const json_t *kinds = json_array_get(pair, 0), *times = json_array_get(pair, 1);
        if (!json_is_array(kinds) || !json_is_integer(times) || json_integer_value(times) > 1024)
            return fail(SOTTO_EFORMAT, "\"attention_types\" must be a list of [[kinds], times]");
        TRY(read_kinds(c, kinds, json_integer_value(times)));
    }
    return SOTTO_OK;
}

static void gpt_neo_write(const struct model_config *c, json_t *json)
{
    json_t *kinds = json_array();
    for (int i = 0; i < c->layers; i++)
        json_array_append_new(kinds, json_string(model_config_local(c, i) ? "local" : "global"));
    json_object_set(json, "attention_layers", kinds);
    json_object_set_new(json, "attention_types", json_pack("[[oi]]", kinds, 1));
}

/* Reads the kinds of Qwen's layers: "layer_types", or windows from "max_window_layers" on. */
static enum sotto_status qwen_read(struct model_config *c, const json_t *json)
{
    const json_t *types = json_object_get(json, "layer_types");
    const json_t *most = json_object_get(json, "max_window_layers");
    const json_int_t first = json_is_integer(most) ? json_integer_value(most) : 28;
    if (!json_get_bool_or(json, "use_sliding_window", false))
        c->window = 0;
    for (int i = 0; c->window && i < c->layers; i++) {
        const char *type = json_is_array(types)
                               ? json_string_value(json_array_get(types, (size_t)i))
                           : i < first ? "full_attention"
                                       : "sliding_attention";
        const bool local = type && strcmp(type, "sliding_attention") == 0;
        if (!type || (!local && strcmp(type, "full_attention") != 0))
            return fail(SOTTO_EFORMAT,
                        "\"layer_types\" must have \"full_attention\" or \"sliding_attention\" for "
                        "each of %d layers",
                        c->layers);
        if ((size_t)i + 1 >= sizeof c->pattern)
            return fail(SOTTO_EFORMAT, "windows in more than %d layers", i);
        c->pattern[i] = local ? 'l' : 'g';
    }
    if (!strchr(c->pattern, 'l')) {
        c->window = 0;
        *c->pattern = '\0';
    }
    return SOTTO_OK;
}

static void qwen_write(const struct model_config *c, json_t *json)
{
    int first = 0; /* of the layers with a window */
    json_t *types = json_array();
    for (int i = 0; i < c->layers; i++) {
        const bool local = model_config_local(c, i);
        json_array_append_new(types, json_string(local ? "sliding_attention" : "full_attention"));
        first += first == i && !local;
    }
    json_object_set_new(json, "layer_types", types);
    json_object_set_new(json, "use_sliding_window", json_boolean(c->window != 0));
    json_object_set_new(json, "max_window_layers", json_integer(first));
}

// clang-format off
static const char *const gelu[] = {"gelu_new", "gelu_pytorch_tanh", "gelu", NULL};
static const char *const silu[] = {"silu", NULL};

/* ---- GPT-2 (Radford et al. 2019) ---- */

static const struct arch_member gpt2_members[] = {
    MEMBER_REQUIRED("n_layer", layers),
    MEMBER_REQUIRED("n_embd", width),
    MEMBER_REQUIRED("n_head", heads),
    MEMBER_INT("n_inner", mlp_width),
    MEMBER_REQUIRED("n_positions", positions),
    MEMBER_REQUIRED("vocab_size", vocab),
    MEMBER_REAL("layer_norm_epsilon", norm_eps),
    MEMBER_REAL("initializer_range", init_std),
    MEMBER_FIXED("scale_attn_weights", true),
    MEMBER_FIXED("scale_attn_by_inverse_layer_idx", false),
};

static const struct decoder gpt2 = {
    .choices = {.norm = NORM_LAYER, .positions = true, .equal_heads = true, .even_heads = true,
                .qkv_fused = true, .qkv_bias = true, .out_bias = true, .mlp_bias = true,
                .layout = LINEAR_IN_OUT, .narrow_init = true},
    .names = &gpt2_names,
    DECODER_MEMBERS(gpt2_members),
    .activation = "activation_function",
    .activations = gelu,
    .fresh = {.norm_eps = 1e-5, .tied = TIED_YES},
};

const struct arch arch_gpt2 = {
    DECODER(GPT2, gpt2),
    .hf_class = "GPT2LMHeadModel",
    .about = "GPT-2 (2019): learned positions, layer norm before each sublayer, GELU",
};

/* ---- GPT-Neo (Black et al. 2021) ---- */

static const struct arch_member gpt_neo_members[] = {
    MEMBER_REQUIRED("num_layers", layers),
    MEMBER_REQUIRED("hidden_size", width),
    MEMBER_REQUIRED("num_heads", heads),
    MEMBER_INT("intermediate_size", mlp_width),
    MEMBER_REQUIRED("max_position_embeddings", positions),
    MEMBER_REQUIRED("vocab_size", vocab),
    MEMBER_INT("window_size", window),
    MEMBER_REAL("layer_norm_epsilon", norm_eps),
    MEMBER_REAL("initializer_range", init_std),
};

static const struct decoder gpt_neo = {
    .choices = {.norm = NORM_LAYER, .positions = true, .equal_heads = true, .even_heads = true,
                .out_bias = true, .mlp_bias = true, .unscaled = true, .windows = WINDOWS_BY_LAYER},
    .names = &gpt_neo_names,
    DECODER_MEMBERS(gpt_neo_members),
    .activation = "activation_function",
    .activations = gelu,
    .fresh = {.norm_eps = 1e-5, .tied = TIED_YES, .window = 256, .pattern = "gl"},
    .read = gpt_neo_read,
    .write = gpt_neo_write,
};

const struct arch arch_gpt_neo = {
    DECODER(GPT_NEO, gpt_neo),
    .hf_class = "GPTNeoForCausalLM",
    .about = "GPT-Neo (2021): as GPT-2, with layers that attend globally or within a window "
             "(window, pattern)",
};

/* ---- Llama (Touvron et al. 2023) ---- */

#define LLAMA_MEMBERS                                                                              \
    MEMBER_REQUIRED("num_hidden_layers", layers),                                                  \
    MEMBER_REQUIRED("hidden_size", width),                                                         \
    MEMBER_REQUIRED("num_attention_heads", heads),                                                 \
    MEMBER_INT("num_key_value_heads", kv_heads),                                                   \
    MEMBER_REQUIRED("intermediate_size", mlp_width),                                               \
    MEMBER_REQUIRED("max_position_embeddings", positions),                                         \
    MEMBER_REQUIRED("vocab_size", vocab),                                                          \
    MEMBER_REAL("rms_norm_eps", norm_eps),                                                         \
    MEMBER_REAL("rope_theta", rope_theta),                                                         \
    MEMBER_REAL("initializer_range", init_std)

static const struct arch_member llama_members[] = {
    LLAMA_MEMBERS,
    MEMBER_INT("head_dim", head_width),
    MEMBER_FIXED("attention_bias", false),
    MEMBER_FIXED("mlp_bias", false),
};

static const struct decoder llama = {
    .choices = {.norm = NORM_RMS, .gated = true},
    .names = &llama_names,
    DECODER_MEMBERS(llama_members),
    .activation = "hidden_act",
    .activations = silu,
    .fresh = {.norm_eps = 1e-5, .rope_theta = 10000, .tied = TIED_NO},
    .absent = {.norm_eps = 1e-6},
};

const struct arch arch_llama = {
    DECODER(LLAMA, llama),
    .hf_class = "LlamaForCausalLM",
    .about = "Llama (2023): rotary positions, RMS norm, SwiGLU, optionally fewer key/value heads "
             "(kv_heads)",
};

/* ---- OLMo 2 (2024): Llama's parts, with other norms ---- */

static const struct arch_member olmo2_members[] = {
    LLAMA_MEMBERS,
    MEMBER_FIXED("attention_bias", false),
};

static const struct decoder olmo2 = {
    .choices = {.norm = NORM_RMS, .norm_after = true, .qk_norm = QK_ALL_HEADS, .gated = true,
                .even_heads = true},
    .names = &olmo2_names,
    DECODER_MEMBERS(olmo2_members),
    .activation = "hidden_act",
    .activations = silu,
    .fresh = {.norm_eps = 1e-6, .rope_theta = 500000, .tied = TIED_NO},
    .absent = {.norm_eps = 1e-5, .rope_theta = 10000},
};

const struct arch arch_olmo2 = {
    DECODER(OLMO2, olmo2),
    .hf_class = "Olmo2ForCausalLM",
    .about = "OLMo 2 (2024): as Llama, with norms after the sublayers, and norms of q and k",
};

/* ---- Mistral (2023) ---- */

static const struct arch_member mistral_members[] = {
    LLAMA_MEMBERS,
    MEMBER_INT("head_dim", head_width),
    MEMBER_INT("sliding_window", window),
};

static const struct decoder mistral = {
    .choices = {.norm = NORM_RMS, .gated = true, .windows = WINDOWS_ALL},
    .names = &llama_names,
    DECODER_MEMBERS(mistral_members),
    .activation = "hidden_act",
    .activations = silu,
    .fresh = {.norm_eps = 1e-5, .rope_theta = 10000, .tied = TIED_NO},
    .absent = {.norm_eps = 1e-6, .kv_heads = 8, .window = 4096},
};

const struct arch arch_mistral = {
    DECODER(MISTRAL, mistral),
    .hf_class = "MistralForCausalLM",
    .about = "Mistral (2023): as Llama, with a window in all layers (window)",
};

/* ---- Qwen 2 and 2.5 (2024): Llama with biases of q, k and v ---- */

static const struct arch_member qwen2_members[] = {
    LLAMA_MEMBERS,
    MEMBER_INT("sliding_window", window),
};

static const struct decoder qwen2 = {
    .choices = {.norm = NORM_RMS, .gated = true, .qkv_bias = true, .even_heads = true,
                .windows = WINDOWS_BY_LAYER},
    .names = &llama_names,
    DECODER_MEMBERS(qwen2_members),
    .activation = "hidden_act",
    .activations = silu,
    .fresh = {.norm_eps = 1e-6, .rope_theta = 1000000, .tied = TIED_NO},
    .absent = {.rope_theta = 10000, .kv_heads = 32, .window = 4096},
    .read = qwen_read,
    .write = qwen_write,
};

const struct arch arch_qwen2 = {
    DECODER(QWEN2, qwen2),
    .hf_class = "Qwen2ForCausalLM",
    .about = "Qwen 2 and 2.5 (2024): as Llama, with biases of q, k and v, and windows in some layers "
             "(window, pattern)",
};

/* ---- Qwen 3 (2025): Llama with norms of q and k ---- */

static const struct arch_member qwen3_members[] = {
    LLAMA_MEMBERS,
    MEMBER_INT("head_dim", head_width),
    MEMBER_INT("sliding_window", window),
    MEMBER_FIXED("attention_bias", false),
};

static const struct decoder qwen3 = {
    .choices = {.norm = NORM_RMS, .qk_norm = QK_EACH_HEAD, .gated = true,
                .windows = WINDOWS_BY_LAYER},
    .names = &llama_names,
    DECODER_MEMBERS(qwen3_members),
    .activation = "hidden_act",
    .activations = silu,
    .fresh = {.norm_eps = 1e-6, .rope_theta = 1000000, .tied = TIED_NO},
    .absent = {.rope_theta = 10000, .kv_heads = 32, .head_width = 128, .window = 4096},
    .read = qwen_read,
    .write = qwen_write,
};

const struct arch arch_qwen3 = {
    DECODER(QWEN3, qwen3),
    .hf_class = "Qwen3ForCausalLM",
    .about = "Qwen 3 (2025): as Llama, with norms of each head's q and k, and windows in some layers "
             "(window, pattern)",
};
