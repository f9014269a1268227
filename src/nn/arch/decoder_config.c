/* The configuration of decoders: defaults and limits of a family, and config.json. */
#include <string.h>

#include "nn/arch/decoder.h"

static const struct decoder *decoder_of(const struct model_config *c)
{
    return archs[c->arch]->decoder;
}

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

void decoder_defaults(struct model_config *c)
{
    const struct decoder *d = decoder_of(c);
    text_take(c, &d->fresh);
    if (!c->mlp_width) /* with a gate 8/3 of the width: as many parameters as 4x without */
        c->mlp_width = d->choices.gated ? (8 * c->width / 3 + 31) / 32 * 32 : 4 * c->width;
    if (!*c->activation)
        strcpy(c->activation, d->activations[0]);
    if (c->window && !*c->pattern)
        strcpy(c->pattern, "l");
    shorten_pattern(c);
}

static enum sotto_status check_heads(const struct model_config *c)
{
    const struct decoder_choices *has = &decoder_of(c)->choices;
    const char *family = archs[c->arch]->name;
    if (has->even_heads && c->head_width * c->heads != c->width)
        return fail(SOTTO_EINVAL, "width = %d must be heads (%d) times head_width (%d) in %s",
                    c->width, c->heads, c->head_width, family);
    if (has->equal_heads && c->kv_heads != c->heads)
        return fail(SOTTO_EINVAL, "kv_heads = %d: %s has the same number as heads (%d)",
                    c->kv_heads, family, c->heads);
    if (has->positions && c->rope_theta != 0)
        return fail(SOTTO_EINVAL, "rope_theta = %g: %s learns its positions", c->rope_theta,
                    family);
    return has->positions ? SOTTO_OK : rope_check(c);
}

static enum sotto_status check_windows(const struct model_config *c)
{
    const char *family = archs[c->arch]->name;
    const enum decoder_windows windows = decoder_of(c)->choices.windows;
    if (windows == WINDOWS_NONE && (c->window || *c->pattern))
        return fail(SOTTO_EINVAL, "window = %d, pattern = '%s': %s attends globally", c->window,
                    c->pattern, family);
    if (windows == WINDOWS_ALL && *c->pattern && strcmp(c->pattern, "l") != 0)
        return fail(SOTTO_EINVAL, "pattern '%s': %s has a window in all layers or in none",
                    c->pattern, family);
    if (c->pattern[strspn(c->pattern, "gl")])
        return fail(SOTTO_EINVAL, "pattern '%s' must consist of g and l", c->pattern);
    if (strchr(c->pattern, 'l') && !c->window)
        return fail(SOTTO_EINVAL, "pattern '%s': local layers need model.window", c->pattern);
    /* config.json lists every layer */
    if (windows == WINDOWS_BY_LAYER && *c->pattern && (size_t)c->layers >= sizeof c->pattern)
        return fail(SOTTO_EINVAL, "layers = %d: %s has at most %zu", c->layers, family,
                    sizeof c->pattern - 1);
    return SOTTO_OK;
}

static enum sotto_status check_activation(const struct model_config *c)
{
    const char *const *known = decoder_of(c)->activations;
    char names[ARCH_LIST_ROOM];
    for (int i = 0; known[i]; i++)
        if (strcmp(known[i], c->activation) == 0)
            return SOTTO_OK;
    arch_list(names, known);
    return fail(SOTTO_EINVAL, "activation '%s' is not known in %s: want %s", c->activation,
                archs[c->arch]->name, names);
}

enum sotto_status decoder_check(const struct model_config *c)
{
    TRY(check_heads(c));
    TRY(check_windows(c));
    return check_activation(c);
}

enum sotto_status decoder_from_json(struct model_config *c, const json_t *json)
{
    const struct decoder *d = decoder_of(c);
    text_take(c, &d->absent);
    TRY(arch_read(c, json, d->members, d->n_members));
    TRY(arch_read_name(json, d->activation, d->activations, c->activation));
    if (!d->choices.positions)
        TRY(rope_read(c, json));
    return d->read ? d->read(c, json) : SOTTO_OK;
}

json_t *decoder_to_json(const struct model_config *c)
{
    const struct decoder *d = decoder_of(c);
    json_t *json = arch_write(c, d->members, d->n_members, archs[c->arch]->hf_class);
    json_object_set_new(json, d->activation, json_string(c->activation));
    if (!d->choices.positions)
        json_object_set_new(json, "rope_parameters", rope_write(c));
    if (d->write)
        d->write(c, json);
    return json;
}
