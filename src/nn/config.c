#include "nn/config.h"

#include <limits.h>
#include <string.h>

#include "nn/arch/arch.h"

#define NAME(id, name) #name,
static const char *const arch_names[] = {"preset", ARCHS(NAME) NULL};
static const char *const tied_names[] = {"preset", "yes", "no", NULL};

#define S struct model_config
const struct option model_options[] = {
    OPTION_TEXT(S, preset, "nano", "a named model; `sotto info` lists them"),
    OPTION_ENUM(S, arch, "preset", arch_names, "architecture"),
    OPTION_INT(S, layers, "0", 0, 1024,
               "transformer blocks; 0: as the preset has it, here and below"),
    OPTION_INT(S, width, "0", 0, 1 << 20, "size of the residual stream"),
    OPTION_INT(S, heads, "0", 0, 4096, "attention heads"),
    OPTION_INT(S, kv_heads, "0", 0, 4096, "key/value heads (llama, olmo2)"),
    OPTION_INT(S, head_width, "0", 0, 4096, "size of a head (llama)"),
    OPTION_INT(S, mlp_width, "0", 0, 1 << 22, "hidden size of the feed-forward sublayer"),
    OPTION_INT(S, vocab, "0", 0, 1 << 24, "vocabulary; 0: the preset's or the tokenizer's"),
    OPTION_INT(S, positions, "0", 0, 1 << 22, "longest sequence"),
    OPTION_INT(S, window, "0", 0, 1 << 22, "window of local attention (gpt_neo)"),
    OPTION_TEXT(S, pattern, "", "g(lobal) or l(ocal) a layer, repeated (gpt_neo)"),
    OPTION_TEXT(S, activation, "", "gelu_new, gelu (gpt2, gpt_neo) or silu (llama, olmo2)"),
    OPTION_REAL(S, norm_eps, "0", 0, 1, "added to the variance in norms"),
    OPTION_REAL(S, rope_theta, "0", 0, 1e12, "base of the rotary frequencies (llama, olmo2)"),
    OPTION_REAL(S, init_std, "0", 0, 10, "standard deviation of new weights"),
    OPTION_ENUM(S, tied, "preset", tied_names, "output projection = token embedding"),
};
#undef S
const int model_options_count = sizeof model_options / sizeof *model_options;

static enum sotto_status unknown_preset(const char *name)
{
    const char *names[64] = {0};
    for (int i = 0; i < model_presets_count && i < 63; i++)
        names[i] = model_presets[i].config.preset;
    const char *near = option_closest(name, names);
    return fail(SOTTO_EINVAL, "unknown preset '%s'%s%s%s", name, near ? ": did you mean '" : "",
                near ? near : "", near ? "'?" : "");
}

/* What the user left open comes from the preset. */
static void inherit(struct model_config *c, const struct model_config *from)
{
#define TAKE(field)                                                                                \
    if (!c->field)                                                                                 \
    c->field = from->field
    /* Sizes that follow from others are not inherited once the others were changed. */
    bool reshaped = c->width && c->width != from->width;
    bool reheaded = reshaped || (c->heads && c->heads != from->heads);
    if (!reheaded) {
        TAKE(kv_heads);
        TAKE(head_width);
    }
    if (!reshaped)
        TAKE(mlp_width);
    TAKE(layers);
    TAKE(width);
    TAKE(heads);
    TAKE(vocab);
    TAKE(positions);
    TAKE(window);
    TAKE(norm_eps);
    TAKE(rope_theta);
    TAKE(init_std);
    TAKE(tied);
#undef TAKE
    if (!*c->pattern)
        strcpy(c->pattern, from->pattern);
    if (!*c->activation)
        strcpy(c->activation, from->activation);
}

enum sotto_status model_config_resolve(struct model_config *c)
{
    if (*c->preset) {
        const struct model_preset *found = NULL;
        for (int i = 0; i < model_presets_count; i++)
            if (strcmp(model_presets[i].config.preset, c->preset) == 0)
                found = &model_presets[i];
        if (!found)
            return unknown_preset(c->preset);
        if (!c->arch)
            c->arch = found->config.arch;
        if (c->arch == (int)found->config.arch) {
            inherit(c, &found->config);
        } else { /* another architecture: of the preset only the sizes make sense */
            struct model_config sizes = {.layers = found->config.layers,
                                         .width = found->config.width,
                                         .heads = found->config.heads,
                                         .vocab = found->config.vocab,
                                         .positions = found->config.positions};
            inherit(c, &sizes);
        }
    }
    if (!c->arch)
        return fail(SOTTO_EINVAL, "model.arch is needed without a preset");
    if (!c->kv_heads)
        c->kv_heads = c->heads;
    if (!c->head_width && c->heads) {
        if (c->width % c->heads)
            return fail(SOTTO_EINVAL, "heads = %d do not divide width = %d", c->heads, c->width);
        c->head_width = c->width / c->heads;
    }
    if (c->init_std == 0)
        c->init_std = 0.02;
    archs[c->arch]->defaults(c);
    if (!c->vocab)
        return SOTTO_OK;
    return model_config_check(c);
}

enum sotto_status model_config_check(const struct model_config *c)
{
    if (c->layers < 1 || c->width < 1 || c->heads < 1 || c->vocab < 1 || c->positions < 1)
        return fail(SOTTO_EINVAL,
                    "a model needs layers, width, heads, vocab and positions of at least 1: "
                    "got %d, %d, %d, %d, %d",
                    c->layers, c->width, c->heads, c->vocab, c->positions);
    if (c->layers > 1024 || c->width > 1 << 20 || c->vocab > 1 << 24 || c->positions > 1 << 22 ||
        c->mlp_width > 1 << 22 || c->heads > 4096 || c->head_width > 4096)
        return fail(SOTTO_EINVAL,
                    "model sizes are out of range: layers %d, width %d, vocab %d, mlp %d",
                    c->layers, c->width, c->vocab, c->mlp_width);
    if (c->kv_heads < 1 || c->heads % c->kv_heads)
        return fail(SOTTO_EINVAL, "heads = %d is not a multiple of kv_heads = %d", c->heads,
                    c->kv_heads);
    if (c->head_width < 1 || c->mlp_width < 1)
        return fail(SOTTO_EINVAL, "head_width = %d and mlp_width = %d must be at least 1",
                    c->head_width, c->mlp_width);
    if (!(c->norm_eps >= 0 && c->norm_eps <= 1) || !(c->init_std >= 0 && c->init_std <= 10) ||
        !(c->rope_theta >= 0 && c->rope_theta <= 1e12))
        return fail(SOTTO_EINVAL,
                    "norm_eps = %g, init_std = %g and rope_theta = %g must lie in [0, 1], [0, 10] "
                    "and [0, 1e12]",
                    c->norm_eps, c->init_std, c->rope_theta);
    return archs[c->arch]->check(c);
}

bool model_config_local(const struct model_config *c, int i)
{
    size_t length = strlen(c->pattern);
    return length && c->pattern[(size_t)i % length] == 'l';
}

enum sotto_status model_config_from_json(struct model_config *c, const json_t *json)
{
    *c = (struct model_config){0};
    const char *type;
    TRY(json_get_text(json, "model_type", &type));
    for (int a = ARCH_UNSET + 1; arch_names[a]; a++) {
        if (strcmp(arch_names[a], type) != 0)
            continue;
        c->arch = a;
        TRY(archs[a]->from_json(c, json));
        TRY(model_config_resolve(c));
        return model_config_check(c);
    }
    return fail(SOTTO_EFORMAT,
                "model_type '%s' is not supported: want gpt2, gpt_neo, llama or olmo2", type);
}

enum sotto_status model_config_to_json(const struct model_config *c, json_t **json)
{
    *json = archs[c->arch]->to_json(c);
    if (!*json)
        return fail(SOTTO_ENOMEM, "no memory for the model's config.json");
    json_object_set_new(*json, "model_type", json_string(arch_names[c->arch]));
    json_object_set_new(*json, "torch_dtype", json_string("float32"));
    json_object_set_new(*json, "tie_word_embeddings", json_boolean(c->tied == TIED_YES));
    json_object_set_new(*json, "vocab_size", json_integer(c->vocab));
    json_object_set_new(*json, "initializer_range", json_real(c->init_std));
    return SOTTO_OK;
}
