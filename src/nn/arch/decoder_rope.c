/* Rotary positions of decoders: frequencies, and their members of config.json. The formulas are
 * those of transformers' modeling_rope_utils.py. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "nn/arch/decoder.h"

static const char *const kinds[] = {
    [ROPE_DEFAULT] = "default", [ROPE_LINEAR] = "linear", [ROPE_LLAMA3] = "llama3", NULL};

/* The numbers of a scaling; the last three are those of llama3 alone. */
static const struct rope_number {
    const char *hf;
    size_t offset;
} numbers[] = {
    {"factor", offsetof(struct rope_scaling, factor)},
    {"low_freq_factor", offsetof(struct rope_scaling, low)},
    {"high_freq_factor", offsetof(struct rope_scaling, high)},
    {"original_max_position_embeddings", offsetof(struct rope_scaling, original)},
};

/* Returns how many of `numbers` a kind has. */
static int rope_count_numbers(enum rope_kind kind)
{
    return kind == ROPE_LLAMA3 ? 4 : kind == ROPE_LINEAR ? 1 : 0;
}

static double *rope_number_at(struct rope_scaling *s, int i)
{
    return (double *)((char *)s + numbers[i].offset);
}

static enum sotto_status read_scaling(struct rope_scaling *s, const json_t *rope, int positions)
{
    const char *key = json_object_get(rope, "rope_type") ? "rope_type" : "type";
    char kind[OPTION_ROOM] = "default";
    TRY(arch_read_name(rope, key, kinds, kind));
    while (strcmp(kinds[s->kind], kind) != 0)
        s->kind++;
    s->original = positions; /* of transformers, if the member is missing */
    for (int i = 0; i < rope_count_numbers(s->kind); i++) {
        const json_t *value = json_object_get(rope, numbers[i].hf);
        if (json_is_number(value))
            *rope_number_at(s, i) = json_number_value(value);
        else if (value || *rope_number_at(s, i) == 0)
            return fail(SOTTO_EFORMAT, "\"%s\" of a rope of type %s must be a number, got %s",
                        numbers[i].hf, kind, value ? json_kind(value) : "none");
    }
    if (s->kind == ROPE_DEFAULT)
        s->original = 0;
    return SOTTO_OK;
}

enum sotto_status rope_read(struct model_config *c, const json_t *json)
{
    const char *key = "rope_scaling"; /* of transformers 4; first, as in transformers 5 */
    const json_t *rope = json_object_get(json, key);
    if (!rope || json_is_null(rope))
        rope = json_object_get(json, key = "rope_parameters");
    if (!rope || json_is_null(rope))
        return SOTTO_OK;
    if (!json_is_object(rope))
        return fail(SOTTO_EFORMAT, "\"%s\" must be an object, got %s", key, json_kind(rope));
    const json_t *theta = json_object_get(rope, "rope_theta");
    if (json_is_number(theta))
        c->rope_theta = json_number_value(theta);
    return read_scaling(&c->rope, rope, c->positions);
}

json_t *rope_write(const struct model_config *c)
{
    struct rope_scaling s = c->rope;
    json_t *json = json_pack("{s:s, s:f}", "rope_type", kinds[s.kind], "rope_theta", c->rope_theta);
    for (int i = 0; i < rope_count_numbers(s.kind); i++) {
        const double number = *rope_number_at(&s, i);
        json_object_set_new(json, numbers[i].hf,
                            number == floor(number) ? json_integer((json_int_t)number)
                                                    : json_real(number));
    }
    return json;
}

enum sotto_status rope_check(const struct model_config *c)
{
    const struct rope_scaling *s = &c->rope;
    if (c->head_width % 2)
        return fail(SOTTO_EINVAL, "head_width = %d must be even for rotary positions",
                    c->head_width);
    if (s->kind != ROPE_DEFAULT && !(s->factor > 0 && s->factor <= 1e6))
        return fail(SOTTO_EINVAL, "a rope's factor = %g must be in (0, 1e6]", s->factor);
    if (s->kind == ROPE_LLAMA3 && !(s->low > 0 && s->high > s->low && s->original >= 1))
        return fail(SOTTO_EINVAL,
                    "a rope of type llama3 needs 0 < low_freq_factor < high_freq_factor, and "
                    "original_max_position_embeddings of at least 1: got %g, %g and %g",
                    s->low, s->high, s->original);
    return SOTTO_OK;
}

/* Returns the frequency `f`, in radians a position, as the model has it. */
static double scale_frequency(const struct rope_scaling *s, double f)
{
    const double turns = s->original * f / (2 * acos(-1)); /* within the original length */
    if (s->kind == ROPE_DEFAULT || (s->kind == ROPE_LLAMA3 && turns > s->high))
        return f;
    if (s->kind == ROPE_LINEAR || turns < s->low)
        return f / s->factor;
    const double share = (turns - s->low) / (s->high - s->low);
    return (1 - share) * f / s->factor + share * f;
}

float *rope_frequencies(const struct model_config *c)
{
    int half = c->head_width / 2;
    float *f = malloc((size_t)half * sizeof *f);
    for (int i = 0; f && i < half; i++)
        f[i] = (float)scale_frequency(&c->rope, 1.0 / pow(c->rope_theta, 2.0 * i / c->head_width));
    return f;
}
