/* BPE: reading and writing vocabulary and merges. With the pre-tokenizer ByteLevel the symbols are
 * bytes, else characters. */
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/model/model.h"
#include "data/tokenizer/tokenizer_impl.h"

enum sotto_status model_read_vocab(struct bpe_model *model, json_t *vocab)
{
    const char *key;
    json_t *value;
    json_object_foreach(vocab, key, value)
    {
        char shown[48];
        size_t size = strlen(key);
        if (!json_is_integer(value))
            return fail(SOTTO_EFORMAT, "token \"%s\" must have an integer id, got %s",
                        bpe_show(shown, key, size), json_kind(value));
        TRY(bpe_model_add(model, key, size, json_integer_value(value)));
    }
    return SOTTO_OK;
}

enum sotto_status model_read_merge(struct bpe_model *model, const char *text, size_t size)
{
    char shown[48];
    const char *space = memchr(text, ' ', size);
    if (!space || memchr(space + 1, ' ', size - (size_t)(space - text) - 1))
        return fail(SOTTO_EFORMAT, "merge %u must be two tokens with one space between, got \"%s\"",
                    model->n_merge, bpe_show(shown, text, size));
    size_t left = (size_t)(space - text);
    return bpe_model_merge(model, text, left, space + 1, size - left - 1);
}

static enum sotto_status read_merges(struct bpe_model *model, json_t *merges)
{
    size_t index;
    json_t *merge;
    json_array_foreach(merges, index, merge)
    {
        json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
        if (json_is_string(merge))
            TRY(model_read_merge(model, json_string_value(merge), json_string_length(merge)));
        else if (json_array_size(merge) == 2 && json_is_string(left) && json_is_string(right))
            TRY(bpe_model_merge(model, json_string_value(left), json_string_length(left),
                                json_string_value(right), json_string_length(right)));
        else
            return fail(SOTTO_EFORMAT, "merge %zu must be \"a b\" or [\"a\", \"b\"], got %s", index,
                        json_kind(merge));
    }
    return SOTTO_OK;
}

/* Refuses a member of the model unless absent, null, false, 0 or "". */
static enum sotto_status refuse_member(const json_t *model, const char *key)
{
    const json_t *value = json_object_get(model, key);
    if (!value || json_is_null(value) || json_is_false(value) ||
        (json_is_number(value) && json_number_value(value) == 0) ||
        (json_is_string(value) && json_string_length(value) == 0))
        return SOTTO_OK;
    return fail(SOTTO_EFORMAT, "a BPE model with \"%s\" is not supported", key);
}

enum sotto_status model_read_unknown(const struct bpe_model *model, const json_t *json,
                                     uint32_t *id)
{
    const json_t *unknown = json_object_get(json, "unk_token");
    char shown[48];
    *id = BPE_NONE;
    if (!json_is_string(unknown))
        return SOTTO_OK;
    *id = bpe_model_find(model, json_string_value(unknown), json_string_length(unknown));
    return *id != BPE_NONE
               ? SOTTO_OK
               : fail(SOTTO_EFORMAT, "unk_token \"%s\" is not in the vocabulary",
                      bpe_show(shown, json_string_value(unknown), json_string_length(unknown)));
}

static enum sotto_status check_bytes(const struct bpe_model *model)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char letter[2];
        const int n = bpe_letter_utf8((uint8_t)byte, letter);
        if (bpe_model_find(model, letter, (size_t)n) == BPE_NONE)
            return fail(SOTTO_EFORMAT,
                        "byte_fallback with ByteLevel is supported with a token for each byte: "
                        "byte 0x%02x has none",
                        byte);
    }
    return SOTTO_OK;
}

static enum sotto_status read_bpe(struct tokenizer *tokenizer, const json_t *json)
{
    struct bpe_model *model = &tokenizer->model;
    const bool fallback = json_get_bool_or(json, "byte_fallback", false);
    json_t *vocab, *merges;
    TRY(refuse_member(json, "dropout"));
    TRY(refuse_member(json, "continuing_subword_prefix"));
    TRY(refuse_member(json, "end_of_word_suffix"));
    TRY(json_get_object(json, "vocab", &vocab));
    TRY(json_get_array(json, "merges", &merges));
    model->characters = !tokenizer->split.bytes;
    model->ignore_merges = json_get_bool_or(json, "ignore_merges", false);
    model->fuse_unknown = json_get_bool_or(json, "fuse_unk", false);
    TRY(model_read_vocab(model, vocab));
    TRY(model_read_unknown(model, json, &model->unknown));
    TRY(read_merges(model, merges));
    if (!model->characters)
        return fallback ? check_bytes(model) : SOTTO_OK;
    if (fallback)
        bpe_find_fallback(model);
    bpe_check_marks(model);
    return SOTTO_OK;
}

enum sotto_status model_write_no_memory(void)
{
    return fail(SOTTO_ENOMEM, "no memory to write a tokenizer");
}

enum sotto_status model_write_vocab(const struct bpe_model *model, json_t *vocab)
{
    for (uint32_t id = 0; id < model->size; id++) {
        const struct bpe_token *token = &model->token[id];
        if (token->text == BPE_NONE)
            continue;
        char *key = malloc(token->text_size + 1u); /* jansson wants a terminator */
        if (!key)
            return model_write_no_memory();
        memcpy(key, bpe_token_text(model, id), token->text_size);
        key[token->text_size] = '\0';
        int rc = json_object_set_new(vocab, key, json_integer(id));
        free(key);
        if (rc != 0)
            return model_write_no_memory();
    }
    return SOTTO_OK;
}

static json_t *token_string(const struct bpe_model *model, uint32_t id)
{
    return json_stringn(bpe_token_text(model, id), model->token[id].text_size);
}

/* Writes "left right", which every version reads, or pairs if a token has a space. */
static enum sotto_status put_merges(const struct bpe_model *model, json_t *merges)
{
    bool pairs = false;
    for (uint32_t i = 0; i < model->n_merge; i++)
        pairs = pairs || memchr(bpe_token_text(model, model->merge[i].result), ' ',
                                model->token[model->merge[i].result].text_size);
    for (uint32_t i = 0; i < model->n_merge; i++) {
        struct bpe_merge m = model->merge[i];
        json_t *item;
        if (pairs) {
            item = json_pack("[o, o]", token_string(model, m.left), token_string(model, m.right));
        } else {
            item = json_sprintf("%.*s %.*s", (int)model->token[m.left].text_size,
                                bpe_token_text(model, m.left), (int)model->token[m.right].text_size,
                                bpe_token_text(model, m.right));
        }
        if (json_array_append_new(merges, item) != 0)
            return model_write_no_memory();
    }
    return SOTTO_OK;
}

static enum sotto_status write_bpe(const struct tokenizer *tokenizer, json_t *json)
{
    TRY(model_write_vocab(&tokenizer->model, json_object_get(json, "vocab")));
    return put_merges(&tokenizer->model, json_object_get(json, "merges"));
}

const struct model_kind model_bpe = {"BPE", bpe_merged_ids, read_bpe, write_bpe, NULL};
