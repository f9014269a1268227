/* Normalizer, pre-tokenizers, post-processor and decoder of a tokenizer.json.
 *
 * Each is null, one object with a "type", or a "Sequence" of objects; each part has a table of the
 * types that are supported. */
#include "data/tokenizer/stages.h"

#include <string.h>

#define MAX_DEPTH 8 /* sequences in sequences */

struct json_part {
    const char *key;      /* of the part */
    const char *sequence; /* key of a sequence's members */
    const struct stage_reader *readers;
};

/* Names the supported types in the error. */
static enum sotto_status refuse_type(const struct json_part *part, const char *type)
{
    char shown[48], names[256] = "";
    for (const struct stage_reader *r = part->readers; r->type; r++) {
        strcat(names, r == part->readers ? "" : ", ");
        strcat(names, r->type);
    }
    return fail(SOTTO_EFORMAT, "%s of type \"%s\" is not supported, only %s", part->key,
                bpe_show(shown, type, strlen(type)), names);
}

static enum sotto_status read_json_part(struct tokenizer *tokenizer, const struct json_part *part,
                                        const json_t *json, int depth)
{
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
    for (const struct stage_reader *r = part->readers; r->type; r++)
        if (strcmp(type, r->type) == 0)
            return r->read ? fail_in(r->read(tokenizer, json), "%s %s: ", part->key, type)
                           : SOTTO_OK;
    return refuse_type(part, type);
}

/* Letters for bytes become bytes in each token's table, so that no other decoder may have a say. */
static enum sotto_status check_byte_level(const struct tokenizer *t)
{
    if (t->split.bytes) {
        for (int i = 0; i < t->decoder.count; i++)
            if (t->decoder.step[i].kind != DECODE_FUSE)
                return fail(SOTTO_EFORMAT,
                            "decoder: with the pre_tokenizer ByteLevel, only ByteLevel and Fuse "
                            "are supported");
        return SOTTO_OK;
    }
    return t->decoder_bytes ? fail(SOTTO_EFORMAT, "decoder ByteLevel: only supported with the "
                                                  "pre_tokenizer ByteLevel")
                            : SOTTO_OK;
}

enum sotto_status tokenizer_read_stages(struct tokenizer *tokenizer, const json_t *root)
{
    static const struct stage_reader post_processors[] = {
        {"ByteLevel", NULL},
        {"TemplateProcessing", tokenizer_read_template},
        {"RobertaProcessing", tokenizer_read_pair},
        {"BertProcessing", tokenizer_read_pair},
        {NULL, NULL}};
    static const struct json_part parts[] = {
        {"normalizer", "normalizers", tokenizer_normalizers},
        {"pre_tokenizer", "pretokenizers", tokenizer_pre_tokenizers},
        {"post_processor", "processors", post_processors},
        {"decoder", "decoders", tokenizer_decoders},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        TRY(read_json_part(tokenizer, &parts[i], json_object_get(root, parts[i].key), 0));
    const json_t *decoder = json_object_get(root, "decoder");
    tokenizer->decoder.given = decoder && !json_is_null(decoder);
    return check_byte_level(tokenizer);
}
