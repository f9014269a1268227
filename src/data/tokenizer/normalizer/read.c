/* Reading the normalizer of a tokenizer.json. */
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/bpe/pattern.h"
#include "data/tokenizer/stages.h"

/* Adds a step, which owns from then on what the caller puts into the step. */
static enum sotto_status add_step(struct tokenizer *tokenizer, struct normal_step step,
                                  struct normal_step **out)
{
    struct normalizer *n = &tokenizer->normalizer;
    if (n->count == NORMALIZER_MAX_STEPS)
        return fail(SOTTO_EFORMAT, "more than %d steps", NORMALIZER_MAX_STEPS);
    n->step[n->count] = step;
    if (out)
        *out = &n->step[n->count];
    n->count++;
    return SOTTO_OK;
}

static enum sotto_status copy_content(struct normal_step *step, const json_t *json, const char *key)
{
    const json_t *content = json_object_get(json, key);
    if (!json_is_string(content))
        return fail(SOTTO_EFORMAT, "\"%s\" must be a string, got %s", key, json_kind(content));
    step->content_size = json_string_length(content);
    step->content = malloc(step->content_size + 1);
    if (!step->content)
        return fail(SOTTO_ENOMEM, "no memory for a text of %zu bytes", step->content_size);
    memcpy(step->content, json_string_value(content), step->content_size);
    return SOTTO_OK;
}

static enum sotto_status read_nfc(struct tokenizer *t, const json_t *json)
{
    (void)json;
    return add_step(t, (struct normal_step){.kind = NORMAL_NFC}, NULL);
}

static enum sotto_status read_nfd(struct tokenizer *t, const json_t *json)
{
    (void)json;
    return add_step(t, (struct normal_step){.kind = NORMAL_FORM, .form = BPE_NFD}, NULL);
}

static enum sotto_status read_nfkc(struct tokenizer *t, const json_t *json)
{
    (void)json;
    return add_step(t, (struct normal_step){.kind = NORMAL_FORM, .form = BPE_NFKC}, NULL);
}

static enum sotto_status read_nfkd(struct tokenizer *t, const json_t *json)
{
    (void)json;
    return add_step(t, (struct normal_step){.kind = NORMAL_FORM, .form = BPE_NFKD}, NULL);
}

static enum sotto_status read_lowercase(struct tokenizer *t, const json_t *json)
{
    (void)json;
    return add_step(t, (struct normal_step){.kind = NORMAL_MAP, .map = normal_lowercase}, NULL);
}

static enum sotto_status read_nmt(struct tokenizer *t, const json_t *json)
{
    (void)json;
    return add_step(t, (struct normal_step){.kind = NORMAL_MAP, .map = normal_nmt}, NULL);
}

static enum sotto_status read_strip_accents(struct tokenizer *t, const json_t *json)
{
    (void)json;
    return add_step(t, (struct normal_step){.kind = NORMAL_MAP, .map = normal_drop_marks}, NULL);
}

static enum sotto_status read_strip(struct tokenizer *t, const json_t *json)
{
    return add_step(t,
                    (struct normal_step){.kind = NORMAL_STRIP,
                                         .left = json_get_bool_or(json, "strip_left", true),
                                         .right = json_get_bool_or(json, "strip_right", true)},
                    NULL);
}

static enum sotto_status read_replace(struct tokenizer *t, const json_t *json)
{
    struct normal_step *step = NULL;
    TRY(add_step(t, (struct normal_step){.kind = NORMAL_REPLACE}, &step));
    TRY(pattern_read(&step->pattern, json));
    return copy_content(step, json, "content");
}

static enum sotto_status read_prepend(struct tokenizer *t, const json_t *json)
{
    struct normal_step *step = NULL;
    TRY(add_step(t, (struct normal_step){.kind = NORMAL_PREPEND}, &step));
    return copy_content(step, json, "prepend");
}

static enum sotto_status read_precompiled(struct tokenizer *t, const json_t *json)
{
    struct normal_step *step = NULL;
    const json_t *map = json_object_get(json, "precompiled_charsmap");
    if (json_is_null(map) || (json_is_string(map) && json_string_length(map) == 0))
        return SOTTO_OK; /* a model without normalization */
    if (!json_is_string(map))
        return fail(SOTTO_EFORMAT, "\"precompiled_charsmap\" must be a string, got %s",
                    json_kind(map));
    TRY(add_step(t, (struct normal_step){.kind = NORMAL_PRECOMPILED}, &step));
    return precompiled_read(&step->precompiled, json_string_value(map), json_string_length(map));
}

static enum sotto_status read_bert(struct tokenizer *t, const json_t *json)
{
    const bool lowercase = json_get_bool_or(json, "lowercase", true);
    return add_step(
        t,
        (struct normal_step){.kind = NORMAL_BERT,
                             .clean = json_get_bool_or(json, "clean_text", true),
                             .chinese = json_get_bool_or(json, "handle_chinese_chars", true),
                             .accents = json_get_bool_or(json, "strip_accents", lowercase),
                             .lowercase = lowercase},
        NULL);
}

const struct stage_reader tokenizer_normalizers[] = {{"NFC", read_nfc},
                                                     {"NFD", read_nfd},
                                                     {"NFKC", read_nfkc},
                                                     {"NFKD", read_nfkd},
                                                     {"Replace", read_replace},
                                                     {"Prepend", read_prepend},
                                                     {"Strip", read_strip},
                                                     {"Lowercase", read_lowercase},
                                                     {"StripAccents", read_strip_accents},
                                                     {"Nmt", read_nmt},
                                                     {"Precompiled", read_precompiled},
                                                     {"BertNormalizer", read_bert},
                                                     {NULL, NULL}};
