/* WordPiece: the longest token that begins a word, then the longest token with the prefix ("##")
 * that begins the rest, and so on. A word with a rest that no token begins is unknown. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/model/model.h"
#include "data/tokenizer/tokenizer_impl.h"

/* Returns the longest token at `at`, `*end` its end; BPE_NONE if there is none. `rest` has the
 * prefix and then the word. */
static uint32_t longest_token(const struct tokenizer *t, const char *rest, size_t at, size_t size,
                              size_t *end)
{
    const size_t prefix = t->wordpiece.prefix_size;
    char *with = (char *)rest + at; /* the prefix is written before the place */
    const char *from = rest + prefix + at;
    size_t length = size - at;
    if (at > 0) {
        memcpy(with, t->wordpiece.prefix, prefix);
        from = with;
        length += prefix;
    }
    const size_t least = at > 0 ? prefix : 0;
    while (length > least) {
        const uint32_t id =
            length <= t->wordpiece.longest ? bpe_model_find(&t->model, from, length) : BPE_NONE;
        if (id != BPE_NONE) {
            *end = at + length - least;
            return id;
        }
        do
            length--;
        while (length > least && ((uint8_t)from[length] & 0xc0) == 0x80);
    }
    return BPE_NONE;
}

static size_t count_characters(const char *text, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < size; i++)
        n += ((uint8_t)text[i] & 0xc0) != 0x80;
    return n;
}

static enum sotto_status wordpiece_ids(struct bpe_work *work, const char *word, size_t size,
                                       int32_t *out, size_t *count)
{
    const struct tokenizer *t = work->tokenizer;
    struct bpe_buffer *rest = &work->pieces;
    size_t n = 0, at = 0;
    bool known = count_characters(word, size) <= t->wordpiece.most_characters;
    if (known) {
        rest->count = 0;
        TRY(bpe_buffer_add(rest, t->wordpiece.prefix, t->wordpiece.prefix_size));
        TRY(bpe_buffer_add(rest, word, size));
    }
    while (known && at < size) {
        const uint32_t id = longest_token(t, rest->data, at, size, &at);
        known = id != BPE_NONE;
        out[n++] = (int32_t)id;
    }
    if (!known) {
        out[0] = (int32_t)t->model.unknown;
        n = 1;
    }
    *count = n;
    return SOTTO_OK;
}

static enum sotto_status read_wordpiece(struct tokenizer *tokenizer, const json_t *json)
{
    struct bpe_model *model = &tokenizer->model;
    const json_t *prefix = json_object_get(json, "continuing_subword_prefix");
    json_t *vocab;
    int64_t most = 100;
    if (tokenizer->split.bytes)
        return fail(SOTTO_EFORMAT, "a WordPiece model with ByteLevel is not supported");
    if (json_object_get(json, "max_input_chars_per_word"))
        TRY(json_get_int(json, "max_input_chars_per_word", &most));
    if (most < 0)
        return fail(SOTTO_EFORMAT, "\"max_input_chars_per_word\" must not be negative");
    if (!json_is_string(prefix))
        return fail(SOTTO_EFORMAT, "\"continuing_subword_prefix\" must be a string, got %s",
                    json_kind(prefix));
    tokenizer->wordpiece.most_characters = (size_t)most;
    tokenizer->wordpiece.prefix_size = json_string_length(prefix);
    tokenizer->wordpiece.prefix = malloc(tokenizer->wordpiece.prefix_size + 1);
    if (!tokenizer->wordpiece.prefix)
        return fail(SOTTO_ENOMEM, "no memory for a tokenizer");
    memcpy(tokenizer->wordpiece.prefix, json_string_value(prefix),
           tokenizer->wordpiece.prefix_size);
    model->characters = true;
    TRY(json_get_object(json, "vocab", &vocab));
    TRY(model_read_vocab(model, vocab));
    for (uint32_t id = 0; id < model->size; id++)
        if (model->token[id].text != BPE_NONE &&
            model->token[id].text_size > tokenizer->wordpiece.longest)
            tokenizer->wordpiece.longest = model->token[id].text_size;
    TRY(model_read_unknown(model, json, &model->unknown));
    return model->unknown != BPE_NONE
               ? SOTTO_OK
               : fail(SOTTO_EFORMAT, "\"unk_token\" must be a token of the vocabulary");
}

static enum sotto_status write_wordpiece(const struct tokenizer *tokenizer, json_t *json)
{
    return model_write_vocab(&tokenizer->model, json_object_get(json, "vocab"));
}

static void wordpiece_free(struct tokenizer *tokenizer)
{
    free(tokenizer->wordpiece.prefix);
}

const struct model_kind model_wordpiece = {"WordPiece", wordpiece_ids, read_wordpiece,
                                           write_wordpiece, wordpiece_free};
