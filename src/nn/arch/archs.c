/* The architectures there are, and what they read and write config.json with. */
#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/option/only.h"
#include "nn/config.h"

#define ADDRESS(id, name) [ARCH_##id] = &arch_##name,
const struct arch *const archs[] = {ARCHS(ADDRESS)};

static size_t rounded(size_t bytes)
{
    const size_t unit = _Alignof(max_align_t);
    return (bytes + unit - 1) / unit * unit;
}

/* Configurations lie one behind the other; that of an architecture without a name here last. */
static size_t place(const struct arch *arch)
{
    size_t at = 0;
    for (int i = ARCH_UNSET + 1; i < ARCH_COUNT && archs[i] != arch; i++)
        at += rounded(archs[i]->config_bytes);
    assert(at + arch->config_bytes <= sizeof((struct model_config *)0)->own && "raise ARCH_ROOM");
    return at;
}

void *arch_config(struct model_config *c, const struct arch *arch)
{
    return c->own + place(arch);
}

const void *arch_own(const struct model_config *c, const struct arch *arch)
{
    return c->own + place(arch);
}

static bool chosen(const void *of, const char *name)
{
    const int arch = model_config_arch(of);
    return arch != ARCH_UNSET && strcmp(archs[arch]->name, name) == 0;
}

struct option_section arch_section(struct model_config *c, const struct arch *arch)
{
    struct option_section section = OPTION_SECTION_OF(arch->name, arch->about, arch->options,
                                                      arch->n_options, arch_config(c, arch));
    section.used = chosen;
    section.of = c;
    return section;
}

enum sotto_status arch_refuse(const struct model_config *c, const struct arch *arch)
{
    static const unsigned char nothing[ARCH_ROOM]; /* nor were defaults set: nobody asked */
    const void *own = arch_own(c, arch);
    if (memcmp(own, nothing, arch->config_bytes) == 0)
        return SOTTO_OK;
    for (int i = 0; i < arch->n_options; i++)
        if (!option_is_default(&arch->options[i], own))
            return fail(SOTTO_EINVAL, "%s.%s has no effect: the model is %s, not %s", arch->name,
                        arch->options[i].key, archs[c->arch]->name, arch->name);
    return SOTTO_OK;
}

enum sotto_status arch_inherit(struct model_config *c, const struct arch *arch, const char *keys)
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
    for (int i = ARCH_UNSET + 1; i < ARCH_COUNT; i++)
        if (archs[i]->n_options)
            out[n++] = arch_section(c, archs[i]);
    while (n < MODEL_SECTIONS)
        out[n++] = (struct option_section){.name = "", .about = ""};
}

enum sotto_status arch_read(struct model_config *c, const json_t *json,
                            const struct arch_member *table, int n)
{
    for (int i = 0; i < n; i++) {
        const json_t *value = json_object_get(json, table[i].hf);
        void *to = (char *)c + table[i].offset;
        if (!value || json_is_null(value)) {
            if (table[i].required)
                return fail(SOTTO_EFORMAT, "\"%s\" is missing", table[i].hf);
        } else if (table[i].real && json_is_number(value)) {
            *(double *)to = json_number_value(value);
        } else if (!table[i].real && json_is_integer(value)) {
            json_int_t number = json_integer_value(value);
            if (number < 0 || number > 1 << 24)
                return fail(SOTTO_EFORMAT, "\"%s\" = %lld is out of range", table[i].hf,
                            (long long)number);
            *(int *)to = (int)number;
        } else {
            return fail(SOTTO_EFORMAT, "\"%s\" must be %s, got %s", table[i].hf,
                        table[i].real ? "a number" : "an integer", json_kind(value));
        }
    }
    const json_t *tied = json_object_get(json, "tie_word_embeddings");
    if (!tied || json_is_null(tied))
        return SOTTO_OK;
    if (!json_is_boolean(tied))
        return fail(SOTTO_EFORMAT, "\"tie_word_embeddings\" must be true or false, got %s",
                    json_kind(tied));
    c->tied = json_is_true(tied) ? TIED_YES : TIED_NO;
    return SOTTO_OK;
}

json_t *arch_write(const struct model_config *c, const struct arch_member *table, int n,
                   const char *hf_class)
{
    json_t *json = json_object();
    json_object_set_new(json, "architectures", json_pack("[s]", hf_class));
    for (int i = 0; i < n; i++) {
        const void *from = (const char *)c + table[i].offset;
        json_object_set_new(json, table[i].hf,
                            table[i].real ? json_real(*(const double *)from)
                                          : json_integer(*(const int *)from));
    }
    return json;
}

enum sotto_status arch_expect(const json_t *json, const char *key, const char *const *known)
{
    const json_t *value = json_object_get(json, key);
    if (!value || json_is_null(value))
        return SOTTO_OK;
    if (!json_is_string(value))
        return fail(SOTTO_EFORMAT, "\"%s\" must be a string, got %s", key, json_kind(value));
    for (int i = 0; known[i]; i++)
        if (strcmp(known[i], json_string_value(value)) == 0)
            return SOTTO_OK;
    return fail(SOTTO_EFORMAT, "\"%s\" = \"%s\" is not supported: want \"%s\"", key,
                json_string_value(value), known[0]);
}

float *arch_frequencies(const struct model_config *c)
{
    int half = c->head_width / 2;
    float *f = malloc((size_t)half * sizeof *f);
    for (int i = 0; f && i < half; i++)
        f[i] = (float)(1.0 / pow(c->rope_theta, 2.0 * i / c->head_width));
    return f;
}
