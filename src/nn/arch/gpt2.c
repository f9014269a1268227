/* GPT-2 (Radford et al. 2019) and GPT-Neo (Black et al. 2021): learned positions, layer norm before
 * each sublayer, GELU. GPT-2 stores its projections as (in, out) with q, k, v in one; GPT-Neo as
 * (out, in), without 1/sqrt(d) in the scores, every other layer seeing only a window. */
#include "nn/arch/arch.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static const char *const activations[] = {"gelu_new", "gelu_pytorch_tanh", "gelu", NULL};

static void defaults(struct model_config *c)
{
    if (!c->mlp_width)
        c->mlp_width = 4 * c->width;
    if (c->norm_eps == 0)
        c->norm_eps = 1e-5;
    if (!c->tied)
        c->tied = TIED_YES;
    if (!*c->activation)
        strcpy(c->activation, "gelu_new");
    if (c->arch == ARCH_GPT_NEO && !*c->pattern)
        strcpy(c->pattern, "gl");
    if (c->arch == ARCH_GPT_NEO && !c->window)
        c->window = 256;
}

static enum sotto_status check(const struct model_config *c)
{
    if (c->width % c->heads || c->head_width * c->heads != c->width)
        return fail(SOTTO_EINVAL, "width = %d must be heads (%d) times head_width (%d)", c->width,
                    c->heads, c->head_width);
    if (c->kv_heads != c->heads)
        return fail(SOTTO_EINVAL, "kv_heads = %d: gpt2 and gpt_neo have as many as heads (%d)",
                    c->kv_heads, c->heads);
    for (int i = 0; activations[i]; i++)
        if (strcmp(activations[i], c->activation) == 0)
            return SOTTO_OK;
    return fail(SOTTO_EINVAL, "activation '%s' is not known: want gelu_new or gelu", c->activation);
}

/* Both name their sublayers differently; everything else is the same. */
struct names {
    const char *attention, *out;
    bool fused;
};

static enum sotto_status build(struct model *m, const struct names *n)
{
    const struct model_config *c = &m->config;
    const double std = c->init_std;
    /* GPT-2 shrinks what is added to the residual stream by its depth. */
    const double out_std = n->fused ? std / sqrt(2.0 * c->layers) : std;
    const enum linear_layout layout = n->fused ? LINEAR_IN_OUT : LINEAR_OUT_IN;
    const int C = c->width, F = c->mlp_width;

    struct embed_layer *embed = model_begin(m, &embed_ops, sizeof *embed);
    if (!embed)
        return fail(SOTTO_ENOMEM, "no memory for the layers");
    embed->width = C;
    embed->table = model_matrix(m, std, c->vocab, C, "transformer.wte.weight");
    embed->positions = model_matrix(m, std, c->positions, C, "transformer.wpe.weight");
    int token_table = embed->table;

    for (int i = 0; i < c->layers; i++) {
        struct attention_layer *a = model_begin(m, &attention_ops, sizeof *a);
        if (!a)
            return fail(SOTTO_ENOMEM, "no memory for the layers");
        a->width = C;
        a->heads = a->kv_heads = c->heads;
        a->head_width = c->head_width;
        a->layout = layout;
        a->index = m->n_attention++;
        a->norm = (struct norm_part){
            NORM_LAYER, model_ones(m, C, "transformer.h.%d.ln_1.weight", i),
            model_zeros(m, C, "transformer.h.%d.ln_1.bias", i), (float)c->norm_eps};
        a->qkv_w = a->qkv_b = a->q_b = a->k_b = a->v_b = -1;
        if (n->fused) {
            a->scale = (float)(1 / sqrt(c->head_width));
            a->qkv_w = model_matrix(m, std, C, 3 * C, "transformer.h.%d.attn.c_attn.weight", i);
            a->qkv_b = model_zeros(m, 3 * C, "transformer.h.%d.attn.c_attn.bias", i);
            a->q_w = a->k_w = a->v_w = -1;
        } else {
            a->scale = 1;
            a->window = model_config_local(c, i) ? c->window : 0;
            a->q_w =
                model_matrix(m, std, C, C, "transformer.h.%d.%s.q_proj.weight", i, n->attention);
            a->k_w =
                model_matrix(m, std, C, C, "transformer.h.%d.%s.k_proj.weight", i, n->attention);
            a->v_w =
                model_matrix(m, std, C, C, "transformer.h.%d.%s.v_proj.weight", i, n->attention);
        }
        a->o_w = model_matrix(m, out_std, C, C, "transformer.h.%d.%s.%s.weight", i, n->attention,
                              n->out);
        a->o_b = model_zeros(m, C, "transformer.h.%d.%s.%s.bias", i, n->attention, n->out);

        struct mlp_layer *f = model_begin(m, &mlp_ops, sizeof *f);
        if (!f)
            return fail(SOTTO_ENOMEM, "no memory for the layers");
        f->width = C;
        f->hidden = F;
        f->layout = layout;
        f->kind = strcmp(c->activation, "gelu") == 0 ? MLP_GELU_EXACT : MLP_GELU_TANH;
        f->norm = (struct norm_part){
            NORM_LAYER, model_ones(m, C, "transformer.h.%d.ln_2.weight", i),
            model_zeros(m, C, "transformer.h.%d.ln_2.bias", i), (float)c->norm_eps};
        f->gate_w = -1;
        f->up_w = model_matrix(m, std, n->fused ? C : F, n->fused ? F : C,
                               "transformer.h.%d.mlp.c_fc.weight", i);
        f->up_b = model_zeros(m, F, "transformer.h.%d.mlp.c_fc.bias", i);
        f->down_w = model_matrix(m, out_std, n->fused ? F : C, n->fused ? C : F,
                                 "transformer.h.%d.mlp.c_proj.weight", i);
        f->down_b = model_zeros(m, C, "transformer.h.%d.mlp.c_proj.bias", i);
    }

    struct head_layer *head = model_begin(m, &head_ops, sizeof *head);
    if (!head)
        return fail(SOTTO_ENOMEM, "no memory for the layers");
    head->width = C;
    head->vocab = c->vocab;
    head->norm = (struct norm_part){NORM_LAYER, model_ones(m, C, "transformer.ln_f.weight"),
                                    model_zeros(m, C, "transformer.ln_f.bias"), (float)c->norm_eps};
    head->w =
        c->tied == TIED_YES ? token_table : model_matrix(m, std, c->vocab, C, "lm_head.weight");
    return SOTTO_OK;
}

static enum sotto_status build_gpt2(struct model *m)
{
    return build(m, &(struct names){"attn", "c_proj", true});
}

static enum sotto_status build_gpt_neo(struct model *m)
{
    return build(m, &(struct names){"attn.attention", "out_proj", false});
}

static enum sotto_status read_activation(struct model_config *c, const json_t *json)
{
    TRY(arch_expect(json, "activation_function", activations));
    const json_t *name = json_object_get(json, "activation_function");
    if (json_is_string(name))
        strcpy(c->activation, json_string_value(name));
    return SOTTO_OK;
}

#define AT(field) offsetof(struct model_config, field)
static const struct arch_member gpt2_members[] = {
    {"n_layer", AT(layers), false, true},     {"n_embd", AT(width), false, true},
    {"n_head", AT(heads), false, true},       {"n_positions", AT(positions), false, true},
    {"n_inner", AT(mlp_width), false, false}, {"layer_norm_epsilon", AT(norm_eps), true, false},
    {"vocab_size", AT(vocab), false, true},   {"initializer_range", AT(init_std), true, false},
};
static const struct arch_member neo_members[] = {
    {"num_layers", AT(layers), false, true},
    {"hidden_size", AT(width), false, true},
    {"num_heads", AT(heads), false, true},
    {"max_position_embeddings", AT(positions), false, true},
    {"intermediate_size", AT(mlp_width), false, false},
    {"layer_norm_epsilon", AT(norm_eps), true, false},
    {"vocab_size", AT(vocab), false, true},
    {"window_size", AT(window), false, false},
    {"initializer_range", AT(init_std), true, false},
};
#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

static enum sotto_status gpt2_from_json(struct model_config *c, const json_t *json)
{
    TRY(arch_read(c, json, gpt2_members, COUNT(gpt2_members)));
    /* Options that change the arithmetic and that no published GPT-2 uses. */
    if (!json_get_bool_or(json, "scale_attn_weights", true) ||
        json_get_bool_or(json, "scale_attn_by_inverse_layer_idx", false))
        return fail(SOTTO_EFORMAT, "this GPT-2's attention scaling is not supported");
    return read_activation(c, json);
}

static json_t *gpt2_to_json(const struct model_config *c)
{
    json_t *json = arch_write(c, gpt2_members, COUNT(gpt2_members), arch_gpt2.hf_class);
    json_object_set_new(json, "activation_function", json_string(c->activation));
    return json;
}

/* "attention_layers": ["global", "local", ...]; "attention_types": [[["global", "local"], 12]]. */
static enum sotto_status read_pattern(struct model_config *c, const json_t *list, int repeat)
{
    size_t used = strlen(c->pattern);
    for (int r = 0; r < repeat && r < 1024; r++) {
        size_t i;
        json_t *kind;
        json_array_foreach(list, i, kind)
        {
            const char *name = json_is_string(kind) ? json_string_value(kind) : "";
            if (strcmp(name, "global") != 0 && strcmp(name, "local") != 0)
                return fail(SOTTO_EFORMAT, "attention kind %zu must be \"global\" or \"local\"", i);
            if (used + 1 >= sizeof c->pattern)
                return SOTTO_OK; /* more layers than any model has */
            c->pattern[used++] = name[0];
            c->pattern[used] = '\0';
        }
    }
    return SOTTO_OK;
}

static enum sotto_status neo_from_json(struct model_config *c, const json_t *json)
{
    TRY(arch_read(c, json, neo_members, COUNT(neo_members)));
    const json_t *layers = json_object_get(json, "attention_layers");
    const json_t *types = json_object_get(json, "attention_types");
    if (json_is_array(layers)) {
        TRY(read_pattern(c, layers, 1));
    } else if (json_is_array(types)) {
        size_t i;
        json_t *pair;
        json_array_foreach(types, i, pair)
        {
            const json_t *kinds = json_array_get(pair, 0), *times = json_array_get(pair, 1);
            if (!json_is_array(kinds) || !json_is_integer(times))
                return fail(SOTTO_EFORMAT,
                            "\"attention_types\" must be a list of [[kinds], times]");
            json_int_t n = json_integer_value(times);
            TRY(read_pattern(c, kinds, n > 0 && n < 1024 ? (int)n : 0));
        }
    }
    return read_activation(c, json);
}

static json_t *neo_to_json(const struct model_config *c)
{
    json_t *json = arch_write(c, neo_members, COUNT(neo_members), arch_gpt_neo.hf_class);
    json_object_set_new(json, "activation_function", json_string(c->activation));
    json_t *kinds = json_array();
    for (int i = 0; i < c->layers; i++)
        json_array_append_new(kinds, json_string(model_config_local(c, i) ? "local" : "global"));
    json_object_set(json, "attention_layers", kinds);
    json_object_set_new(json, "attention_types", json_pack("[[oi]]", kinds, 1));
    return json;
}

const struct arch arch_gpt2 = {"GPT2LMHeadModel", defaults,     check,
                               gpt2_from_json,    gpt2_to_json, build_gpt2};
const struct arch arch_gpt_neo = {"GPTNeoForCausalLM", defaults,    check,
                                  neo_from_json,       neo_to_json, build_gpt_neo};
