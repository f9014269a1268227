/* GPT-Neo (Black et al. 2021): GPT-2 with projections stored as (out, in), scores without
 * 1/sqrt(d), and layers that see only a window. */
#include "nn/arch/gpt2.h"

#include <stddef.h>
#include <string.h>

/* Shortens the pattern to the shortest with the same kind for every layer, so that equal models
 * compare equal: config.json lists every layer, a user writes "gl". */
static void shorten_pattern(struct model_config *c)
{
    const size_t length = strlen(c->pattern), layers = c->layers > 0 ? (size_t)c->layers : 0;
    for (size_t period = 1; period < length; period++) {
        size_t i = period;
        while (i < layers && c->pattern[i % length] == c->pattern[i % period])
            i++;
        if (i >= layers) {
            c->pattern[period] = '\0';
            return;
        }
    }
}

static void gpt_neo_defaults(struct model_config *c)
{
    gpt2_defaults(c);
    if (!*c->pattern)
        strcpy(c->pattern, "gl");
    shorten_pattern(c);
    if (!c->window)
        c->window = 256;
}

static enum sotto_status gpt_neo_check(const struct model_config *c)
{
    if (c->pattern[strspn(c->pattern, "gl")])
        return fail(SOTTO_EINVAL, "pattern '%s' must consist of g and l", c->pattern);
    if ((size_t)c->layers >= sizeof c->pattern) /* config.json's pattern could not be read back */
        return fail(SOTTO_EINVAL, "layers = %d: gpt_neo has at most %zu", c->layers,
                    sizeof c->pattern - 1);
    return gpt2_check(c);
}

static enum sotto_status gpt_neo_build(struct model *m)
{
    return gpt2_chain(
        m, &(struct gpt2_names){"attn.attention", "out_proj", false, false, m->config.init_std});
}

#define AT(field) offsetof(struct model_config, field)
static const struct arch_member members[] = {
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
enum { MEMBERS = sizeof members / sizeof *members };

/* Appends the kinds in `list`, `repeat` times. */
static enum sotto_status read_pattern(struct model_config *c, const json_t *list, json_int_t repeat)
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
static enum sotto_status gpt_neo_from_json(struct model_config *c, const json_t *json)
{
    TRY(arch_read(c, json, members, MEMBERS));
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
            if (!json_is_array(kinds) || !json_is_integer(times) ||
                json_integer_value(times) > 1024)
                return fail(SOTTO_EFORMAT,
                            "\"attention_types\" must be a list of [[kinds], times]");
            TRY(read_pattern(c, kinds, json_integer_value(times)));
        }
    }
    return gpt2_read_activation(c, json);
}

static json_t *gpt_neo_to_json(const struct model_config *c)
{
    json_t *json = arch_write(c, members, MEMBERS, arch_gpt_neo.hf_class);
    json_object_set_new(json, "activation_function", json_string(c->activation));
    json_t *kinds = json_array();
    for (int i = 0; i < c->layers; i++)
        json_array_append_new(kinds, json_string(model_config_local(c, i) ? "local" : "global"));
    json_object_set(json, "attention_layers", kinds);
    json_object_set_new(json, "attention_types", json_pack("[[oi]]", kinds, 1));
    return json;
}

const struct arch arch_gpt_neo = {
    .number = ARCH_GPT_NEO,
    .name = "gpt_neo",
    .about =
        "GPT-Neo (2021): as GPT-2, with layers that attend globally or within a window (window, pattern)",
    .hf_class = "GPTNeoForCausalLM",
    .text = true,
    .defaults = gpt_neo_defaults,
    .check = gpt_neo_check,
    .from_json = gpt_neo_from_json,
    .to_json = gpt_neo_to_json,
    .build = gpt_neo_build};
