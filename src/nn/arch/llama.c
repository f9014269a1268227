/* Llama (Touvron et al. 2023): RMS norm before each sublayer, rotary positions, SwiGLU, grouped
 * queries, no biases. */
#include "nn/arch/llama.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

void llama_defaults(struct model_config *c, double norm_eps, double rope_theta)
{
    if (!c->mlp_width) /* 8/3 of the width: as many parameters as 4x without a gate */
        c->mlp_width = (8 * c->width / 3 + 31) / 32 * 32;
    if (c->norm_eps == 0)
        c->norm_eps = norm_eps;
    if (c->rope_theta == 0)
        c->rope_theta = rope_theta;
    if (!c->tied)
        c->tied = TIED_NO;
    if (!*c->activation)
        strcpy(c->activation, "silu");
}

static void llama_own_defaults(struct model_config *c)
{
    llama_defaults(c, 1e-5, 10000);
}

enum sotto_status llama_check(const struct model_config *c)
{
    if (c->head_width % 2)
        return fail(SOTTO_EINVAL, "head_width = %d must be even for rotary positions",
                    c->head_width);
    if (c->window || *c->pattern)
        return fail(SOTTO_EINVAL, "window = %d, pattern = '%s': llama and olmo2 attend globally",
                    c->window, c->pattern);
    if (strcmp(c->activation, "silu") != 0)
        return fail(SOTTO_EINVAL, "activation '%s': llama and olmo2 use silu", c->activation);
    return SOTTO_OK;
}

static struct norm_part llama_norm(struct model *m, int tensor)
{
    return (struct norm_part){NORM_RMS, tensor, -1, (float)m->config.norm_eps};
}

static enum sotto_status llama_add_attention(struct model *m, int i, bool after)
{
    const struct model_config *c = &m->config;
    const double std = c->init_std;
    const int C = c->width, Q = c->heads * c->head_width, KV = c->kv_heads * c->head_width;
    struct attention_layer *a = model_begin(m, &attention_ops, sizeof *a);
    if (!a || !(a->frequencies = arch_frequencies(c)))
        return fail(SOTTO_ENOMEM, "no memory for layer %d", i);
    a->width = C;
    a->heads = c->heads;
    a->kv_heads = c->kv_heads;
    a->head_width = c->head_width;
    a->scale = (float)(1 / sqrt(c->head_width));
    a->norm_after = a->qk_norm = after;
    a->index = m->n_attention++;
    a->qkv_w = a->qkv_b = a->q_b = a->k_b = a->v_b = a->o_b = -1;
    a->norm = llama_norm(m, model_ones(m, C, "model.layers.%d.%s.weight", i,
                                       after ? "post_attention_layernorm" : "input_layernorm"));
    a->q_w = model_matrix(m, std, Q, C, "model.layers.%d.self_attn.q_proj.weight", i);
    a->k_w = model_matrix(m, std, KV, C, "model.layers.%d.self_attn.k_proj.weight", i);
    a->v_w = model_matrix(m, std, KV, C, "model.layers.%d.self_attn.v_proj.weight", i);
    a->o_w = model_matrix(m, std, C, Q, "model.layers.%d.self_attn.o_proj.weight", i);
    if (a->qk_norm) {
        a->q_norm = llama_norm(m, model_ones(m, Q, "model.layers.%d.self_attn.q_norm.weight", i));
        a->k_norm = llama_norm(m, model_ones(m, KV, "model.layers.%d.self_attn.k_norm.weight", i));
    }
    return SOTTO_OK;
}

static enum sotto_status llama_add_mlp(struct model *m, int i, bool after)
{
    const struct model_config *c = &m->config;
    const double std = c->init_std;
    const int C = c->width, F = c->mlp_width;
    struct mlp_layer *f = model_begin(m, &mlp_ops, sizeof *f);
    if (!f)
        return fail(SOTTO_ENOMEM, "no memory for layer %d", i);
    f->width = C;
    f->hidden = F;
    f->kind = MLP_SWIGLU;
    f->norm_after = after;
    f->up_b = f->down_b = -1;
    f->norm = llama_norm(
        m, model_ones(m, C, "model.layers.%d.%s.weight", i,
                      after ? "post_feedforward_layernorm" : "post_attention_layernorm"));
    f->gate_w = model_matrix(m, std, F, C, "model.layers.%d.mlp.gate_proj.weight", i);
    f->up_w = model_matrix(m, std, F, C, "model.layers.%d.mlp.up_proj.weight", i);
    f->down_w = model_matrix(m, std, C, F, "model.layers.%d.mlp.down_proj.weight", i);
    return SOTTO_OK;
}

enum sotto_status llama_chain(struct model *m, bool after)
{
    const struct model_config *c = &m->config;
    const int C = c->width;
    struct embed_layer *embed = model_begin(m, &embed_ops, sizeof *embed);
    if (!embed)
        return fail(SOTTO_ENOMEM, "no memory for the embedding");
    embed->width = C;
    embed->table = model_matrix(m, c->init_std, c->vocab, C, "model.embed_tokens.weight");
    embed->positions = -1;

    for (int i = 0; i < c->layers; i++) {
        TRY(llama_add_attention(m, i, after));
        TRY(llama_add_mlp(m, i, after));
    }

    struct head_layer *head = model_begin(m, &head_ops, sizeof *head);
    if (!head)
        return fail(SOTTO_ENOMEM, "no memory for the head");
    head->width = C;
    head->vocab = c->vocab;
    head->norm = llama_norm(m, model_ones(m, C, "model.norm.weight"));
    head->w = c->tied == TIED_YES ? embed->table
                                  : model_matrix(m, c->init_std, c->vocab, C, "lm_head.weight");
    return SOTTO_OK;
}

static enum sotto_status llama_build(struct model *m)
{
    return llama_chain(m, false);
}

#define AT(field) offsetof(struct model_config, field)
static const struct arch_member members[] = {
    {"num_hidden_layers", AT(layers), false, true},
    {"hidden_size", AT(width), false, true},
    {"num_attention_heads", AT(heads), false, true},
    {"num_key_value_heads", AT(kv_heads), false, false},
    {"head_dim", AT(head_width), false, false},
    {"intermediate_size", AT(mlp_width), false, true},
    {"max_position_embeddings", AT(positions), false, true},
    {"rms_norm_eps", AT(norm_eps), true, false},
    {"rope_theta", AT(rope_theta), true, false},
    {"vocab_size", AT(vocab), false, true},
    {"initializer_range", AT(init_std), true, false},
};
enum { MEMBERS = sizeof members / sizeof *members };

/* Reads "rope_scaling" of older files and "rope_parameters" of newer files. */
static enum sotto_status read_rope(struct model_config *c, const json_t *json, const char *key)
{
    static const char *const plain[] = {"default", NULL};
    const json_t *rope = json_object_get(json, key);
    if (!rope || json_is_null(rope))
        return SOTTO_OK;
    if (!json_is_object(rope))
        return fail(SOTTO_EFORMAT, "\"%s\" must be an object, got %s", key, json_kind(rope));
    TRY(arch_expect(rope, "rope_type", plain));
    TRY(arch_expect(rope, "type", plain));
    const json_t *theta = json_object_get(rope, "rope_theta");
    if (json_is_number(theta))
        c->rope_theta = json_number_value(theta);
    return SOTTO_OK;
}

enum sotto_status llama_read(struct model_config *c, const json_t *json, double norm_eps)
{
    static const char *const silu[] = {"silu", NULL};
    c->norm_eps = norm_eps;
    c->rope_theta = 10000; /* the default of transformers, not that of the family */
    TRY(arch_read(c, json, members, MEMBERS));
    TRY(read_rope(c, json, "rope_scaling"));
    TRY(read_rope(c, json, "rope_parameters"));
    TRY(arch_expect(json, "hidden_act", silu));
    if (json_get_bool_or(json, "attention_bias", false) ||
        json_get_bool_or(json, "mlp_bias", false))
        return fail(SOTTO_EFORMAT, "biases in attention or feed-forward are not supported");
    return SOTTO_OK;
}

json_t *llama_write(const struct model_config *c, const char *hf_class)
{
    json_t *json = arch_write(c, members, MEMBERS, hf_class);
    json_object_set_new(json, "hidden_act", json_string(c->activation));
    json_object_set_new(json, "attention_bias", json_false());
    json_object_set_new(
        json, "rope_parameters",
        json_pack("{s:s, s:f}", "rope_type", "default", "rope_theta", c->rope_theta));
    return json;
}

static enum sotto_status llama_from_json(struct model_config *c, const json_t *json)
{
    return llama_read(c, json, 1e-6);
}

static json_t *llama_to_json(const struct model_config *c)
{
    return llama_write(c, arch_llama.hf_class);
}

const struct arch arch_llama = {
    .number = ARCH_LLAMA,
    .name = "llama",
    .about = "Llama (2023): rotary positions, RMS norm, SwiGLU, optionally fewer key/value heads "
             "(kv_heads)",
    .hf_class = "LlamaForCausalLM",
    .text = true,
    .defaults = llama_own_defaults,
    .check = llama_check,
    .from_json = llama_from_json,
    .to_json = llama_to_json,
    .build = llama_build};
