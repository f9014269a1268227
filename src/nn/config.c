#include "nn/config.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/option/only.h"
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
    OPTION_INT(S, kv_heads, "0", 0, 4096, "key/value heads (not gpt2 and gpt_neo)"),
    OPTION_INT(S, head_width, "0", 0, 4096, "size of a head (llama)"),
    OPTION_INT(S, mlp_width, "0", 0, 1 << 22, "hidden size of the feed-forward sublayer"),
    OPTION_INT(S, vocab, "0", 0, 1 << 24, "vocabulary; 0: the preset's or the tokenizer's"),
    OPTION_INT(S, positions, "0", 0, 1 << 22, "longest sequence"),
    OPTION_INT(S, window, "0", 0, 1 << 22,
               "window of local attention (gpt_neo, mistral, qwen2, qwen3)"),
    OPTION_TEXT(S, pattern, "", "g(lobal) or l(ocal) a layer, repeated (gpt_neo, qwen2, qwen3)"),
    OPTION_TEXT(S, activation, "",
                "gelu_new or gelu (gpt2, gpt_neo), silu (other language models)"),
    OPTION_REAL(S, norm_eps, "0", 0, 1, "added to the variance in norms"),
    OPTION_REAL(S, rope_theta, "0", 0, 1e12,
                "base of the rotary frequencies (not gpt2 and gpt_neo)"),
    OPTION_REAL(S, init_std, "0", 0, 10, "standard deviation of new weights"),
    OPTION_ENUM(S, tied, "preset", tied_names, "output projection = token embedding"),
};
#undef S
const int model_options_count = sizeof model_options / sizeof *model_options;

static enum sotto_status unknown_model_preset(const char *name)
{
    const char *names[64] = {0};
    for (int i = 0; i < model_presets_count && i < 63; i++)
        names[i] = model_presets[i].config.preset;
    const char *near = option_closest(name, names);
    for (int a = ARCH_UNSET + 1; arch_names[a]; a++)
        if (strcmp(arch_names[a], name) == 0)
            return fail(SOTTO_EINVAL,
                        "unknown preset '%s': this is an architecture: --model.arch=%s, with the "
                        "sizes of a preset or of options (`sotto info` lists presets)",
                        name, name);
    return fail(SOTTO_EINVAL, "unknown preset '%s'%s%s%s", name, near ? ": did you mean '" : "",
                near ? near : "", near ? "'?" : "");
}

static const struct model_preset *find_model_preset(const char *name)
{
    for (int i = 0; i < model_presets_count; i++)
        if (strcmp(model_presets[i].config.preset, name) == 0)
            return &model_presets[i];
    return NULL;
}

int model_config_arch(const struct model_config *c)
{
    const struct model_preset *preset = c->arch ? NULL : find_model_preset(c->preset);
    return preset ? preset->config.arch : c->arch;
}

/* True if `name` is the configuration's architecture: then the section of the same name is used. */
static bool arch_is_chosen(const void *config, const char *name)
{
    const int arch = model_config_arch(config);
    return arch != ARCH_UNSET && strcmp(archs[arch]->name, name) == 0;
}

struct option_section arch_section(struct model_config *c, const struct arch *arch)
{
    struct option_section section = OPTION_SECTION_OF(arch->name, arch->about, arch->options,
                                                      arch->n_options, arch_config(c, arch));
    section.used = arch_is_chosen;
    section.of = c;
    return section;
}

enum sotto_status arch_refuse(const struct model_config *c, const struct arch *arch)
{
    static const unsigned char nothing[ARCH_ROOM]; /* not even defaults were set */
    const void *own = arch_own(c, arch);
    if (memcmp(own, nothing, arch->config_bytes) == 0)
        return SOTTO_OK;
    for (int i = 0; i < arch->n_options; i++)
        if (!option_is_default(&arch->options[i], own))
            return fail(SOTTO_EINVAL, "%s.%s has no effect: the model is %s, not %s", arch->name,
                        arch->options[i].key, archs[c->arch]->name, arch->name);
    return SOTTO_OK;
}

/* Sets the architecture's options that the user left open to the values of a preset's `keys`:
 * "key=value key=value". */
static enum sotto_status inherit_keys(struct model_config *c, const struct arch *arch,
                                      const char *keys)
{
    const struct option_section section = arch_section(c, arch);
    while (*keys) {
        char key[64], value[64], full[128];
        int used = 0, i = 0;
        if (sscanf(keys, " %63[^=]=%63[^ ]%n", key, value, &used) != 2)
            return fail(SOTTO_EINVAL, "a preset of %s has the keys '%s'", arch->name, keys);
        keys += used;
        while (i < arch->n_options && strcmp(arch->options[i].key, key) != 0)
            i++;
        if (i < arch->n_options && !option_is_default(&arch->options[i], section.config))
            continue;
        snprintf(full, sizeof full, "%s.%s", arch->name, key);
        TRY(option_set(&section, 1, full, value));
    }
    return SOTTO_OK;
}

void model_sections(struct model_config *c, struct option_section out[MODEL_SECTIONS])
{
    int n = 0;
    out[n++] = (struct option_section)OPTION_SECTION_OF(
        "model", "what is trained: a preset, and sizes that override it", model_options,
        model_options_count, c);
    for (int i = ARCH_UNSET + 1; i < ARCH_COUNT; i++) {
        assert((int)archs[i]->number == i && archs[i]->config_bytes <= ARCH_ROOM);
        if (archs[i]->n_options)
            out[n++] = arch_section(c, archs[i]);
    }
    while (n < MODEL_SECTIONS)
        out[n++] = (struct option_section){.name = "", .about = ""};
}

static bool is_among(const char *key, const char *const *names)
{
    while (names && *names && strcmp(*names, key) != 0)
        names++;
    return names && *names;
}

/* Refuses sizes of [model] that the user set without an effect on this architecture: most sizes are
 * of transformers over text. */
static enum sotto_status refuse_text_sizes(const struct model_config *c)
{
    static const char *const all[] = {"preset", "arch", "init_std", NULL};
    for (int i = 0; i < model_options_count; i++) {
        const struct option *o = &model_options[i];
        const bool shared = is_among(o->key, all) || is_among(o->key, archs[c->arch]->keys);
        if (!shared && !option_is_default(o, c))
            return fail(SOTTO_EINVAL,
                        "model.%s has no effect: the model is %s, with its sizes in [%s]", o->key,
                        archs[c->arch]->name, archs[c->arch]->name);
    }
    return SOTTO_OK;
}

struct image_sizes *model_config_image(struct model_config *c)
{
    const struct arch *arch = archs[c->arch];
    return arch && arch->image ? arch->image(c) : NULL;
}

const struct sample_kind *model_config_kind(const struct model_config *c)
{
    const struct arch *arch = archs[c->arch];
    return &sample_kinds[arch && arch->image ? SAMPLE_FLOATS : SAMPLE_TOKENS];
}

bool model_config_is_open(const struct model_config *c)
{
    const struct image_sizes *s = model_config_image((struct model_config *)c); /* only read */
    return s ? !s->height || !s->width || !s->channels || !s->classes
             : archs[c->arch]->text && !c->vocab;
}

enum sotto_status model_config_fit(struct model_config *c, const struct image_sizes *data)
{
    struct image_sizes *s = model_config_image(c);
    if (!s->height)
        s->height = data->height;
    if (!s->width)
        s->width = data->width;
    if (!s->channels)
        s->channels = data->channels;
    if (!s->classes)
        s->classes = data->classes;
    if (s->height != data->height || s->width != data->width || s->channels != data->channels)
        return fail(SOTTO_EINVAL, "the images are of %d x %d x %d, the model wants %d x %d x %d",
                    data->height, data->width, data->channels, s->height, s->width, s->channels);
    if (data->classes > s->classes)
        return fail(SOTTO_EINVAL, "the data have %d classes, the model has %d", data->classes,
                    s->classes);
    return SOTTO_OK;
}

enum sotto_status model_config_resolve(struct model_config *c)
{
    if (*c->preset) {
        const struct model_preset *found = find_model_preset(c->preset);
        if (!found)
            return unknown_model_preset(c->preset);
        c->arch = model_config_arch(c);
        const bool same = c->arch == found->config.arch;
        if (same || archs[c->arch]->text)
            text_inherit(c, &found->config);
        if (same && found->own)
            TRY(inherit_keys(c, archs[c->arch], found->own));
    }
    if (!c->arch)
        return fail(SOTTO_EINVAL, "model.arch is needed without a preset");
    if (c->init_std == 0)
        c->init_std = 0.02;
    const struct arch *arch = archs[c->arch];
    for (int a = ARCH_UNSET + 1; a < ARCH_COUNT; a++)
        if (archs[a] != arch)
            TRY(arch_refuse(c, archs[a]));
    if (arch->text)
        TRY(text_sizes(c));
    if (arch->defaults)
        arch->defaults(c);
    if (!arch->text)
        TRY(refuse_text_sizes(c));
    return model_config_is_open(c) ? SOTTO_OK : model_config_check(c);
}

enum sotto_status model_config_check(const struct model_config *c)
{
    const struct arch *arch = archs[c->arch];
    if (!(c->init_std >= 0 && c->init_std <= 10))
        return fail(SOTTO_EINVAL, "init_std = %g must be in [0, 10]", c->init_std);
    if (arch->text)
        TRY(text_check(c));
    return arch->check ? arch->check(c) : SOTTO_OK;
}

static enum sotto_status unknown_model_type(const char *type)
{
    char names[ARCH_LIST_ROOM];
    arch_list(names, arch_names + ARCH_UNSET + 1);
    return fail(SOTTO_EFORMAT, "model_type '%s' is not supported: want %s", type, names);
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
        if (archs[a]->n_options) {
            const struct option_section own = arch_section(c, archs[a]);
            option_defaults(&own, 1);
        }
        TRY(archs[a]->from_json(c, json));
        TRY(model_config_resolve(c));
        return model_config_is_open(c) && !archs[a]->text ? SOTTO_OK : model_config_check(c);
    }
    return unknown_model_type(type);
}

enum sotto_status model_config_to_json(const struct model_config *c, json_t **json)
{
    *json = archs[c->arch]->to_json(c);
    if (!*json)
        return fail(SOTTO_ENOMEM, "no memory for the model's config.json");
    json_object_set_new(*json, "model_type", json_string(arch_names[c->arch]));
    json_object_set_new(*json, "torch_dtype", json_string("float32"));
    if (archs[c->arch]->text) {
        json_object_set_new(*json, "tie_word_embeddings", json_boolean(c->tied == TIED_YES));
        json_object_set_new(*json, "vocab_size", json_integer(c->vocab));
    }
    json_object_set_new(*json, "initializer_range", json_real(c->init_std));
    return SOTTO_OK;
}
