#include "hf/hf_folder.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "hf/weights.h"
#include "nn/arch/image.h"

static const size_t file_limit = (size_t)1 << 29;

static const struct {
    const char *hf;
    enum safetensors_type type;
} dtypes[] = {
    [SAVE_FP32] = {"float32", SAFETENSORS_F32},
    [SAVE_BF16] = {"bfloat16", SAFETENSORS_BF16},
    [SAVE_FP16] = {"float16", SAFETENSORS_F16},
};

static int file_index(const char *name)
{
    int i = 0;
    while (strcmp(hf_files[i].name, name) != 0)
        i++;
    return i;
}

static bool has_file(const struct hf_folder *f, const char *name)
{
    return f->file[file_index(name)].data != NULL;
}

static enum sotto_status take_file(struct hf_folder *f, int i, const char *path)
{
    return file_exists(path) ? file_read(path, file_limit, &f->file[i].data, &f->file[i].size)
                             : SOTTO_OK;
}

/* Reads the model's files, or the tokenizer's, from `folder`. */
static enum sotto_status take_files(struct hf_folder *f, const char *folder, bool tokenizer)
{
    char path[FILE_PATH_ROOM];
    for (int i = 0; i < HF_FILES; i++) {
        if (hf_files[i].tokenizer != tokenizer)
            continue;
        TRY(file_join(path, folder, hf_files[i].name));
        TRY(take_file(f, i, path));
    }
    return SOTTO_OK;
}

/* Reads a tokenizer's files: tokenizer.json has companions in the same folder, a file of another
 * name has none. */
static enum sotto_status take_tokenizer(struct hf_folder *f, const char *from)
{
    if (file_is_directory(from))
        return take_files(f, from, true);
    const char *slash = strrchr(from, '/'), *name = slash ? slash + 1 : from;
    if (strcmp(name, "tokenizer.json") != 0)
        return take_file(f, file_index("tokenizer.json"), from);
    char folder[FILE_PATH_ROOM] = ".";
    if (slash)
        snprintf(folder, sizeof folder, "%.*s", slash == from ? 1 : (int)(slash - from), from);
    return take_files(f, folder, true);
}

static enum sotto_status choose_types(struct hf_folder *f, const struct model *model,
                                      const char *from, bool new_head, enum save_dtype dtype)
{
    f->types = calloc((size_t)model->table.n, sizeof *f->types);
    if (!f->types)
        return fail(SOTTO_ENOMEM, "no memory for the types of %d tensors", model->table.n);
    if (dtype == SAVE_AUTO)
        return *from ? weights_types(model, from, new_head, f->types) : SOTTO_OK;
    f->dtype = dtypes[dtype].hf;
    for (int i = 0; i < model->table.n; i++)
        f->types[i] = dtypes[dtype].type;
    return SOTTO_OK;
}

/* Returns the token that `member` of tokenizer_config.json names ("<s>", or an object with a
 * content), -1 if the tokenizer has no such token. */
static int named_token(const json_t *config, const char *member, const struct tokenizer *tokenizer)
{
    const json_t *value = json_object_get(config, member);
    const json_t *content = json_is_object(value) ? json_object_get(value, "content") : value;
    if (!json_is_string(content))
        return -1;
    return tokenizer_find(tokenizer, json_string_value(content), json_string_length(content));
}

/* Returns the token number in config.json, the first of a list; -1 for none. */
static int numbered_token(const json_t *config, const char *member)
{
    const json_t *value = json_object_get(config, member);
    if (json_is_array(value))
        value = json_array_get(value, 0);
    return json_is_integer(value) && json_integer_value(value) >= 0 &&
                   json_integer_value(value) < 1 << 24
               ? (int)json_integer_value(value)
               : -1;
}

/* Finds the tokens at the beginning and end of a text: from config.json, else the tokenizer's
 * files, else the tokenizer. If nothing else begins a text, the end of the text before does. */
static void find_end_tokens(struct hf_folder *f, const struct tokenizer *tokenizer)
{
    const int i = file_index("tokenizer_config.json");
    f->begin = numbered_token(f->config, "bos_token_id");
    f->end = numbered_token(f->config, "eos_token_id");
    if (!tokenizer)
        return;
    /* Such files have lengths of 10^30, which are no integers here; a file that is not JSON is
     * still written out unchanged. */
    json_t *config = f->file[i].data ? json_loadb(f->file[i].data, f->file[i].size,
                                                  JSON_DECODE_INT_AS_REAL, NULL)
                                     : NULL;
    if (f->end < 0)
        f->end = named_token(config, "eos_token", tokenizer);
    if (f->begin < 0)
        f->begin = named_token(config, "bos_token", tokenizer);
    json_decref(config);
    if (f->end < 0)
        f->end = tokenizer_end(tokenizer);
    if (f->begin < 0)
        f->begin = tokenizer_begin(tokenizer);
    if (f->begin < 0)
        f->begin = f->end;
}

static enum sotto_status take_config(struct hf_folder *f, const char *folder)
{
    char path[FILE_PATH_ROOM];
    TRY(file_join(path, folder, "config.json"));
    TRY(file_read(path, 1 << 24, &f->config_text, &f->config_size));
    return json_parse(&f->config, f->config_text, f->config_size, path);
}

enum sotto_status hf_folder_open(struct hf_folder *f, const struct model *model, const char *from,
                                 const struct tokenizer *tokenizer, const char *tokenizer_from,
                                 bool new_head, enum save_dtype dtype)
{
    enum sotto_status st;
    *f = (struct hf_folder){0};
    TRY_DONE(choose_types(f, model, from, new_head, dtype));
    if (*from) {
        TRY_DONE(take_config(f, from));
        TRY_DONE(take_files(f, from, false));
    }
    if (*tokenizer_from)
        TRY_DONE(take_tokenizer(f, tokenizer_from));
    find_end_tokens(f, tokenizer);
done:
    if (st != SOTTO_OK)
        hf_folder_close(f);
    return st;
}

void hf_folder_close(struct hf_folder *f)
{
    for (int i = 0; i < HF_FILES; i++)
        free(f->file[i].data);
    free(f->types);
    free(f->config_text);
    json_decref(f->config);
    json_decref(f->generation);
    json_decref(f->processor);
    json_decref(f->classes);
    *f = (struct hf_folder){0};
}

/* Adds an end token to generation_config.json, or to the ends of config.json without that file. */
enum sotto_status hf_folder_add_end(struct hf_folder *f, int id)
{
    const int i = file_index("generation_config.json");
    struct end_tokens ends = {0};
    json_t *json = NULL;
    enum sotto_status st;
    if (f->file[i].data)
        TRY(json_parse(&json, f->file[i].data, f->file[i].size, hf_files[i].name));
    TRY_DONE(end_tokens_from_json(&ends, json));
    if (ends.count == 0)
        TRY_DONE(end_tokens_from_json(&ends, f->config));
    if (ends.count == 0 && f->end >= 0)
        ends.id[ends.count++] = f->end;
    if (id < 0 || end_tokens_have(&ends, id) || ends.count == END_TOKENS_ROOM)
        goto done;
    ends.id[ends.count++] = id;
    if (!json)
        json = f->begin < 0 ? json_object() : json_pack("{s:i}", "bos_token_id", f->begin);
    json_object_set_new(json, "eos_token_id", end_tokens_to_json(&ends));
    free(f->file[i].data);
    f->file[i].data = NULL;
    json_decref(f->generation);
    f->generation = json_incref(json);
done:
    json_decref(json);
    return st;
}

void hf_folder_set_processor(struct hf_folder *f, json_t *processor)
{
    const int i = file_index("preprocessor_config.json");
    free(f->file[i].data);
    f->file[i].data = NULL;
    json_decref(f->processor);
    f->processor = processor;
}

/* Sets the names; the configuration of a bare model ("ViTModel") becomes one of a model with a
 * classifier. */
enum sotto_status hf_folder_set_classes(struct hf_folder *f, const struct model *model,
                                        char *const *names, int classes)
{
    json_decref(f->classes);
    f->classes = json_object();
    if (!f->classes)
        return fail(SOTTO_ENOMEM, "no memory for the names of %d classes", classes);
    image_write_classes(f->classes, names, classes);
    if (json_object_get(f->config, "num_labels"))
        json_object_set_new(f->classes, "num_labels", json_integer(classes));
    if (f->config)
        json_object_set_new(f->classes, "architectures",
                            json_pack("[s]", archs[model->config.arch]->hf_class));
    return SOTTO_OK;
}

bool hf_folder_exact(const struct hf_folder *f, const struct model *model)
{
    for (int i = 0; i < model->table.n; i++)
        if (f->types[i] != SAFETENSORS_F32)
            return false;
    return true;
}

static json_t *id_or_null(int id)
{
    return id >= 0 ? json_integer(id) : json_null();
}

static enum sotto_status save_json_in(const char *folder, const char *name, json_t *json)
{
    char path[FILE_PATH_ROOM];
    enum sotto_status st =
        json ? file_join(path, folder, name) : fail(SOTTO_ENOMEM, "no memory for %s", name);
    if (st == SOTTO_OK)
        st = json_save(json, path, 2);
    json_decref(json);
    return st;
}

static enum sotto_status write_config(const struct hf_folder *f, const struct model *model,
                                      const char *folder)
{
    char path[FILE_PATH_ROOM];
    json_t *json;
    if (f->config && !f->dtype && !f->classes) {
        TRY(file_join(path, folder, "config.json"));
        return file_write(path, f->config_text, f->config_size);
    }
    if (f->config) {
        json = json_deep_copy(f->config);
    } else {
        TRY(model_config_to_json(&model->config, &json));
        if (model_config_kind(&model->config)->sequences) {
            json_object_set_new(json, "bos_token_id", id_or_null(f->begin));
            json_object_set_new(json, "eos_token_id", id_or_null(f->end));
            json_object_set_new(json, "pad_token_id", json_null());
        }
    }
    if (json && f->classes)
        json_object_update(json, f->classes);
    if (json && f->dtype) { /* newer versions write "dtype" */
        const bool newer = json_object_get(json, "dtype") != NULL;
        if (newer)
            json_object_set_new(json, "dtype", json_string(f->dtype));
        if (!newer || json_object_get(json, "torch_dtype"))
            json_object_set_new(json, "torch_dtype", json_string(f->dtype));
    }
    return save_json_in(folder, "config.json", json);
}

/* Sets `key` to the token's text; does nothing for an id that the tokenizer does not have. */
static void set_token_text(json_t *json, const char *key, int id, const struct tokenizer *tokenizer)
{
    char *text;
    size_t size;
    if (id < 0 || tokenizer_decode(tokenizer, &id, 1, &text, &size) != SOTTO_OK)
        return;
    json_object_set_new(json, key, json_stringn(text, size));
    free(text);
}

/* Writes the files from which transformers loads tokenizer.json, for models that had none. */
static enum sotto_status describe_tokenizer(const struct hf_folder *f, const struct model *model,
                                            const struct tokenizer *tokenizer, const char *folder)
{
    char path[FILE_PATH_ROOM];
    if (!has_file(f, "tokenizer.json")) {
        TRY(file_join(path, folder, "tokenizer.json"));
        TRY(tokenizer_save(tokenizer, path));
    }
    json_t *map = json_object();
    set_token_text(map, "bos_token", f->begin, tokenizer);
    set_token_text(map, "eos_token", f->end, tokenizer);
    json_t *config =
        json_pack("{s:s, s:i, s:b}", "tokenizer_class", "PreTrainedTokenizerFast",
                  "model_max_length", model->config.positions, "clean_up_tokenization_spaces", 0);
    json_object_update(config, map);
    enum sotto_status st = save_json_in(folder, "tokenizer_config.json", config);
    if (st != SOTTO_OK || has_file(f, "special_tokens_map.json")) {
        json_decref(map);
        return st;
    }
    return save_json_in(folder, "special_tokens_map.json", map);
}

enum sotto_status hf_folder_write(const struct hf_folder *f, const struct model *model,
                                  const struct tokenizer *tokenizer, const char *folder)
{
    char path[FILE_PATH_ROOM];
    TRY(write_config(f, model, folder));
    for (int i = 0; i < HF_FILES; i++) {
        if (!f->file[i].data)
            continue;
        TRY(file_join(path, folder, hf_files[i].name));
        TRY(file_write(path, f->file[i].data, f->file[i].size));
    }
    if (f->processor)
        TRY(save_json_in(folder, "preprocessor_config.json", json_incref(f->processor)));
    if (tokenizer && !has_file(f, "tokenizer_config.json"))
        TRY(describe_tokenizer(f, model, tokenizer, folder));
    if (f->generation)
        return save_json_in(folder, "generation_config.json", json_incref(f->generation));
    if (f->config || f->end < 0)
        return SOTTO_OK;
    return save_json_in(folder, "generation_config.json",
                        json_pack("{s:i, s:i}", "bos_token_id", f->begin, "eos_token_id", f->end));
}
