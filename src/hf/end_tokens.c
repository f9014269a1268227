#include "hf/end_tokens.h"

#include "base/file.h"

enum { ID_LIMIT = 1 << 24 };

static enum sotto_status add_id(struct end_tokens *e, const json_t *value)
{
    if (!json_is_integer(value) || json_integer_value(value) >= ID_LIMIT)
        return fail(SOTTO_EFORMAT, "\"eos_token_id\" must be a token's number or a list of them");
    if (json_integer_value(value) < 0) /* negative: no token */
        return SOTTO_OK;
    if (e->count == END_TOKENS_ROOM)
        return fail(SOTTO_EFORMAT, "\"eos_token_id\" has more than %d tokens", END_TOKENS_ROOM);
    e->id[e->count++] = (int)json_integer_value(value);
    return SOTTO_OK;
}

enum sotto_status end_tokens_from_json(struct end_tokens *e, const json_t *config)
{
    const json_t *value = json_object_get(config, "eos_token_id"), *each;
    size_t i;
    *e = (struct end_tokens){0};
    if (!value || json_is_null(value))
        return SOTTO_OK;
    if (!json_is_array(value))
        return add_id(e, value);
    json_array_foreach(value, i, each) TRY(add_id(e, each));
    return SOTTO_OK;
}

enum sotto_status end_tokens_read(struct end_tokens *e, const char *folder,
                                  const struct tokenizer *tokenizer)
{
    static const char *const files[] = {"generation_config.json", "config.json"};
    *e = (struct end_tokens){0};
    for (int i = 0; i < 2 && e->count == 0; i++) {
        char path[FILE_PATH_ROOM];
        json_t *json;
        TRY(file_join(path, folder, files[i]));
        if (!file_exists(path))
            continue;
        TRY(json_open(&json, path, 1 << 24));
        const enum sotto_status st = end_tokens_from_json(e, json);
        json_decref(json);
        TRY(fail_in(st, "%s: ", path));
    }
    if (e->count == 0 && tokenizer && tokenizer_end(tokenizer) >= 0)
        e->id[e->count++] = tokenizer_end(tokenizer);
    return SOTTO_OK;
}

bool end_tokens_have(const struct end_tokens *e, int id)
{
    for (int i = 0; i < e->count; i++)
        if (e->id[i] == id)
            return true;
    return false;
}

json_t *end_tokens_to_json(const struct end_tokens *e)
{
    if (e->count == 1)
        return json_integer(e->id[0]);
    json_t *list = json_array();
    for (int i = 0; i < e->count; i++)
        json_array_append_new(list, json_integer(e->id[i]));
    return list;
}
