/* Reading tokenizer.json, and vocab.json with merges.txt.
 *
 * Members that would change the ids and are not implemented are errors with the member's name;
 * members that do not change ids (padding, truncation) are kept for writing and otherwise ignored.
 */
#include "data/tokenizer/tokenizer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "data/tokenizer/tokenizer_impl.h"
#include "data/tokenizer/stages.h"

#define FILE_LIMIT ((size_t)1 << 29)

static const char gpt2_shell[] =
    "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [], \"normalizer\": null,"
    "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true,"
    "\"use_regex\": true},"
    "\"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": false,"
    "\"use_regex\": true},"
    "\"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true,"
    "\"use_regex\": true},"
    "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, \"continuing_subword_prefix\": null,"
    "\"end_of_word_suffix\": null, \"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": false,"
    "\"vocab\": {}, \"merges\": []}}";

static enum sotto_status check_added(const struct tokenizer *tokenizer, const char *content,
                                     size_t size, int64_t id)
{
    const struct bpe_model *model = &tokenizer->model;
    char a[48], b[48];
    if (id < 0 || id >= BPE_MAX_VOCAB)
        return fail(SOTTO_EFORMAT, "added token \"%s\" has id %" PRId64 ", must be in 0..%d",
                    bpe_show(a, content, size), id, BPE_MAX_VOCAB - 1);
    if (size > BPE_MAX_ADDED)
        return fail(SOTTO_EFORMAT, "added token %" PRId64 " has %zu bytes, at most %d are allowed",
                    id, size, BPE_MAX_ADDED);
    uint32_t known = bpe_model_find(model, content, size);
    if (known != BPE_NONE && known != id)
        return fail(SOTTO_EFORMAT, "added token \"%s\" has id %" PRId64 ", in the vocabulary %u",
                    bpe_show(a, content, size), id, known);
    if (known == BPE_NONE && id < model->size && model->token[id].text != BPE_NONE)
        return fail(SOTTO_EFORMAT, "added token \"%s\" has the id %" PRId64 " of token \"%s\"",
                    bpe_show(a, content, size), id,
                    bpe_show(b, bpe_token_text(model, (uint32_t)id), model->token[id].text_size));
    return SOTTO_OK;
}

/* Orders by id, so that check_distinct finds equal ids next to each other. */
static int compare_added_ids(const void *a, const void *b)
{
    uint32_t x = ((const struct bpe_added *)a)->id, y = ((const struct bpe_added *)b)->id;
    return (x > y) - (x < y);
}

static enum sotto_status check_distinct(const struct bpe_added_list *list)
{
    struct bpe_added *sorted = malloc((list->count + 1) * sizeof *sorted);
    enum sotto_status st = SOTTO_OK;
    char a[48], b[48];
    if (!sorted)
        return fail(SOTTO_ENOMEM, "no memory for %u added tokens", list->count);
    if (list->count)
        memcpy(sorted, list->item, list->count * sizeof *sorted);
    qsort(sorted, list->count, sizeof *sorted, compare_added_ids);
    for (uint32_t i = 1; i < list->count && st == SOTTO_OK; i++)
        if (sorted[i].id == sorted[i - 1].id)
            st = fail(
                SOTTO_EFORMAT, "added tokens \"%s\" and \"%s\" have the same id %u",
                bpe_show(a, list->pool.data + sorted[i - 1].content, sorted[i - 1].content_size),
                bpe_show(b, list->pool.data + sorted[i].content, sorted[i].content_size),
                sorted[i].id);
    free(sorted);
    return st;
}

static enum sotto_status read_added(struct tokenizer *tokenizer, const json_t *json)
{
    const json_t *list = json_object_get(json, "added_tokens");
    if (!list || json_is_null(list))
        return SOTTO_OK;
    if (!json_is_array(list))
        return fail(SOTTO_EFORMAT, "\"added_tokens\" must be an array, got %s", json_kind(list));
    size_t index;
    json_t *item;
    json_array_foreach(list, index, item)
    {
        int64_t id;
        const char *content;
        enum sotto_status st = json_get_text(item, "content", &content);
        if (st == SOTTO_OK)
            st = json_get_int(item, "id", &id);
        if (st != SOTTO_OK)
            return fail_in(st, "added token %zu: ", index);
        size_t size = json_string_length(json_object_get(item, "content"));
        if (size == 0)
            continue;
        TRY(check_added(tokenizer, content, size, id));
        struct bpe_added token = {.id = (uint32_t)id};
        token.special = json_get_bool_or(item, "special", false);
        token.normalized = json_get_bool_or(item, "normalized", !token.special);
        token.lstrip = json_get_bool_or(item, "lstrip", false);
        token.rstrip = json_get_bool_or(item, "rstrip", false);
        token.single_word = json_get_bool_or(item, "single_word", false);
        TRY(bpe_added_add(&tokenizer->added, token, content, size));
    }
    return check_distinct(&tokenizer->added);
}

/* Keeps all members except vocabulary, merges and added tokens, in their order. */
static enum sotto_status keep_shell(struct tokenizer *tokenizer, json_t *root)
{
    json_t *model = json_object_get(root, "model");
    json_object_set_new(model, "type", json_string(tokenizer->kind->type));
    const bool list = json_is_array(json_object_get(model, "vocab"));
    json_object_set_new(model, "vocab", list ? json_array() : json_object());
    if (tokenizer->kind == &model_bpe)
        json_object_set_new(model, "merges", json_array());
    json_object_set_new(root, "added_tokens", json_array());
    tokenizer->shell = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17));
    return tokenizer->shell ? SOTTO_OK : fail(SOTTO_ENOMEM, "no memory for a tokenizer");
}

static enum sotto_status read_root(struct tokenizer *tokenizer, json_t *root)
{
    json_t *model;
    TRY(json_get_object(root, "model", &model));
    TRY(model_kind_find(&tokenizer->kind, model));
    TRY(tokenizer_read_stages(tokenizer, root));
    TRY(tokenizer->kind->read(tokenizer, model));
    TRY(read_added(tokenizer, root));
    TRY(keep_shell(tokenizer, root));
    TRY(tokenizer_finish(tokenizer));
    return tokenizer_check_around(tokenizer);
}

static enum sotto_status tokenizer_from_root(struct tokenizer **out, json_t *root, const char *name)
{
    enum sotto_status st = tokenizer_make(out);
    if (st == SOTTO_OK)
        st = read_root(*out, root);
    if (st != SOTTO_OK) {
        tokenizer_close(*out);
        *out = NULL;
    }
    json_decref(root);
    return fail_in(st, "%s: ", name);
}

enum sotto_status tokenizer_parse(struct tokenizer **out, const char *json, size_t size,
                                  const char *name)
{
    json_t *root;
    *out = NULL;
    TRY(json_parse(&root, json, size, name));
    return tokenizer_from_root(out, root, name);
}

enum sotto_status tokenizer_shell_gpt2(struct tokenizer *tokenizer)
{
    json_t *root;
    TRY(json_parse(&root, gpt2_shell, sizeof gpt2_shell - 1, "GPT-2"));
    enum sotto_status st = tokenizer_read_stages(tokenizer, root);
    if (st == SOTTO_OK)
        st = keep_shell(tokenizer, root);
    json_decref(root);
    return st;
}

/* Reads the lines of merges.txt; the first may be "#version: 0.2". */
static enum sotto_status read_merge_lines(struct bpe_model *model, const char *text, size_t size)
{
    for (size_t line = 1; size > 0; line++) {
        const char *end = memchr(text, '\n', size);
        size_t length = end ? (size_t)(end - text) : size, used = length + (end != NULL);
        if (length > 0 && text[length - 1] == '\r')
            length--;
        bool version = length >= 8 && memcmp(text, "#version", 8) == 0;
        if (length > 0 && !version) {
            enum sotto_status st = model_read_merge(model, text, length);
            if (st != SOTTO_OK)
                return fail_in(st, "line %zu: ", line);
        }
        text += used;
        size -= used;
    }
    return SOTTO_OK;
}

static enum sotto_status read_pair(struct tokenizer *tokenizer, const char *vocab_path,
                                   const char *merges_path)
{
    json_t *vocab;
    TRY(tokenizer_shell_gpt2(tokenizer));
    TRY(json_open(&vocab, vocab_path, FILE_LIMIT));
    enum sotto_status st = json_is_object(vocab)
                               ? model_read_vocab(&tokenizer->model, vocab)
                               : fail(SOTTO_EFORMAT, "must be an object, got %s", json_kind(vocab));
    json_decref(vocab);
    TRY(fail_in(st, "%s: ", vocab_path));

    char *text;
    size_t size;
    TRY(file_read(merges_path, FILE_LIMIT, &text, &size));
    st = read_merge_lines(&tokenizer->model, text, size);
    free(text);
    TRY(fail_in(st, "%s: ", merges_path));

    static const char end[] = "<|endoftext|>"; /* these files do not mark special tokens */
    uint32_t id = bpe_model_find(&tokenizer->model, end, sizeof end - 1);
    if (id != BPE_NONE)
        TRY(bpe_added_add(&tokenizer->added, (struct bpe_added){.id = id, .special = true}, end,
                          sizeof end - 1));
    return tokenizer_finish(tokenizer);
}

/* Takes the end-of-text token from tokenizer_config.json, if no special token has a known name. */
static void find_end_in_config(struct tokenizer *tokenizer, const json_t *config)
{
    const json_t *end = json_object_get(config, "eos_token");
    if (json_is_object(end))
        end = json_object_get(end, "content");
    if (tokenizer->end != BPE_NONE || !json_is_string(end))
        return;
    const int id = tokenizer_find(tokenizer, json_string_value(end), json_string_length(end));
    tokenizer->end = id < 0 ? BPE_NONE : (uint32_t)id;
}

/* Reads the end tokens in the other files of the folder. Other members of tokenizer_config.json,
 * and a file that is not JSON, are ignored. */
static enum sotto_status read_other_files(struct tokenizer *tokenizer, const char *folder)
{
    char path[FILE_PATH_ROOM], *text;
    size_t size;
    json_t *config = NULL;
    TRY(file_join(path, folder, "tokenizer_config.json"));
    if (file_exists(path)) {
        TRY(file_read(path, FILE_LIMIT, &text, &size));
        config = json_loadb(text, size, JSON_DECODE_INT_AS_REAL, NULL); /* lengths of 10^30 */
        free(text);
    }
    find_end_in_config(tokenizer, config);
    const enum sotto_status st = tokenizer_read_turn(tokenizer, folder, config);
    json_decref(config);
    return st;
}

static enum sotto_status read_tokenizer_file(struct tokenizer **out, const char *path)
{
    json_t *root;
    TRY(json_open(&root, path, FILE_LIMIT));
    TRY(tokenizer_from_root(out, root, path));
    const char *slash = strrchr(path, '/');
    char folder[FILE_PATH_ROOM] = ".";
    if (strcmp(slash ? slash + 1 : path, "tokenizer.json") != 0)
        return SOTTO_OK;
    if (slash)
        snprintf(folder, sizeof folder, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    enum sotto_status st = read_other_files(*out, folder);
    if (st != SOTTO_OK) {
        tokenizer_close(*out);
        *out = NULL;
    }
    return st;
}

bool tokenizer_in(const char *folder)
{
    static const char *const names[] = {"tokenizer.json", "vocab.json"};
    char path[FILE_PATH_ROOM];
    for (int i = 0; i < 2; i++)
        if (file_join(path, folder, names[i]) == SOTTO_OK && file_exists(path))
            return true;
    return false;
}

enum sotto_status tokenizer_open(struct tokenizer **out, const char *path)
{
    char json_path[FILE_PATH_ROOM], vocab_path[FILE_PATH_ROOM], merges_path[FILE_PATH_ROOM];
    *out = NULL;
    if (file_is_directory(path)) {
        TRY(file_join(json_path, path, "tokenizer.json"));
        TRY(file_join(vocab_path, path, "vocab.json"));
        TRY(file_join(merges_path, path, "merges.txt"));
        if (file_exists(json_path))
            return tokenizer_open(out, json_path);
        if (!file_exists(vocab_path) || !file_exists(merges_path)) {
            TRY(file_join(json_path, path, "tokenizer.model"));
            if (file_exists(json_path))
                return fail(SOTTO_EFORMAT,
                            "%s has tokenizer.model without tokenizer.json, which transformers "
                            "makes: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
                            path);
            return fail(SOTTO_EIO, "%s has neither tokenizer.json nor vocab.json and merges.txt",
                        path);
        }
        TRY(tokenizer_make(out));
        enum sotto_status st = read_pair(*out, vocab_path, merges_path);
        if (st == SOTTO_OK)
            st = read_other_files(*out, path);
        if (st != SOTTO_OK) {
            tokenizer_close(*out);
            *out = NULL;
        }
        return st;
    }
    return read_tokenizer_file(out, path);
}
