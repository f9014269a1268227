/* Reading the pre-tokenizer of a tokenizer.json: stages that split a text into words. */
#include <string.h>
#include <utf8proc.h>

#include "data/tokenizer/bpe/pattern.h"
#include "data/tokenizer/stages.h"

/* Adds a stage; the split owns the stage's pattern in every case. */
static enum sotto_status add_stage(struct tokenizer *tokenizer, struct bpe_stage stage)
{
    struct bpe_split *split = &tokenizer->split;
    /* after ByteLevel, text is letters for bytes */
    if (split->bytes && !split->letters && split->n_stage < BPE_MAX_STAGES) {
        split->stage[split->n_stage++] = (struct bpe_stage){.kind = BPE_STAGE_LETTERS};
        split->letters = true;
    }
    if (split->n_stage == BPE_MAX_STAGES) {
        pattern_free(&stage.pattern);
        return fail(SOTTO_EFORMAT, "more than %d stages", BPE_MAX_STAGES);
    }
    split->stage[split->n_stage++] = stage;
    return SOTTO_OK;
}

/* Refuses a pre-tokenizer that adds characters after ByteLevel. */
static enum sotto_status check_before_bytes(const struct tokenizer *tokenizer)
{
    return tokenizer->split.bytes ? fail(SOTTO_EFORMAT, "is not supported after ByteLevel")
                                  : SOTTO_OK;
}

static enum sotto_status read_byte_level(struct tokenizer *tokenizer, const json_t *json)
{
    TRY(check_before_bytes(tokenizer));
    if (json_get_bool_or(json, "add_prefix_space", true))
        TRY(add_stage(tokenizer, (struct bpe_stage){.kind = BPE_STAGE_PREFIX}));
    if (json_get_bool_or(json, "use_regex", true))
        TRY(add_stage(tokenizer, (struct bpe_stage){.kind = BPE_STAGE_GPT2}));
    tokenizer->split.bytes = true;
    return SOTTO_OK;
}

static enum sotto_status read_digits(struct tokenizer *tokenizer, const json_t *json)
{
    return add_stage(
        tokenizer, (struct bpe_stage){.kind = BPE_STAGE_DIGITS,
                                      .each = json_get_bool_or(json, "individual_digits", false)});
}

static enum sotto_status parse_behavior(const char *name, enum bpe_behavior *out)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    char shown[48];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum bpe_behavior)i;
            return SOTTO_OK;
        }
    return fail(SOTTO_EFORMAT, "behavior \"%s\" is not supported",
                bpe_show(shown, name, strlen(name)));
}

static enum sotto_status read_split(struct tokenizer *tokenizer, const json_t *json)
{
    const char *behavior;
    struct bpe_stage stage = {.kind = BPE_STAGE_PATTERN};
    TRY(json_get_text(json, "behavior", &behavior));
    TRY(parse_behavior(behavior, &stage.behavior));
    stage.invert = json_get_bool_or(json, "invert", false);
    const char *regex =
        json_string_value(json_object_get(json_object_get(json, "pattern"), "Regex"));
    const bool drops = stage.behavior == BPE_REMOVED && !stage.invert;
    const bool plain = stage.behavior <= BPE_ISOLATED; /* the pattern leaves no gaps */
    if (regex && strcmp(regex, bpe_gpt2_pattern) == 0 && plain && !drops) {
        stage.kind = BPE_STAGE_GPT2;
        return add_stage(tokenizer, stage);
    }
    TRY(pattern_read(&stage.pattern, json));
    return add_stage(tokenizer, stage);
}

static bool class_white_space(const struct bpe_unicode *unicode, uint32_t code)
{
    return (bpe_look_up(unicode, code) & BPE_CLASS_MASK) == BPE_SPACE;
}

static bool class_punctuation(const struct bpe_unicode *unicode, uint32_t code)
{
    (void)unicode;
    return bpe_is_punctuation(code);
}

static bool class_word(const struct bpe_unicode *unicode, uint32_t code)
{
    (void)unicode;
    return bpe_is_word(code);
}

static enum sotto_status add_class(struct tokenizer *tokenizer, enum bpe_behavior behavior,
                                   bool (*in_class)(const struct bpe_unicode *, uint32_t))
{
    return add_stage(
        tokenizer,
        (struct bpe_stage){.kind = BPE_STAGE_CLASS, .behavior = behavior, .in_class = in_class});
}

/* \w+|[^\w\s]+ : white space goes, then runs of word characters and of others part. */
static enum sotto_status read_white_space(struct tokenizer *tokenizer, const json_t *json)
{
    (void)json;
    TRY(add_class(tokenizer, BPE_REMOVED, class_white_space));
    return add_class(tokenizer, BPE_CONTIGUOUS, class_word);
}

static enum sotto_status read_white_space_split(struct tokenizer *tokenizer, const json_t *json)
{
    (void)json;
    return add_class(tokenizer, BPE_REMOVED, class_white_space);
}

static enum sotto_status read_bert_words(struct tokenizer *tokenizer, const json_t *json)
{
    (void)json;
    TRY(add_class(tokenizer, BPE_REMOVED, class_white_space));
    return add_class(tokenizer, BPE_ISOLATED, class_punctuation);
}

static enum sotto_status read_punctuation(struct tokenizer *tokenizer, const json_t *json)
{
    enum bpe_behavior behavior = BPE_ISOLATED;
    const char *name = json_string_value(json_object_get(json, "behavior"));
    if (name)
        TRY(parse_behavior(name, &behavior));
    return add_class(tokenizer, behavior, class_punctuation);
}

enum sotto_status tokenizer_read_character(const json_t *json, const char *key, uint32_t *code)
{
    const json_t *text = json_object_get(json, key);
    const size_t size = json_is_string(text) ? json_string_length(text) : 0;
    int length = 0;
    if (size)
        *code = bpe_utf8_code((const uint8_t *)json_string_value(text), &length);
    return size && (size_t)length == size
               ? SOTTO_OK
               : fail(SOTTO_EFORMAT, "\"%s\" must be a string of one character", key);
}

enum sotto_status tokenizer_read_mark_prefix(const json_t *json, enum bpe_mark_prefix *out)
{
    static const char *const names[] = {"always", "first", "never"};
    const json_t *old = json_object_get(json, "add_prefix_space");
    const json_t *scheme = json_object_get(json, "prepend_scheme");
    const char *name = json_string_value(scheme);
    char shown[48];
    *out = json_is_false(old) ? BPE_MARK_NEVER : BPE_MARK_ALWAYS;
    if (!scheme)
        return SOTTO_OK;
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum bpe_mark_prefix)i;
            return SOTTO_OK;
        }
    return fail(SOTTO_EFORMAT, "\"prepend_scheme\" must be always, first or never, got \"%s\"",
                name ? bpe_show(shown, name, strlen(name)) : json_kind(scheme));
}

static enum sotto_status read_mark(struct tokenizer *tokenizer, const json_t *json)
{
    struct bpe_stage stage = {.kind = BPE_STAGE_MARK};
    uint32_t code;
    TRY(check_before_bytes(tokenizer));
    TRY(tokenizer_read_character(json, "replacement", &code));
    if (code == 0)
        return fail(SOTTO_EFORMAT, "\"replacement\" must not be U+0000");
    utf8proc_encode_char((utf8proc_int32_t)code, (utf8proc_uint8_t *)stage.mark);
    TRY(tokenizer_read_mark_prefix(json, &stage.prefix));
    stage.keep = !json_get_bool_or(json, "split", true);
    return add_stage(tokenizer, stage);
}

const struct stage_reader tokenizer_pre_tokenizers[] = {{"ByteLevel", read_byte_level},
                                                        {"Digits", read_digits},
                                                        {"Split", read_split},
                                                        {"Metaspace", read_mark},
                                                        {"Whitespace", read_white_space},
                                                        {"WhitespaceSplit", read_white_space_split},
                                                        {"BertPreTokenizer", read_bert_words},
                                                        {"Punctuation", read_punctuation},
                                                        {NULL, NULL}};
