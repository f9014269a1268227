/* ViT (Dosovitskiy et al. 2020): patches of an image as a sequence, after a token from which the
 * class is read; layer norm before each sublayer, attention to all positions, exact GELU. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "nn/arch/image.h"

struct vit_config {
    struct image_sizes image;
    int patch;
};

#define S struct vit_config
static const struct option options[] = {
    OPTION_INT(S, patch, "0", 0, 1 << 12, "pixels of a patch's side; 0: the preset's"),
    IMAGE_OPTIONS(S),
};
#undef S

static const char *const activations[] = {"gelu", "gelu_new", "gelu_pytorch_tanh", NULL};

static const struct vit_config *vit_own(const struct model_config *c)
{
    return arch_own(c, &arch_vit);
}

static void vit_defaults(struct model_config *c)
{
    struct vit_config *v = arch_config(c, &arch_vit);
    v->patch = v->patch ? v->patch : 16;
    c->layers = c->layers ? c->layers : 12;
    c->width = c->width ? c->width : 768;
    c->heads = c->heads ? c->heads : c->width % 64 == 0 ? c->width / 64 : 1;
    c->mlp_width = c->mlp_width ? c->mlp_width : 4 * c->width;
    c->norm_eps = c->norm_eps == 0 ? 1e-12 : c->norm_eps;
    if (!*c->activation)
        strcpy(c->activation, "gelu");
}

static enum sotto_status vit_check(const struct model_config *c)
{
    const struct vit_config *v = vit_own(c);
    if (c->layers < 1 || c->layers > 1024 || c->width < 1 || c->width > 1 << 20 || c->heads < 1 ||
        c->heads > 4096 || c->mlp_width < 1 || c->mlp_width > 1 << 22)
        return fail(SOTTO_EINVAL,
                    "model sizes are out of range: layers %d, width %d, heads %d, mlp %d",
                    c->layers, c->width, c->heads, c->mlp_width);
    if (c->width % c->heads)
        return fail(SOTTO_EINVAL, "heads = %d do not divide width = %d", c->heads, c->width);
    if (!(c->norm_eps >= 0 && c->norm_eps <= 1))
        return fail(SOTTO_EINVAL, "norm_eps = %g must be in [0, 1]", c->norm_eps);
    for (int i = 0; strcmp(activations[i], c->activation) != 0; i++)
        if (!activations[i + 1])
            return fail(SOTTO_EINVAL, "activation '%s' is not known: want gelu or gelu_new",
                        c->activation);
    TRY(image_check(&v->image, "vit"));
    if (v->patch < 1 || v->image.height % v->patch || v->image.width % v->patch)
        return fail(SOTTO_EINVAL, "patches of %d pixels do not divide images of %d x %d", v->patch,
                    v->image.height, v->image.width);
    return SOTTO_OK;
}

static struct image_sizes *vit_image(struct model_config *c)
{
    return &((struct vit_config *)arch_config(c, &arch_vit))->image;
}

static struct norm_part vit_norm(struct model *m, const char *name)
{
    return (struct norm_part){NORM_LAYER, model_ones(m, m->config.width, "%s.weight", name),
                              model_zeros(m, m->config.width, "%s.bias", name),
                              (float)m->config.norm_eps};
}

static enum sotto_status add_patches(struct model *m, int positions)
{
    const struct vit_config *v = vit_own(&m->config);
    const double std = m->config.init_std;
    const int C = m->config.width;
    struct patch_layer *p = model_begin(m, &patch_ops, sizeof *p);
    if (!p)
        return fail(SOTTO_ENOMEM, "no memory for the patches");
    p->h = v->image.height;
    p->w = v->image.width;
    p->channels = v->image.channels;
    p->patch = v->patch;
    p->width = C;
    p->token = model_cube(m, std, 1, 1, C, "vit.embeddings.cls_token");
    p->positions = model_cube(m, std, 1, positions, C, "vit.embeddings.position_embeddings");
    p->weight = model_kernel(m, std, C, v->patch, v->image.channels,
                             "vit.embeddings.patch_embeddings.projection.weight");
    p->bias = model_zeros(m, C, "vit.embeddings.patch_embeddings.projection.bias");
    return SOTTO_OK;
}

static enum sotto_status vit_add_attention(struct model *m, int i)
{
    const struct model_config *c = &m->config;
    const double std = c->init_std;
    const int C = c->width;
    char name[TABLE_NAME_ROOM - 40];
    struct attention_layer *a = model_begin(m, &attention_ops, sizeof *a);
    if (!a)
        return fail(SOTTO_ENOMEM, "no memory for layer %d", i);
    a->width = C;
    a->heads = a->kv_heads = c->heads;
    a->head_width = C / c->heads;
    a->scale = (float)(1 / sqrt(a->head_width));
    a->whole = true;
    a->index = m->n_attention++;
    a->layout = LINEAR_OUT_IN;
    a->qkv_w = a->qkv_b = -1;
    snprintf(name, sizeof name, "vit.encoder.layer.%d.layernorm_before", i);
    a->norm = vit_norm(m, name);
    snprintf(name, sizeof name, "vit.encoder.layer.%d.attention", i);
    a->q_w = model_matrix(m, std, C, C, "%s.attention.query.weight", name);
    a->q_b = model_zeros(m, C, "%s.attention.query.bias", name);
    a->k_w = model_matrix(m, std, C, C, "%s.attention.key.weight", name);
    a->k_b = model_zeros(m, C, "%s.attention.key.bias", name);
    a->v_w = model_matrix(m, std, C, C, "%s.attention.value.weight", name);
    a->v_b = model_zeros(m, C, "%s.attention.value.bias", name);
    a->o_w = model_matrix(m, std, C, C, "%s.output.dense.weight", name);
    a->o_b = model_zeros(m, C, "%s.output.dense.bias", name);
    return SOTTO_OK;
}

/* Adds the feed-forward sublayer, in halves if there are more stages than sublayers. */
static enum sotto_status vit_add_mlp(struct model *m, int i, bool halves)
{
    const struct model_config *c = &m->config;
    const int C = c->width, F = c->mlp_width;
    char name[TABLE_NAME_ROOM - 40];
    struct mlp_layer *f = model_begin(m, halves ? &mlp_up_ops : &mlp_ops, sizeof *f);
    if (!f)
        return fail(SOTTO_ENOMEM, "no memory for layer %d", i);
    f->width = C;
    f->hidden = F;
    f->layout = LINEAR_OUT_IN;
    f->kind = strcmp(c->activation, "gelu") == 0 ? MLP_GELU_EXACT : MLP_GELU_TANH;
    f->gate_w = -1;
    snprintf(name, sizeof name, "vit.encoder.layer.%d", i);
    f->up_w = model_matrix(m, c->init_std, F, C, "%s.intermediate.dense.weight", name);
    f->up_b = model_zeros(m, F, "%s.intermediate.dense.bias", name);
    f->down_w = model_matrix(m, c->init_std, C, F, "%s.output.dense.weight", name);
    f->down_b = model_zeros(m, C, "%s.output.dense.bias", name);
    snprintf(name, sizeof name, "vit.encoder.layer.%d.layernorm_after", i);
    f->norm = vit_norm(m, name);
    if (!halves)
        return SOTTO_OK;
    if (!model_split(m, &mlp_down_ops, sizeof *f))
        return fail(SOTTO_ENOMEM, "no memory for layer %d", i);
    model_take(m, f->down_w);
    model_take(m, f->down_b);
    return SOTTO_OK;
}

static enum sotto_status vit_build(struct model *m)
{
    const struct vit_config *v = vit_own(&m->config);
    const int positions = (v->image.height / v->patch) * (v->image.width / v->patch) + 1;
    const bool halves = m->n_stage > 2 * m->config.layers + 2;
    TRY(add_patches(m, positions));
    for (int i = 0; i < m->config.layers; i++) {
        TRY(vit_add_attention(m, i));
        TRY(vit_add_mlp(m, i, halves));
    }
    struct classify_layer *head = model_begin(m, &classify_ops, sizeof *head);
    if (!head)
        return fail(SOTTO_ENOMEM, "no memory for the classifier");
    head->width = m->config.width;
    head->classes = v->image.classes;
    head->norm = vit_norm(m, "vit.layernorm");
    head->w = model_matrix(m, m->config.init_std, v->image.classes, head->width,
                           ARCH_CLASSIFIER "weight");
    head->b = model_zeros(m, v->image.classes, ARCH_CLASSIFIER "bias");
    m->sample = image_sample(&v->image, positions);
    return SOTTO_OK;
}

static const struct arch_member members[] = {
    MEMBER_INT("num_hidden_layers", layers),  MEMBER_INT("hidden_size", width),
    MEMBER_INT("num_attention_heads", heads), MEMBER_INT("intermediate_size", mlp_width),
    MEMBER_REAL("layer_norm_eps", norm_eps),  MEMBER_REAL("initializer_range", init_std),
    MEMBER_FIXED("qkv_bias", true),
};
enum { MEMBERS = sizeof members / sizeof *members };

/* Reads config.json. Dropout is ignored: sotto fine-tunes without dropout. */
static enum sotto_status vit_from_json(struct model_config *c, const json_t *json)
{
    struct vit_config *v = arch_config(c, &arch_vit);
    c->layers = c->heads = 12; /* the defaults of transformers */
    c->width = 768;
    c->mlp_width = 3072;
    v->patch = 16;
    v->image.height = v->image.width = 224;
    TRY(arch_read(c, json, members, MEMBERS));
    c->tied = TIED_UNSET;
    TRY(arch_read_name(json, "hidden_act", activations, c->activation));
    TRY(image_integer(json, "patch_size", &v->patch));
    return image_read(&v->image, json);
}

static json_t *vit_to_json(const struct model_config *c)
{
    const struct vit_config *v = vit_own(c);
    json_t *json = arch_write(c, members, MEMBERS, arch_vit.hf_class);
    json_object_set_new(json, "hidden_act", json_string(c->activation));
    json_object_set_new(json, "patch_size", json_integer(v->patch));
    json_object_set_new(json, "hidden_dropout_prob", json_real(0));
    json_object_set_new(json, "attention_probs_dropout_prob", json_real(0));
    image_write(&v->image, json);
    return json;
}

/* save_pretrained keeps the names of version 4; the modules of version 5 have others. */
static const struct arch_rename renames[] = {
    {"vit.encoder.layer.", "vit.layers."},
    {"attention.attention.query.", "attention.q_proj."},
    {"attention.attention.key.", "attention.k_proj."},
    {"attention.attention.value.", "attention.v_proj."},
    {"attention.output.dense.", "attention.o_proj."},
    {"intermediate.dense.", "mlp.fc1."},
    {"output.dense.", "mlp.fc2."},
    {NULL, NULL},
};

static const char *const keys[] = {"layers",   "width",      "heads", "mlp_width",
                                   "norm_eps", "activation", NULL};

const struct arch arch_vit = {.number = ARCH_VIT,
                              .name = "vit",
                              .about = "ViT (2020): a transformer over the patches of an image",
                              .hf_class = "ViTForImageClassification",
                              ARCH_OPTIONS(struct vit_config, options),
                              .keys = keys,
                              .renames = renames,
                              .defaults = vit_defaults,
                              .check = vit_check,
                              .image = vit_image,
                              .from_json = vit_from_json,
                              .to_json = vit_to_json,
                              .build = vit_build};
