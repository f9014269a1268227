/* The chain of a decoder's layers, from the choices of its family:
 *
 *     embedding, layers times (attention, feed-forward), norm and output over the vocabulary */
#include "nn/arch/decoder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "nn/arch/build.h"

/* Layer `i` of the model while it is built; `i` has no effect on modules outside the layers. */
struct decoder_block {
    struct model *m;
    const struct decoder *d;
    int i;
};

static int add_matrix(const struct decoder_block *b, enum decoder_role role, double std, int d0,
                      int d1)
{
    char name[TABLE_NAME_ROOM];
    snprintf(name, sizeof name, (*b->d->names)[role], b->i);
    return model_matrix(b->m, std, d0, d1, "%s.weight", name);
}

/* Adds the weight of a projection. */
static int add_weight(const struct decoder_block *b, enum decoder_role role, double std, int out,
                      int in)
{
    const bool out_in = b->d->choices.layout == LINEAR_OUT_IN;
    return add_matrix(b, role, std, out_in ? out : in, out_in ? in : out);
}

/* Adds a bias if the family `has` one; returns -1 otherwise. */
static int add_bias(const struct decoder_block *b, enum decoder_role role, bool has, int out)
{
    char name[TABLE_NAME_ROOM];
    snprintf(name, sizeof name, (*b->d->names)[role], b->i);
    return has ? model_zeros(b->m, out, "%s.bias", name) : -1;
}

static struct norm_part add_norm(const struct decoder_block *b, enum decoder_role role,
                                 enum norm_kind kind, int width)
{
    char name[TABLE_NAME_ROOM];
    snprintf(name, sizeof name, (*b->d->names)[role], b->i);
    const int gain = model_ones(b->m, width, "%s.weight", name);
    return (struct norm_part){kind, gain, add_bias(b, role, kind == NORM_LAYER, width),
                              (float)b->m->config.norm_eps};
}

/* Returns the initial std of weights that add to the residual stream. */
static double residual_std(const struct decoder_block *b)
{
    const struct model_config *c = &b->m->config;
    return b->d->choices.narrow_init ? c->init_std / sqrt(2.0 * c->layers) : c->init_std;
}

/* Adds the tensors of the attention layer `a`, whose sizes are set. */
static void add_projections(const struct decoder_block *b, struct attention_layer *a)
{
    const struct decoder_choices *has = &b->d->choices;
    const double std = b->m->config.init_std;
    const int C = a->width, Q = a->heads * a->head_width, KV = a->kv_heads * a->head_width;
    a->qkv_w = a->qkv_b = a->q_w = a->k_w = a->v_w = a->q_b = a->k_b = a->v_b = -1;
    if (has->qkv_fused) {
        a->qkv_w = add_weight(b, ROLE_QKV, std, Q + 2 * KV, C);
        a->qkv_b = add_bias(b, ROLE_QKV, has->qkv_bias, Q + 2 * KV);
    } else {
        a->q_w = add_weight(b, ROLE_Q, std, Q, C);
        a->q_b = add_bias(b, ROLE_Q, has->qkv_bias, Q);
        a->k_w = add_weight(b, ROLE_K, std, KV, C);
        a->k_b = add_bias(b, ROLE_K, has->qkv_bias, KV);
        a->v_w = add_weight(b, ROLE_V, std, KV, C);
        a->v_b = add_bias(b, ROLE_V, has->qkv_bias, KV);
    }
    a->o_w = add_weight(b, ROLE_OUT, residual_std(b), C, Q);
    a->o_b = add_bias(b, ROLE_OUT, has->out_bias, C);
    if (has->qk_norm) {
        const bool each = has->qk_norm == QK_EACH_HEAD;
        a->q_norm = add_norm(b, ROLE_Q_NORM, NORM_RMS, each ? a->head_width : Q);
        a->k_norm = add_norm(b, ROLE_K_NORM, NORM_RMS, each ? a->head_width : KV);
    }
}

static enum sotto_status decoder_add_attention(const struct decoder_block *b)
{
    const struct decoder_choices *has = &b->d->choices;
    const struct model_config *c = &b->m->config;
    struct attention_layer *a = model_begin(b->m, &attention_ops, sizeof *a);
    if (!a || (!has->positions && !(a->frequencies = rope_frequencies(c))))
        return fail(SOTTO_ENOMEM, "no memory for layer %d", b->i);
    a->width = c->width;
    a->heads = c->heads;
    a->kv_heads = c->kv_heads;
    a->head_width = c->head_width;
    a->layout = has->layout;
    a->scale = has->unscaled ? 1 : (float)(1 / sqrt(c->head_width));
    a->window = model_config_local(c, b->i) ? c->window : 0;
    a->norm_after = has->norm_after;
    a->qk_norm = has->qk_norm;
    a->index = b->m->n_attention++;
    a->norm = add_norm(b, ROLE_NORM1, has->norm, c->width);
    add_projections(b, a);
    return SOTTO_OK;
}

static enum sotto_status decoder_add_mlp(const struct decoder_block *b)
{
    const struct decoder_choices *has = &b->d->choices;
    const struct model_config *c = &b->m->config;
    const int C = c->width, F = c->mlp_width;
    struct mlp_layer *f = model_begin(b->m, &mlp_ops, sizeof *f);
    if (!f)
        return fail(SOTTO_ENOMEM, "no memory for layer %d", b->i);
    f->width = C;
    f->hidden = F;
    f->layout = has->layout;
    f->kind = has->gated                           ? MLP_SWIGLU
              : strcmp(c->activation, "gelu") == 0 ? MLP_GELU_EXACT
                                                   : MLP_GELU_TANH;
    f->norm_after = has->norm_after;
    f->norm = add_norm(b, ROLE_NORM2, has->norm, C);
    f->gate_w = has->gated ? add_weight(b, ROLE_GATE, c->init_std, F, C) : -1;
    f->up_w = add_weight(b, ROLE_UP, c->init_std, F, C);
    f->up_b = add_bias(b, ROLE_UP, has->mlp_bias, F);
    f->down_w = add_weight(b, ROLE_DOWN, residual_std(b), C, F);
    f->down_b = add_bias(b, ROLE_DOWN, has->mlp_bias, C);
    return SOTTO_OK;
}

enum sotto_status decoder_build(struct model *m)
{
    const struct model_config *c = &m->config;
    struct decoder_block b = {m, archs[c->arch]->decoder, 0};
    struct embed_layer *embed = model_begin(m, &embed_ops, sizeof *embed);
    if (!embed)
        return fail(SOTTO_ENOMEM, "no memory for the embedding");
    embed->width = c->width;
    embed->table = add_matrix(&b, ROLE_EMBED, c->init_std, c->vocab, c->width);
    embed->positions = b.d->choices.positions
                           ? add_matrix(&b, ROLE_POSITIONS, c->init_std, c->positions, c->width)
                           : -1;
    for (; b.i < c->layers; b.i++) {
        TRY(decoder_add_attention(&b));
        TRY(decoder_add_mlp(&b));
    }
    struct head_layer *head = model_begin(m, &head_ops, sizeof *head);
    if (!head)
        return fail(SOTTO_ENOMEM, "no memory for the head");
    head->width = c->width;
    head->vocab = c->vocab;
    head->norm = add_norm(&b, ROLE_NORM, b.d->choices.norm, c->width);
    head->w = c->tied == TIED_YES ? embed->table
                                  : add_matrix(&b, ROLE_HEAD, c->init_std, c->vocab, c->width);
    return SOTTO_OK;
}
