/* Reading the decoder of a tokenizer.json. */
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/bpe/pattern.h"
#include "data/tokenizer/stages.h"

static enum sotto_status add_decode_step(struct tokenizer *tokenizer, struct decode_step step,
                                         struct decode_step **out)
{
    struct token_decoder *d = &tokenizer->decoder;
    if (d->count == DECODER_MAX_STEPS)
        return fail(SOTTO_EFORMAT, "more than %d steps", DECODER_MAX_STEPS);
    d->step[d->count] = step;
    if (out)
        *out = &d->step[d->count];
    d->count++;
    return SOTTO_OK;
}

static enum sotto_status copy_text(struct decode_step *step, const json_t *text, const char *key)
{
    if (!json_is_string(text))
        return fail(SOTTO_EFORMAT, "\"%s\" must be a string, got %s", key, json_kind(text));
    step->content_size = json_string_length(text);
    step->content = malloc(step->content_size + 1);
    if (!step->content)
        return fail(SOTTO_ENOMEM, "no memory for a text of %zu bytes", step->content_size);
    memcpy(step->content, json_string_value(text), step->content_size);
    return SOTTO_OK;
}

static enum sotto_status read_decode_bytes(struct tokenizer *t, const json_t *json)
{
    (void)json;
    t->decoder_bytes = true;
    return SOTTO_OK;
}

static enum sotto_status read_decode_replace(struct tokenizer *t, const json_t *json)
{
    struct decode_step *step = NULL;
    TRY(add_decode_step(t, (struct decode_step){.kind = DECODE_REPLACE}, &step));
    TRY(pattern_read(&step->pattern, json));
    return copy_text(step, json_object_get(json, "content"), "content");
}

static enum sotto_status read_decode_fallback(struct tokenizer *t, const json_t *json)
{
    (void)json;
    return add_decode_step(t, (struct decode_step){.kind = DECODE_BYTE_FALLBACK}, NULL);
}

static enum sotto_status read_decode_fuse(struct tokenizer *t, const json_t *json)
{
    (void)json;
    return add_decode_step(t, (struct decode_step){.kind = DECODE_FUSE}, NULL);
}

static enum sotto_status read_decode_strip(struct tokenizer *t, const json_t *json)
{
    struct decode_step step = {.kind = DECODE_STRIP};
    int64_t start, stop;
    TRY(tokenizer_read_character(json, "content", &step.character));
    TRY(json_get_int(json, "start", &start));
    TRY(json_get_int(json, "stop", &stop));
    if (start < 0 || stop < 0)
        return fail(SOTTO_EFORMAT, "\"start\" and \"stop\" must not be negative");
    step.start = (size_t)start;
    step.stop = (size_t)stop;
    return add_decode_step(t, step, NULL);
}

static enum sotto_status read_decode_mark(struct tokenizer *t, const json_t *json)
{
    struct decode_step step = {.kind = DECODE_MARK};
    enum bpe_mark_prefix prefix;
    TRY(tokenizer_read_character(json, "replacement", &step.character));
    TRY(tokenizer_read_mark_prefix(json, &prefix));
    step.drop_first = prefix != BPE_MARK_NEVER;
    return add_decode_step(t, step, NULL);
}

static enum sotto_status read_decode_wordpiece(struct tokenizer *t, const json_t *json)
{
    struct decode_step *step = NULL;
    TRY(add_decode_step(t, (struct decode_step){.kind = DECODE_WORDPIECE}, &step));
    step->cleanup = json_get_bool_or(json, "cleanup", true);
    return copy_text(step, json_object_get(json, "prefix"), "prefix");
}

const struct stage_reader tokenizer_decoders[] = {
    {"ByteLevel", read_decode_bytes},       {"Replace", read_decode_replace},
    {"ByteFallback", read_decode_fallback}, {"Fuse", read_decode_fuse},
    {"Strip", read_decode_strip},           {"Metaspace", read_decode_mark},
    {"WordPiece", read_decode_wordpiece},   {NULL, NULL}};
