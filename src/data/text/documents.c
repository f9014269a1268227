/* The documents of a source, in any storage format. */
#define _GNU_SOURCE /* memmem */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "data/text/records.h"
#include "data/text/source.h"
#include "data/tokenizer/bpe/bpe.h"

/* Returns the next line that is exactly the separator, from `p` on (the start of a line), or NULL;
 * `*after`: the beginning of the following line. */
static const char *find_separator(const char *start, const char *p, const char *end,
                                  const char **after)
{
    const size_t length = strlen(SOURCE_SEPARATOR);
    while ((p = memmem(p, (size_t)(end - p), SOURCE_SEPARATOR, length))) {
        const char *q = p + length;
        if (q < end && *q == '\r')
            q++;
        if ((p == start || p[-1] == '\n') && (q == end || *q == '\n')) {
            *after = q < end ? q + 1 : end;
            return p;
        }
        p += length;
    }
    return NULL;
}

/* Skips the byte order mark of Windows' editors, which is no part of the text. */
static void skip_byte_order_mark(const char **text, size_t *size)
{
    if (*size >= 3 && memcmp(*text, "\xef\xbb\xbf", 3) == 0) {
        *text += 3;
        *size -= 3;
    }
}

/* Visits the documents of a text file: the whole file, byte for byte, if there are no separators;
 * else the texts between separators, without line ends around them. */
static enum sotto_status visit_text_file(const char *text, size_t size, source_visitor *visit,
                                         void *arg)
{
    skip_byte_order_mark(&text, &size);
    const char *end = text + size, *p = text, *after = end;
    if (!find_separator(text, text, end, &after))
        return size ? visit(arg, text, size) : SOTTO_OK;
    while (p < end) {
        const char *to = find_separator(text, p, end, &after);
        if (!to)
            to = after = end;
        while (p < to && (*p == '\n' || *p == '\r'))
            p++;
        while (p < to && (to[-1] == '\n' || to[-1] == '\r'))
            to--;
        if (p < to)
            TRY(visit(arg, p, (size_t)(to - p)));
        p = after;
    }
    return SOTTO_OK;
}

/* Adds to the message of a record without the configured member which members the record has. */
static enum sotto_status explain_missing_text(const struct source_spec *spec, const json_t *record,
                                              enum sotto_status st)
{
    char names[160] = "";
    const char *key;
    json_t *value;
    if (!json_is_object(record) || json_object_get(record, spec->text_key))
        return st;
    if (instruct_explain_mixed(st, record, spec->text_key))
        return st;
    json_object_foreach((json_t *)record, key, value)
    {
        size_t used = strlen(names);
        if (json_is_string(value))
            snprintf(names + used, sizeof names - used, "%s\"%s\"", used ? ", " : "", key);
    }
    if (*names)
        fail(st, "%s; its texts are %s: choose one with data.text_key", sotto_error(), names);
    if (!instruct_explain(st, record) && !*names)
        fail(st,
             "%s, nor another text member: want {\"%s\": ...}, with the name set by data.text_key, "
             "or instructions: " INSTRUCT_SHAPES,
             sotto_error(), spec->text_key);
    return st;
}

static enum sotto_status visit_record(const struct source_spec *spec, const json_t *record,
                                      struct instruct_example *example, source_visitor *visit,
                                      void *arg, const struct records *where)
{
    const char *text = NULL;
    size_t size;
    enum sotto_status st;
    if (spec->format == DATA_INSTRUCT) {
        st = instruct_read(example, record);
        text = example->text.data;
        size = example->text.size;
    } else {
        st = json_get_text(record, spec->text_key, &text);
        size = st == SOTTO_OK ? json_string_length(json_object_get(record, spec->text_key)) : 0;
        if (st != SOTTO_OK)
            st = explain_missing_text(spec, record, st);
    }
    TRY(fail_in(st, "%s:%lld: ", spec->path, (long long)where->begins));
    return size ? visit(arg, text, size) : SOTTO_OK;
}

static enum sotto_status visit_records(const struct source_spec *spec, const char *text,
                                       size_t size, source_visitor *visit, void *arg)
{
    struct instruct_example example = {0};
    struct records records;
    json_t *record;
    enum sotto_status st;
    records_begin(&records, text, size, spec->path);
    for (;;) {
        TRY_DONE(records_next(&records, &record));
        if (!record)
            break;
        st = visit_record(spec, record, &example, visit, arg, &records);
        json_decref(record);
        TRY_DONE(st);
    }
done:
    instruct_free(&example);
    return st;
}

static enum sotto_status visit_stories(const struct source_spec *spec, source_visitor *visit,
                                       void *arg)
{
    struct text text = {0};
    enum sotto_status st = SOTTO_OK;
    for (int64_t i = 0; i < spec->count && st == SOTTO_OK; i++) {
        text_clear(&text);
        stories_make(&text, spec->topic, spec->seed, i);
        st = text_status(&text);
        if (st == SOTTO_OK)
            st = visit(arg, text.data, text.size);
    }
    text_free(&text);
    return st;
}

void source_warn_encoding(const struct source_spec *spec)
{
    struct file_map map;
    if (spec->format != DATA_TEXT || file_map_open(&map, spec->path) != SOTTO_OK)
        return;
    size_t first = 0, line = 1, wrong = 0;
    for (size_t at = bpe_utf8_prefix(map.data, map.size); at < map.size;) {
        if (!wrong)
            first = at;
        wrong++;
        at++;
        at += bpe_utf8_prefix(map.data + at, map.size - at);
    }
    for (size_t i = 0; i < first; i++)
        line += map.data[i] == '\n';
    if (wrong)
        log_warn("%s:%zu: byte 0x%02x at place %zu is not UTF-8 (%zu such bytes in all): they are "
                 "taken as they are; `iconv` converts a file of another encoding",
                 spec->path, line, map.data[first], first, wrong);
    file_map_close(&map);
}

enum sotto_status source_visit(const struct source_spec *spec, source_visitor *visit, void *arg)
{
    if (spec->format == DATA_STORIES)
        return visit_stories(spec, visit, arg);
    assert(spec->format == DATA_TEXT || spec->format == DATA_JSONL ||
           spec->format == DATA_INSTRUCT);
    struct file_map map;
    TRY(file_map_open(&map, spec->path));
    const char *text = (const char *)map.data;
    enum sotto_status st;
    if (map.size == 0)
        st = fail(SOTTO_EFORMAT, "%s is empty", spec->path);
    else if (spec->format == DATA_TEXT)
        st = visit_text_file(text, map.size, visit, arg);
    else
        st = visit_records(spec, text, map.size, visit, arg);
    file_map_close(&map);
    return st;
}
