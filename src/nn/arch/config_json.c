/* Members of config.json by table, for architectures to read and write. */
#include "nn/config.h"

#include <string.h>

enum sotto_status arch_read(struct model_config *c, const json_t *json,
                            const struct arch_member *table, int n)
{
    for (int i = 0; i < n; i++) {
        const json_t *value = json_object_get(json, table[i].hf);
        void *to = (char *)c + table[i].offset;
        if (!value || json_is_null(value)) {
            if (table[i].required)
                return fail(SOTTO_EFORMAT, "\"%s\" is missing", table[i].hf);
        } else if (table[i].real && json_is_number(value)) {
            *(double *)to = json_number_value(value);
        } else if (!table[i].real && json_is_integer(value)) {
            json_int_t number = json_integer_value(value);
            if (number < 0 || number > 1 << 24)
                return fail(SOTTO_EFORMAT, "\"%s\" = %lld is out of range", table[i].hf,
                            (long long)number);
            *(int *)to = (int)number;
        } else {
            return fail(SOTTO_EFORMAT, "\"%s\" must be %s, got %s", table[i].hf,
                        table[i].real ? "a number" : "an integer", json_kind(value));
        }
    }
    const json_t *tied = json_object_get(json, "tie_word_embeddings");
    if (!tied || json_is_null(tied))
        return SOTTO_OK;
    if (!json_is_boolean(tied))
        return fail(SOTTO_EFORMAT, "\"tie_word_embeddings\" must be true or false, got %s",
                    json_kind(tied));
    c->tied = json_is_true(tied) ? TIED_YES : TIED_NO;
    return SOTTO_OK;
}

json_t *arch_write(const struct model_config *c, const struct arch_member *table, int n,
                   const char *hf_class)
{
    json_t *json = json_object();
    json_object_set_new(json, "architectures", json_pack("[s]", hf_class));
    for (int i = 0; i < n; i++) {
        const void *from = (const char *)c + table[i].offset;
        json_object_set_new(json, table[i].hf,
                            table[i].real ? json_real(*(const double *)from)
                                          : json_integer(*(const int *)from));
    }
    return json;
}

enum sotto_status arch_expect(const json_t *json, const char *key, const char *const *known)
{
    const json_t *value = json_object_get(json, key);
    if (!value || json_is_null(value))
        return SOTTO_OK;
    if (!json_is_string(value))
        return fail(SOTTO_EFORMAT, "\"%s\" must be a string, got %s", key, json_kind(value));
    for (int i = 0; known[i]; i++)
        if (strcmp(known[i], json_string_value(value)) == 0)
            return SOTTO_OK;
    return fail(SOTTO_EFORMAT, "\"%s\" = \"%s\" is not supported: want \"%s\"", key,
                json_string_value(value), known[0]);
}
