/* Writing tokenizer.json as `tokenizers` does. */
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "data/tokenizer/tokenizer_impl.h"

static enum sotto_status put_added(const struct bpe_added_list *added, json_t *list)
{
    for (uint32_t i = 0; i < added->count; i++) {
        const struct bpe_added *t = &added->item[i];
        json_t *item = json_pack("{s:i, s:s%, s:b, s:b, s:b, s:b, s:b}", "id", (int)t->id,
                                 "content", added->pool.data + t->content, (size_t)t->content_size,
                                 "single_word", t->single_word, "lstrip", t->lstrip, "rstrip",
                                 t->rstrip, "normalized", t->normalized, "special", t->special);
        if (json_array_append_new(list, item) != 0)
            return model_write_no_memory();
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
    TRY_DONE(tokenizer->kind->write(tokenizer, model));
    TRY_DONE(put_added(&tokenizer->added, json_object_get(root, "added_tokens")));
    TRY_DONE(json_save(root, path, 2));
done:
    json_decref(root);
    return st;
}
