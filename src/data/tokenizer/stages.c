/* Normalizer, pre-tokenizers, post-processor and decoder of a tokenizer.json.
 *
 * Each is null, one object with a "type", or a "Sequence" of objects; each part has a table of the
 * types that are supported. */
#include "data/tokenizer/stages.h"

#include <string.h>

#define MAX_DEPTH 8 /* sequences in sequences */

struct json_kind_reader {
    const char *type;
    enum sotto_status (*read)(struct tokenizer *tokenizer,
                              const json_t *json); /* NULL: nothing to do */
};

struct json_part {
    const char *key;      /* of the part */
    const char *sequence; /* key of a sequence's members */
    const struct json_kind_reader *kinds;
    int n_kind;
};

static enum sotto_status read_json_part(struct tokenizer *tokenizer, const struct json_part *part,
                                        const json_t *json, int depth)
{
    char shown[48];
    const char *type;
    if (!json || json_is_null(json))
        return SOTTO_OK;
    enum sotto_status st = json_get_text(json, "type", &type);
    if (st != SOTTO_OK)
        return fail_in(st, "%s: ", part->key);
    if (strcmp(type, "Sequence") == 0) {
        json_t *list, *item;
        size_t index;
        if (depth == MAX_DEPTH)
            return fail(SOTTO_EFORMAT, "%s has sequences more than %d deep", part->key, MAX_DEPTH);
        st = json_get_array(json, part->sequence, &list);
        if (st != SOTTO_OK)
            return fail_in(st, "%s: ", part->key);
        json_array_foreach(list, index, item) TRY(read_json_part(tokenizer, part, item, depth + 1));
        return SOTTO_OK;
    }
    for (int i = 0; i < part->n_kind; i++)
        if (strcmp(type, part->kinds[i].type) == 0)
            return part->kinds[i].read
                       ? fail_in(part->kinds[i].read(tokenizer, json), "%s %s: ", part->key, type)
                       : SOTTO_OK;
    return fail(SOTTO_EFORMAT, "%s of type \"%s\" is not supported", part->key,
                bpe_show(shown, type, strlen(type)));
}

static enum sotto_status read_nfc(struct tokenizer *tokenizer, const json_t *json)
{
    (void)json;
    tokenizer->nfc = true;
    return SOTTO_OK;
}

static enum sotto_status add_stage(struct tokenizer *tokenizer, struct bpe_stage stage)
{
    struct bpe_split *split = &tokenizer->split;
    if (split->n_stage == BPE_MAX_STAGES) {
        bpe_regex_free(stage.code);
        return fail(SOTTO_EFORMAT, "more than %d stages", BPE_MAX_STAGES);
    }
    split->stage[split->n_stage++] = stage;
    return SOTTO_OK;
}

/* Refuses a pre-tokenizer after ByteLevel: text is letters for bytes then. */
static enum sotto_status check_before_bytes(const struct tokenizer *tokenizer)
{
    return tokenizer->split.bytes ? fail(SOTTO_EFORMAT, "nothing may follow ByteLevel") : SOTTO_OK;
}

static enum sotto_status read_byte_level(struct tokenizer *tokenizer, const json_t *json)
{
    TRY(check_before_bytes(tokenizer));
    tokenizer->split.bytes = true;
    if (json_get_bool_or(json, "add_prefix_space", true))
        TRY(add_stage(tokenizer, (struct bpe_stage){.kind = BPE_STAGE_PREFIX}));
    if (json_get_bool_or(json, "use_regex", true))
        TRY(add_stage(tokenizer, (struct bpe_stage){.kind = BPE_STAGE_GPT2}));
    return SOTTO_OK;
}

static enum sotto_status read_digits(struct tokenizer *tokenizer, const json_t *json)
{
    TRY(check_before_bytes(tokenizer));
    return add_stage(
        tokenizer, (struct bpe_stage){.kind = BPE_STAGE_DIGITS,
                                      .each = json_get_bool_or(json, "individual_digits", false)});
}

static enum sotto_status read_split(struct tokenizer *tokenizer, const json_t *json)
{
    json_t *pattern;
    const char *behavior;
    char shown[48];
    TRY(check_before_bytes(tokenizer));
    TRY(json_get_object(json, "pattern", &pattern));
    TRY(json_get_text(json, "behavior", &behavior));
    const json_t *regex = json_object_get(pattern, "Regex");
    const json_t *text = regex ? regex : json_object_get(pattern, "String");
    if (!json_is_string(text))
        return fail(SOTTO_EFORMAT, "\"pattern\" must have a string \"Regex\" or \"String\"");

    struct bpe_stage stage = {.kind = BPE_STAGE_REGEX};
    bool invert = json_get_bool_or(json, "invert", false);
    if (strcmp(behavior, "Removed") == 0) {
        stage.drop_match = !invert;
        stage.drop_gap = invert;
    } else if (strcmp(behavior, "Isolated") != 0) {
        return fail(SOTTO_EFORMAT, "behavior \"%s\" is not supported",
                    bpe_show(shown, behavior, strlen(behavior)));
    }
    const char *source = json_string_value(text);
    if (regex && strcmp(source, bpe_gpt2_pattern) == 0 && !stage.drop_match) {
        stage.kind = BPE_STAGE_GPT2; /* leaves no gaps */
        return add_stage(tokenizer, stage);
    }
    TRY(bpe_regex_compile(&stage.code, source, json_string_length(text), !regex));
    return add_stage(tokenizer, stage);
}

#define KINDS(table) table, sizeof table / sizeof *table

enum sotto_status tokenizer_read_stages(struct tokenizer *tokenizer, const json_t *root)
{
    static const struct json_kind_reader normalizers[] = {{"NFC", read_nfc}};
    static const struct json_kind_reader pre_tokenizers[] = {
        {"ByteLevel", read_byte_level}, {"Digits", read_digits}, {"Split", read_split}};
    static const struct json_kind_reader post_processors[] = {
        {"ByteLevel", NULL}, {"TemplateProcessing", tokenizer_read_template}};
    static const struct json_kind_reader decoders[] = {{"ByteLevel", NULL}, {"Fuse", NULL}};
    static const struct json_part parts[] = {
        {"normalizer", "normalizers", KINDS(normalizers)},
        {"pre_tokenizer", "pretokenizers", KINDS(pre_tokenizers)},
        {"post_processor", "processors", KINDS(post_processors)},
        {"decoder", "decoders", KINDS(decoders)},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        TRY(read_json_part(tokenizer, &parts[i], json_object_get(root, parts[i].key), 0));
    if (!tokenizer->split.bytes)
        return fail(SOTTO_EFORMAT, "pre_tokenizer must have a ByteLevel: others are not supported");
    return SOTTO_OK;
}
