#define _GNU_SOURCE /* memmem */
#include "data/tokenizer/bpe/pattern.h"

#include <stdlib.h>
#include <string.h>

enum sotto_status pattern_read(struct bpe_pattern *pattern, const json_t *json)
{
    json_t *both;
    TRY(json_get_object(json, "pattern", &both));
    const json_t *regex = json_object_get(both, "Regex");
    const json_t *text = regex ? regex : json_object_get(both, "String");
    if (!json_is_string(text))
        return fail(SOTTO_EFORMAT, "\"pattern\" must have a string \"Regex\" or \"String\"");
    const size_t size = json_string_length(text);
    if (regex || size == 0 || size > BPE_MAX_ADDED)
        return bpe_regex_compile(&pattern->code, json_string_value(text), size, !regex);
    pattern->literal = malloc(size);
    if (!pattern->literal)
        return fail(SOTTO_ENOMEM, "no memory for a pattern");
    memcpy(pattern->literal, json_string_value(text), size);
    pattern->size = size;
    return SOTTO_OK;
}

void pattern_free(struct bpe_pattern *pattern)
{
    bpe_regex_free(pattern->code);
    free(pattern->literal);
    *pattern = (struct bpe_pattern){0};
}

enum sotto_status pattern_next(const struct bpe_pattern *pattern, struct bpe_matcher **matcher,
                               struct pattern_search *s, bool *found, size_t *start, size_t *end)
{
    for (*found = false; s->from <= s->size;) {
        if (pattern->literal) {
            const char *at =
                memmem(s->text + s->from, s->size - s->from, pattern->literal, pattern->size);
            *found = at != NULL;
            *start = at ? (size_t)(at - s->text) : 0;
            *end = *start + pattern->size;
        } else {
            TRY(bpe_regex_find(matcher, pattern->code, s->text, s->size, s->from, found, start,
                               end));
        }
        if (!*found)
            return SOTTO_OK;
        const bool repeated = *start == *end && s->last == *end + 1;
        s->from = *end;
        s->last = *end + 1;
        if (!repeated)
            return SOTTO_OK;
        int length = 1; /* the search continues after the next character */
        if (*end < s->size)
            bpe_utf8_code((const uint8_t *)s->text + *end, &length);
        s->from += (size_t)length;
        *found = false;
    }
    return SOTTO_OK;
}
