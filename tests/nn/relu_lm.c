/* The architecture of docs/internals/adding-a-model.md: a language model with GPT-2's attention and
 * a feed-forward layer with relu. */
#include "nn/relu_mlp.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>

#include "nn/arch/build.h"

/* Sizes of [model] that the user and the preset have left open. */
static void relu_lm_defaults(struct model_config *c)
{
    if (!c->mlp_width)
        c->mlp_width = 4 * c->width;
    if (c->norm_eps == 0)
        c->norm_eps = 1e-5;
    c->tied = TIED_YES;
}

static enum sotto_status relu_lm_check(const struct model_config *c)
{
    if (c->kv_heads != c->heads)
        return fail(SOTTO_EINVAL, "kv_heads = %d: relu_lm has the same number as heads (%d)",
                    c->kv_heads, c->heads);
    return SOTTO_OK;
}

static const struct arch_member members[] = {
    MEMBER_REQUIRED("num_hidden_layers", layers),
    MEMBER_REQUIRED("hidden_size", width),
    MEMBER_REQUIRED("num_attention_heads", heads),
    MEMBER_REQUIRED("intermediate_size", mlp_width),
    MEMBER_REQUIRED("max_position_embeddings", positions),
    MEMBER_REQUIRED("vocab_size", vocab),
    MEMBER_REAL("layer_norm_eps", norm_eps),
};
enum { MEMBERS = sizeof members / sizeof *members };

extern const struct arch arch_relu_lm;

static enum sotto_status relu_lm_from_json(struct model_config *c, const json_t *json)
{
    return arch_read(c, json, members, MEMBERS);
}

static json_t *relu_lm_to_json(const struct model_config *c)
{
    return arch_write(c, members, MEMBERS, arch_relu_lm.hf_class);
}

static struct norm_part add_norm(struct model *m, const char *name)
{
    return (struct norm_part){NORM_LAYER, model_ones(m, m->config.width, "%s.weight", name),
                              model_zeros(m, m->config.width, "%s.bias", name),
                              (float)m->config.norm_eps};
}

static enum sotto_status add_block(struct model *m, int i)
{
    const struct model_config *c = &m->config;
    const int C = c->width, F = c->mlp_width;
    const double out_std = c->init_std / sqrt(2.0 * c->layers); /* adds to the residual stream */
    char name[TABLE_NAME_ROOM];
    struct attention_layer *a = model_begin(m, &attention_ops, sizeof *a);
    if (!a)
        return fail(SOTTO_ENOMEM, "no memory for layer %d", i);
    a->width = C;
    a->heads = a->kv_heads = c->heads;
    a->head_width = c->head_width;
    a->scale = (float)(1 / sqrt(c->head_width));
    a->index = m->n_attention++;
    snprintf(name, sizeof name, "layers.%d.norm1", i);
    a->norm = add_norm(m, name);
    a->qkv_w = model_matrix(m, c->init_std, 3 * C, C, "layers.%d.qkv.weight", i);
    a->qkv_b = model_zeros(m, 3 * C, "layers.%d.qkv.bias", i);
    a->q_w = a->q_b = a->k_w = a->k_b = a->v_w = a->v_b = -1; /* one projection for all three */
    a->o_w = model_matrix(m, out_std, C, C, "layers.%d.out.weight", i);
    a->o_b = model_zeros(m, C, "layers.%d.out.bias", i);

    struct relu_mlp_layer *f = model_begin(m, &relu_mlp_ops, sizeof *f);
    if (!f)
        return fail(SOTTO_ENOMEM, "no memory for layer %d", i);
    f->width = C;
    f->hidden = F;
    snprintf(name, sizeof name, "layers.%d.norm2", i);
    f->norm = add_norm(m, name);
    f->up_w = model_matrix(m, c->init_std, F, C, "layers.%d.up.weight", i);
    f->up_b = model_zeros(m, F, "layers.%d.up.bias", i);
    f->down_w = model_matrix(m, out_std, C, F, "layers.%d.down.weight", i);
    f->down_b = model_zeros(m, C, "layers.%d.down.bias", i);
    return SOTTO_OK;
}

static enum sotto_status relu_lm_build(struct model *m)
{
    const struct model_config *c = &m->config;
    struct embed_layer *embed = model_begin(m, &embed_ops, sizeof *embed);
    if (!embed)
        return fail(SOTTO_ENOMEM, "no memory for the embedding");
    embed->width = c->width;
    embed->table = model_matrix(m, c->init_std, c->vocab, c->width, "embed.weight");
    embed->positions = model_matrix(m, c->init_std, c->positions, c->width, "positions.weight");
    for (int i = 0; i < c->layers; i++)
        TRY(add_block(m, i));
    struct head_layer *head = model_begin(m, &head_ops, sizeof *head);
    if (!head)
        return fail(SOTTO_ENOMEM, "no memory for the head");
    head->width = c->width;
    head->vocab = c->vocab;
    head->norm = add_norm(m, "norm");
    head->w = embed->table; /* tied */
    return SOTTO_OK;
}

static bool relu_lm_alone(const struct model_config *c)
{
    (void)c;
    return true;
}

const struct arch arch_relu_lm = {
    .name = "relu_lm", /* in src also .number = ARCH_RELU_LM, the index in archs[] */
    .about = "a language model with GPT-2's attention and a feed-forward layer with relu",
    .hf_class = "SottoReluLM",
    .text = true,
    .alone = relu_lm_alone,
    .defaults = relu_lm_defaults,
    .check = relu_lm_check,
    .from_json = relu_lm_from_json,
    .to_json = relu_lm_to_json,
    .build = relu_lm_build};
