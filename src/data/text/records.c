#include "data/text/records.h"

#include <string.h>

static void skip_record_blanks(struct records *r)
{
    for (; r->at < r->end && memchr(" \t\r\n", *r->at, 4); r->at++)
        r->line += *r->at == '\n';
}

void records_begin(struct records *records, const char *text, size_t size, const char *name)
{
    *records =
        (struct records){.name = name, .at = text, .end = text + size, .line = 1, .first = true};
    if (size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) /* byte order mark */
        records->at += 3;
    skip_record_blanks(records);
    if (records->at < records->end && *records->at == '[') {
        records->array = true;
        records->at++;
    }
}

/* Returns the position after the closing quote, or the end of the line: a string cannot span lines.
 */
static const char *skip_string(const char *p, const char *end)
{
    for (p++; p < end && *p != '\n'; p++) {
        if (*p == '"')
            return p + 1;
        if (*p == '\\' && p + 1 < end && p[1] != '\n')
            p++;
    }
    return p;
}

/* Returns the position after the value at `p`, as if the value were valid; the parser checks it. */
static const char *skip_value(const char *p, const char *end)
{
    int64_t depth = 0;
    while (p < end) {
        if (*p == '"') {
            p = skip_string(p, end);
        } else if (*p == '{' || *p == '[') {
            depth++;
            p++;
        } else if (*p == '}' || *p == ']') {
            if (depth == 0)
                return p;
            depth--;
            p++;
        } else if (depth == 0 && (*p == ',' || *p == '\n')) {
            return p;
        } else {
            p++;
            continue;
        }
        if (depth == 0)
            return p;
    }
    return p;
}

static enum sotto_status fail_bad_record(const struct records *r, const char *what)
{
    return fail(SOTTO_EFORMAT, "%s:%lld: not valid JSON: %s", r->name, (long long)r->line, what);
}

enum sotto_status records_next(struct records *r, json_t **out)
{
    *out = NULL;
    skip_record_blanks(r);
    if (r->array) {
        if (r->at == r->end)
            return fail_bad_record(r, "the array does not end");
        if (*r->at == ']') {
            r->at++;
            skip_record_blanks(r);
            if (r->at < r->end)
                return fail_bad_record(r, "something follows the array");
            r->array = false;
            return SOTTO_OK;
        }
        if (!r->first) {
            if (*r->at != ',')
                return fail_bad_record(r, "',' or ']' expected");
            r->at++;
            skip_record_blanks(r);
        }
    }
    r->first = false;
    r->begins = r->line;
    if (r->at == r->end)
        return r->array ? fail_bad_record(r, "the array does not end") : SOTTO_OK;
    const char *from = r->at;
    const char *to = skip_value(from, r->end);
    if (to == from)
        return fail_bad_record(r, "a value is missing");
    json_error_t error;
    *out = json_loadb(from, (size_t)(to - from), JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
    if (!*out) {
        r->line += error.line > 0 ? error.line - 1 : 0;
        return fail_bad_record(r, error.text);
    }
    for (const char *p = from; p < to; p++)
        r->line += *p == '\n';
    r->at = to;
    return SOTTO_OK;
}
