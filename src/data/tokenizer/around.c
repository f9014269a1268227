/* The tokens that a post-processor puts around a text: the special tokens of a template for one
 * sequence, such as "<s> A" or "A </s>". */
#include <string.h>

#include "base/json.h"
#include "data/tokenizer/model/unigram.h"
#include "data/tokenizer/stages.h"

static enum sotto_status add_ids(struct tokenizer_around *to, const json_t *known, const char *name)
{
    char shown[48];
    json_t *ids, *id;
    size_t i;
    const json_t *token = json_object_get(known, name);
    if (!token)
        return fail(SOTTO_EFORMAT, "the template has \"%s\", special_tokens has not",
                    bpe_show(shown, name, strlen(name)));
    TRY(json_get_array(token, "ids", &ids));
    json_array_foreach(ids, i, id)
    {
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= BPE_MAX_VOCAB)
            return fail(SOTTO_EFORMAT, "\"%s\" must have ids from 0 to %d",
                        bpe_show(shown, name, strlen(name)), BPE_MAX_VOCAB - 1);
        if (to->count == TOKENIZER_MAX_AROUND)
            return fail(SOTTO_EFORMAT, "more than %d tokens before or after a text",
                        TOKENIZER_MAX_AROUND);
        to->ids[to->count++] = (int32_t)json_integer_value(id);
    }
    return SOTTO_OK;
}

enum sotto_status tokenizer_read_template(struct tokenizer *tokenizer, const json_t *json)
{
    struct tokenizer_around *before = &tokenizer->before, *after = &tokenizer->after;
    json_t *single, *piece;
    size_t i;
    bool text = false;
    if (before->count || after->count) /* as in `tokenizers` */
        return fail(SOTTO_EFORMAT, "two templates around one another are not supported");
    TRY(json_get_array(json, "single", &single));
    json_array_foreach(single, i, piece)
    {
        const json_t *special = json_object_get(piece, "SpecialToken");
        const char *name;
        if (special) {
            TRY(json_get_text(special, "id", &name));
            TRY(add_ids(text ? after : before, json_object_get(json, "special_tokens"), name));
            continue;
        }
        TRY(json_get_text(json_object_get(piece, "Sequence"), "id", &name));
        if (text || strcmp(name, "A") != 0)
            return fail(SOTTO_EFORMAT, "\"single\" must have the sequence A once");
        text = true;
    }
    if (!text)
        return fail(SOTTO_EFORMAT, "\"single\" must have the sequence A once");
    return SOTTO_OK;
}

static enum sotto_status read_pair_token(struct tokenizer_around *to, const json_t *json,
                                         const char *key)
{
    const json_t *id = json_array_get(json_object_get(json, key), 1);
    if (!json_is_integer(id) || json_integer_value(id) < 0 ||
        json_integer_value(id) >= BPE_MAX_VOCAB)
        return fail(SOTTO_EFORMAT, "\"%s\" must be [\"text\", id] with an id from 0 to %d", key,
                    BPE_MAX_VOCAB - 1);
    to->ids[to->count++] = (int32_t)json_integer_value(id);
    return SOTTO_OK;
}

/* RobertaProcessing and BertProcessing: cls A sep. */
enum sotto_status tokenizer_read_pair(struct tokenizer *tokenizer, const json_t *json)
{
    if (tokenizer->before.count || tokenizer->after.count)
        return fail(SOTTO_EFORMAT, "two templates around one another are not supported");
    TRY(read_pair_token(&tokenizer->before, json, "cls"));
    return read_pair_token(&tokenizer->after, json, "sep");
}

enum sotto_status tokenizer_check_around(const struct tokenizer *tokenizer)
{
    const struct tokenizer_around *side[] = {&tokenizer->before, &tokenizer->after};
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < side[s]->count; i++)
            if ((uint32_t)side[s]->ids[i] >= tokenizer->model.size)
                return fail(SOTTO_EFORMAT, "post_processor: id %d is beyond the vocabulary of %u",
                            side[s]->ids[i], tokenizer->model.size);
    return SOTTO_OK;
}

int tokenizer_begin(const struct tokenizer *tokenizer)
{
    return tokenizer->before.count ? tokenizer->before.ids[0] : -1;
}

static enum sotto_status add_tokens_around(struct token_list *out,
                                           const struct tokenizer_around *around)
{
    for (int i = 0; i < around->count; i++)
        TRY(token_list_add(out, around->ids[i]));
    return SOTTO_OK;
}

enum sotto_status tokenizer_encode_prompt(const struct tokenizer *tokenizer, const char *text,
                                          size_t size, struct token_list *out)
{
    TRY(add_tokens_around(out, &tokenizer->before));
    return tokenizer_encode(tokenizer, text, size, out);
}

enum sotto_status tokenizer_encode_rest(const struct tokenizer *tokenizer, const char *text,
                                        size_t size, size_t from, struct token_list *out)
{
    if (!tokenizer->model.characters)
        return tokenizer_encode(tokenizer, text + from, size - from, out);
    const size_t before = out->count;
    TRY(tokenizer_encode(tokenizer, text, from, out));
    const size_t known = out->count - before;
    out->count = before;
    TRY(tokenizer_encode(tokenizer, text, size, out));
    const size_t whole = out->count - before, rest = whole > known ? whole - known : 0;
    memmove(out->data + before, out->data + before + whole - rest, rest * sizeof *out->data);
    out->count = before + rest;
    return SOTTO_OK;
}

enum sotto_status tokenizer_encode_special(const struct tokenizer *tokenizer, const char *text,
                                           size_t size, struct token_list *out)
{
    TRY(tokenizer_encode_prompt(tokenizer, text, size, out));
    return add_tokens_around(out, &tokenizer->after);
}

enum sotto_status tokenizer_encode_document(const struct tokenizer *tokenizer, const char *text,
                                            size_t size, struct token_list *out)
{
    const struct tokenizer_around *after = &tokenizer->after;
    const int end = tokenizer_end(tokenizer);
    TRY(tokenizer_encode_special(tokenizer, text, size, out));
    if (end < 0 || (after->count && after->ids[after->count - 1] == end))
        return SOTTO_OK;
    return token_list_add(out, end);
}

static bool same_bytes(const struct bpe_buffer *a, uint32_t at_a, uint32_t size_a,
                       const struct bpe_buffer *b, uint32_t at_b, uint32_t size_b)
{
    return size_a == size_b && memcmp(a->data + at_a, b->data + at_b, size_a) == 0;
}

bool tokenizer_same(const struct tokenizer *a, const struct tokenizer *b)
{
    const struct bpe_model *m = &a->model, *n = &b->model;
    if (a->kind != b->kind || m->size != n->size || m->n_merge != n->n_merge ||
        !unigram_same(a->unigram, b->unigram))
        return false;
    for (uint32_t id = 0; id < m->size; id++) {
        const struct bpe_token *s = &m->token[id], *t = &n->token[id];
        if ((s->bytes == BPE_NONE) != (t->bytes == BPE_NONE) ||
            (s->bytes != BPE_NONE &&
             !same_bytes(&m->pool, s->bytes, s->bytes_size, &n->pool, t->bytes, t->bytes_size)))
            return false;
    }
    for (uint32_t i = 0; i < m->n_merge; i++)
        if (m->merge[i].left != n->merge[i].left || m->merge[i].right != n->merge[i].right)
            return false;
    return true;
}
