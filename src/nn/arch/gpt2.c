/* GPT-2 (Radford et al. 2019): learned positions, layer norm before each sublayer, GELU,
 * projections stored as (in, out) with q, k and v in one. */
#include "nn/arch/gpt2.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static const char *const activations[] = {"gelu_new", "gelu_pytorch_tanh", "gelu", NULL};

void gpt2_defaults(struct model_config *c)
{
    if (!c->mlp_width)
        c->mlp_width = 4 * c->width;
    if (c->norm_eps == 0)
        c->norm_eps = 1e-5;
    if (!c->tied)
        c->tied = TIED_YES;
    if (!*c->activation)
        strcpy(c->activation, "gelu_new");
}

enum sotto_status gpt2_check(const struct model_config *c)
{
    if (c->width % c->heads || c->head_width * c->heads != c->width)
        return fail(SOTTO_EINVAL, "width = %d must be heads (%d) times head_width (%d)", c->width,
                    c->heads, c->head_width);
    if (c->kv_heads != c->heads)
        return fail(SOTTO_EINVAL,
                    "kv_heads = %d: gpt2 and gpt_neo have the same number as heads "
                    "(%d)",
                    c->kv_heads, c->heads);
    if (c->rope_theta != 0)
        return fail(SOTTO_EINVAL, "rope_theta = %g: gpt2 and gpt_neo learn their positions",
                    c->rope_theta);
    for (int i = 0; activations[i]; i++)
        if (strcmp(activations[i], c->activation) == 0)
            return SOTTO_OK;
    return fail(SOTTO_EINVAL, "activation '%s' is not known: want gelu_new or gelu", c->activation);
}

static struct norm_part gpt2_norm(struct model *m, int i, const char *name)
{
    const int C = m->config.width;
    return (struct norm_part){NORM_LAYER, model_ones(m, C, "transformer.h.%d.%s.weight", i, name),
                              model_zeros(m, C, "transformer.h.%d.%s.bias", i, name),
                              (float)m->config.norm_eps};
}

static enum sotto_status gpt2_add_attention(struct model *m, int i, const struct gpt2_names *n)
{
    const struct model_config *c = &m->config;
    const double std = c->init_std;
    const int C = c->width;
    struct attention_layer *a = model_begin(m, &attention_ops, sizeof *a);
    if (!a)
        return fail(SOTTO_ENOMEM, "no memory for layer %d", i);
    a->width = C;
    a->heads = a->kv_heads = c->heads;
    a->head_width = c->head_width;
    a->layout = n->fused ? LINEAR_IN_OUT : LINEAR_OUT_IN;
    a->scale = n->scaled ? (float)(1 / sqrt(c->head_width)) : 1;
    a->window = model_config_local(c, i) ? c->window : 0;
    a->index = m->n_attention++;
    a->norm = gpt2_norm(m, i, "ln_1");
    a->qkv_w = a->qkv_b = a->q_w = a->k_w = a->v_w = a->q_b = a->k_b = a->v_b = -1;
    if (n->fused) {
        a->qkv_w =
            model_matrix(m, std, C, 3 * C, "transformer.h.%d.%s.c_attn.weight", i, n->attention);
        a->qkv_b = model_zeros(m, 3 * C, "transformer.h.%d.%s.c_attn.bias", i, n->attention);
    } else {
        a->q_w = model_matrix(m, std, C, C, "transformer.h.%d.%s.q_proj.weight", i, n->attention);
        a->k_w = model_matrix(m, std, C, C, "transformer.h.%d.%s.k_proj.weight", i, n->attention);
        a->v_w = model_matrix(m, std, C, C, "transformer.h.%d.%s.v_proj.weight", i, n->attention);
    }
    a->o_w =
        model_matrix(m, n->out_std, C, C, "transformer.h.%d.%s.%s.weight", i, n->attention, n->out);
    a->o_b = model_zeros(m, C, "transformer.h.%d.%s.%s.bias", i, n->attention, n->out);
    return SOTTO_OK;
}

static enum sotto_status gpt2_add_mlp(struct model *m, int i, const struct gpt2_names *n)
{
    const struct model_config *c = &m->config;
    const int C = c->width, F = c->mlp_width;
    struct mlp_layer *f = model_begin(m, &mlp_ops, sizeof *f);
    if (!f)
        return fail(SOTTO_ENOMEM, "no memory for layer %d", i);
    f->width = C;
    f->hidden = F;
    f->layout = n->fused ? LINEAR_IN_OUT : LINEAR_OUT_IN;
    f->kind = strcmp(c->activation, "gelu") == 0 ? MLP_GELU_EXACT : MLP_GELU_TANH;
    f->norm = gpt2_norm(m, i, "ln_2");
    f->gate_w = -1;
    f->up_w = model_matrix(m, c->init_std, n->fused ? C : F, n->fused ? F : C,
                           "transformer.h.%d.mlp.c_fc.weight", i);
    f->up_b = model_zeros(m, F, "transformer.h.%d.mlp.c_fc.bias", i);
    f->down_w = model_matrix(m, n->out_std, n->fused ? F : C, n->fused ? C : F,
                             "transformer.h.%d.mlp.c_proj.weight", i);
    f->down_b = model_zeros(m, C, "transformer.h.%d.mlp.c_proj.bias", i);
    return SOTTO_OK;
}

enum sotto_status gpt2_chain(struct model *m, const struct gpt2_names *n)
{
    const struct model_config *c = &m->config;
    const int C = c->width;
    struct embed_layer *embed = model_begin(m, &embed_ops, sizeof *embed);
    if (!embed)
        return fail(SOTTO_ENOMEM, "no memory for the embedding");
    embed->width = C;
    embed->table = model_matrix(m, c->init_std, c->vocab, C, "transformer.wte.weight");
    embed->positions = model_matrix(m, c->init_std, c->positions, C, "transformer.wpe.weight");

    for (int i = 0; i < c->layers; i++) {
        TRY(gpt2_add_attention(m, i, n));
        TRY(gpt2_add_mlp(m, i, n));
    }

    struct head_layer *head = model_begin(m, &head_ops, sizeof *head);
    if (!head)
        return fail(SOTTO_ENOMEM, "no memory for the head");
    head->width = C;
    head->vocab = c->vocab;
    head->norm = (struct norm_part){NORM_LAYER, model_ones(m, C, "transformer.ln_f.weight"),
                                    model_zeros(m, C, "transformer.ln_f.bias"), (float)c->norm_eps};
    head->w = c->tied == TIED_YES ? embed->table
                                  : model_matrix(m, c->init_std, c->vocab, C, "lm_head.weight");
    return SOTTO_OK;
}

/* Builds GPT-2, which divides the initial std of tensors that add to the residual stream by the
 * root of twice the depth. */
static enum sotto_status gpt2_build(struct model *m)
{
    const double out_std = m->config.init_std / sqrt(2.0 * m->config.layers);
    return gpt2_chain(m, &(struct gpt2_names){"attn", "c_proj", true, true, out_std});
}

#define AT(field) offsetof(struct model_config, field)
static const struct arch_member members[] = {
    {"n_layer", AT(layers), false, true},     {"n_embd", AT(width), false, true},
    {"n_head", AT(heads), false, true},       {"n_positions", AT(positions), false, true},
    {"n_inner", AT(mlp_width), false, false}, {"layer_norm_epsilon", AT(norm_eps), true, false},
    {"vocab_size", AT(vocab), false, true},   {"initializer_range", AT(init_std), true, false},
};
enum { MEMBERS = sizeof members / sizeof *members };

enum sotto_status gpt2_read_activation(struct model_config *c, const json_t *json)
{
    TRY(arch_expect(json, "activation_function", activations));
    const json_t *name = json_object_get(json, "activation_function");
    if (json_is_string(name))
        strcpy(c->activation, json_string_value(name));
    return SOTTO_OK;
}

static enum sotto_status gpt2_from_json(struct model_config *c, const json_t *json)
{
    TRY(arch_read(c, json, members, MEMBERS));
    /* Refuses options that change the arithmetic; no published GPT-2 has them. */
    if (!json_get_bool_or(json, "scale_attn_weights", true) ||
        json_get_bool_or(json, "scale_attn_by_inverse_layer_idx", false))
        return fail(SOTTO_EFORMAT, "this GPT-2's attention scaling is not supported");
    return gpt2_read_activation(c, json);
}

static enum sotto_status gpt2_check_globally(const struct model_config *c)
{
    if (c->window || *c->pattern)
        return fail(SOTTO_EINVAL, "window = %d, pattern = '%s': gpt2 attends globally", c->window,
                    c->pattern);
    return gpt2_check(c);
}

static json_t *gpt2_to_json(const struct model_config *c)
{
    json_t *json = arch_write(c, members, MEMBERS, arch_gpt2.hf_class);
    json_object_set_new(json, "activation_function", json_string(c->activation));
    return json;
}

const struct arch arch_gpt2 = {
    .number = ARCH_GPT2,
    .name = "gpt2",
    .about = "GPT-2 (2019): learned positions, layer norm before each sublayer, GELU",
    .hf_class = "GPT2LMHeadModel",
    .text = true,
    .defaults = gpt2_defaults,
    .check = gpt2_check_globally,
    .from_json = gpt2_from_json,
    .to_json = gpt2_to_json,
    .build = gpt2_build};
