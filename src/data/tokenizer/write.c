/* Writing tokenizer.json as `tokenizers` does. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "data/tokenizer/tokenizer_impl.h"

static enum sotto_status writing_no_memory(void)
{
    return fail(SOTTO_ENOMEM, "no memory to write a tokenizer");
}

static enum sotto_status put_vocab(const struct bpe_model *model, json_t *vocab)
{
    for (uint32_t id = 0; id < model->size; id++) {
        const struct bpe_token *token = &model->token[id];
        if (token->text == BPE_NONE)
            continue;
        char *key = malloc(token->text_size + 1u); /* jansson wants a terminator */
        if (!key)
            return writing_no_memory();
        memcpy(key, bpe_token_text(model, id), token->text_size);
        key[token->text_size] = '\0';
        int rc = json_object_set_new(vocab, key, json_integer(id));
        free(key);
        if (rc != 0)
            return writing_no_memory();
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
            return writing_no_memory();
    }
    return SOTTO_OK;
}

static enum sotto_status put_added(const struct bpe_added_list *added, json_t *list)
{
    for (uint32_t i = 0; i < added->count; i++) {
        const struct bpe_added *t = &added->item[i];
        json_t *item = json_pack("{s:i, s:s%, s:b, s:b, s:b, s:b, s:b}", "id", (int)t->id,
                                 "content", added->pool.data + t->content, (size_t)t->content_size,
                                 "single_word", t->single_word, "lstrip", t->lstrip, "rstrip",
                                 t->rstrip, "normalized", t->normalized, "special", t->special);
        if (json_array_append_new(list, item) != 0)
            return writing_no_memory();
    }
    return SOTTO_OK;
}

enum sotto_status tokenizer_save(const struct tokenizer *tokenizer, const char *path)
{
    char inside[FILE_PATH_ROOM];
    if (file_is_directory(path)) {
        TRY(file_join(inside, path, "tokenizer.json"));
        path = inside;
    }
    json_t *root;
    TRY(json_parse(&root, tokenizer->shell, strlen(tokenizer->shell), "tokenizer"));
    json_t *model = json_object_get(root, "model");
    enum sotto_status st;
    TRY_DONE(put_vocab(&tokenizer->model, json_object_get(model, "vocab")));
    TRY_DONE(put_merges(&tokenizer->model, json_object_get(model, "merges")));
    TRY_DONE(put_added(&tokenizer->added, json_object_get(root, "added_tokens")));
    TRY_DONE(json_save(root, path, 2));
done:
    json_decref(root);
    return st;
}
