#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum sotto_status json_parse(json_t **root, const char *text, size_t size, const char *name)
{
    json_error_t error;
    *root = json_loadb(text, size, JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
    if (!*root)
        return fail(SOTTO_EFORMAT, "%s is not valid JSON: line %d, column %d: %s", name, error.line,
                    error.column, error.text);
    return SOTTO_OK;
}

enum sotto_status json_open(json_t **root, const char *path, size_t limit)
{
    char *text;
    size_t size;
    *root = NULL;
    TRY(file_read(path, limit, &text, &size));
    enum sotto_status st = json_parse(root, text, size, path);
    free(text);
    return st;
}

const char *json_kind(const json_t *value)
{
    static const char *const kind[] = {
        [JSON_OBJECT] = "object",   [JSON_ARRAY] = "array", [JSON_STRING] = "string",
        [JSON_INTEGER] = "integer", [JSON_REAL] = "number", [JSON_TRUE] = "boolean",
        [JSON_FALSE] = "boolean",   [JSON_NULL] = "null",
    };
    return value ? kind[json_typeof(value)] : "nothing";
}

static enum sotto_status fail_member(const json_t *object, const char *key, const char *want)
{
    if (!json_is_object(object))
        return fail(SOTTO_EFORMAT, "want an object with \"%s\", got %s", key, json_kind(object));
    return fail(SOTTO_EFORMAT, "\"%s\" must be %s, got %s", key, want,
                json_kind(json_object_get(object, key)));
}

enum sotto_status json_get_int(const json_t *object, const char *key, int64_t *out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value))
        return fail_member(object, key, "an integer");
    *out = json_integer_value(value);
    return SOTTO_OK;
}

enum sotto_status json_get_text(const json_t *object, const char *key, const char **out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value))
        return fail_member(object, key, "a string");
    *out = json_string_value(value);
    return SOTTO_OK;
}

enum sotto_status json_get_array(const json_t *object, const char *key, json_t **out)
{
    *out = json_object_get(object, key);
    return json_is_array(*out) ? SOTTO_OK : fail_member(object, key, "an array");
}

enum sotto_status json_get_object(const json_t *object, const char *key, json_t **out)
{
    *out = json_object_get(object, key);
    return json_is_object(*out) ? SOTTO_OK : fail_member(object, key, "an object");
}

bool json_get_bool_or(const json_t *object, const char *key, bool fallback)
{
    const json_t *value = json_object_get(object, key);
    return json_is_boolean(value) ? json_is_true(value) : fallback;
}

void json_print_real(char out[JSON_REAL_ROOM], double value)
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(out, JSON_REAL_ROOM, "%.*g", digits, value);
        if (strtod(out, NULL) == value)
            break;
    }
}

/* Copies a string, number or other character from `*p` to `*to` and advances both. A number with a
 * point or an exponent is shortened and keeps its point: without a point, readers would take the
 * number for an integer. */
static void shorten_token(const char **p, char **to)
{
    size_t n = strspn(*p, "+-.0123456789eE");
    char text[JSON_REAL_ROOM + 2];
    if (**p == '"') {
        for (n = 1; (*p)[n] != '"'; n++)
            n += (*p)[n] == '\\';
        n++;
    } else if (strcspn(*p, ".eE") < n) {
        json_print_real(text, strtod(*p, NULL));
        if (!strpbrk(text, ".e"))
            strcat(text, ".0");
        const size_t length = strlen(text);
        if (length < n) {
            memcpy(*to, text, length);
            *to += length;
            *p += n;
            return;
        }
    }
    n = n ? n : 1;
    memmove(*to, *p, n);
    *to += n;
    *p += n;
}

/* Shortens each number to the shortest text that reads back the same: 0.1, not
 * 0.10000000000000001. */
static char *shorten_numbers(char *text)
{
    char *to = text;
    for (const char *p = text; p && *p;)
        shorten_token(&p, &to);
    if (to)
        *to = '\0';
    return text;
}

enum sotto_status json_save(const json_t *root, const char *path, int indent)
{
    char *text = shorten_numbers(
        json_dumps(root, JSON_INDENT(indent) | JSON_REAL_PRECISION(17) | JSON_ENCODE_ANY));
    if (!text)
        return fail(SOTTO_ENOMEM, "no memory to write %s", path);
    size_t length = strlen(text);
    text[length] = '\n'; /* in place of the terminating NUL */
    enum sotto_status st = file_write(path, text, length + 1);
    free(text);
    return st;
}
