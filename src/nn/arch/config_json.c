/* Members of config.json by table, for architectures to read and write. */
#include "nn/config.h"

#include <stdio.h>
#include <string.h>

static enum sotto_status read_integer(int *to, const char *key, const json_t *value)
{
    if (!json_is_integer(value))
        return fail(SOTTO_EFORMAT, "\"%s\" must be an integer, got %s", key, json_kind(value));
    const json_int_t number = json_integer_value(value);
    if (number < 0 || number > 1 << 24)
        return fail(SOTTO_EFORMAT, "\"%s\" = %lld is out of range", key, (long long)number);
    *to = (int)number;
    return SOTTO_OK;
}

static enum sotto_status read_real(double *to, const char *key, const json_t *value)
{
    if (!json_is_number(value))
        return fail(SOTTO_EFORMAT, "\"%s\" must be a number, got %s", key, json_kind(value));
    *to = json_number_value(value);
    return SOTTO_OK;
}

/* Refuses a boolean that is not `want`. */
static enum sotto_status expect_boolean(bool want, const char *key, const json_t *value)
{
    if (!json_is_boolean(value))
        return fail(SOTTO_EFORMAT, "\"%s\" must be true or false, got %s", key, json_kind(value));
    if (json_is_true(value) != want)
        return fail(SOTTO_EFORMAT, "\"%s\" = %s is not supported", key, want ? "false" : "true");
    return SOTTO_OK;
}

static enum sotto_status read_arch_member(struct model_config *c, const struct arch_member *m,
                                          const json_t *value)
{
    void *to = (char *)c + m->offset;
    if (json_is_null(value)) {
        if (m->kind == MEMBER_KIND_INT)
            *(int *)to = 0;
        return SOTTO_OK;
    }
    switch (m->kind) {
    case MEMBER_KIND_INT:
        return read_integer(to, m->hf, value);
    case MEMBER_KIND_REAL:
        return read_real(to, m->hf, value);
    default:
        return expect_boolean(m->kind == MEMBER_KIND_TRUE, m->hf, value);
    }
}

enum sotto_status arch_read(struct model_config *c, const json_t *json,
                            const struct arch_member *table, int n)
{
    for (int i = 0; i < n; i++) {
        const json_t *value = json_object_get(json, table[i].hf);
        if (table[i].required && (!value || json_is_null(value)))
            return fail(SOTTO_EFORMAT, "\"%s\" is missing", table[i].hf);
        if (value)
            TRY(read_arch_member(c, &table[i], value));
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

static json_t *member_value(const struct model_config *c, const struct arch_member *m)
{
    const void *from = (const char *)c + m->offset;
    switch (m->kind) {
    case MEMBER_KIND_INT:
        return *(const int *)from ? json_integer(*(const int *)from) : json_null();
    case MEMBER_KIND_REAL:
        return json_real(*(const double *)from);
    default:
        return json_boolean(m->kind == MEMBER_KIND_TRUE);
    }
}

json_t *arch_write(const struct model_config *c, const struct arch_member *table, int n,
                   const char *hf_class)
{
    json_t *json = json_object();
    json_object_set_new(json, "architectures", json_pack("[s]", hf_class));
    for (int i = 0; i < n; i++)
        json_object_set_new(json, table[i].hf, member_value(c, &table[i]));
    return json;
}

void arch_list(char out[ARCH_LIST_ROOM], const char *const *names)
{
    size_t used = 0;
    for (int i = 0; names[i] && used < ARCH_LIST_ROOM; i++)
        used += (size_t)snprintf(out + used, ARCH_LIST_ROOM - used, "%s%s",
                                 i == 0         ? ""
                                 : names[i + 1] ? ", "
                                                : " or ",
                                 names[i]);
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
    char names[ARCH_LIST_ROOM];
    arch_list(names, known);
    return fail(SOTTO_EFORMAT, "\"%s\" = \"%s\" is not supported: want %s", key,
                json_string_value(value), names);
}

enum sotto_status arch_read_name(const json_t *json, const char *key, const char *const *known,
                                 char name[OPTION_ROOM])
{
    TRY(arch_expect(json, key, known));
    const char *value = json_string_value(json_object_get(json, key));
    if (value)
        strcpy(name, value);
    return SOTTO_OK;
}
