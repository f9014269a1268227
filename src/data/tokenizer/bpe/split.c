/* Splitting text into words: GPT-2's pattern by hand, digits, a leading space; other patterns are
 * in regex.c.
 *
 * GPT-2's pattern distinguishes characters by class only, and every character is in exactly one of
 * four classes, so the alternatives become: a contraction; else a space and the following run of
 * one class; else a run of one class; else white space, without its last character if a word
 * follows. */
#include "data/tokenizer/bpe/bpe.h"

#include <string.h>

const char bpe_gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static inline unsigned class_at(const struct bpe_unicode *unicode, const uint8_t *p, int *length)
{
    return bpe_look_up(unicode, bpe_utf8_code(p, length)) & BPE_CLASS_MASK;
}

/* Returns the bytes of the run of `class` at `p`. */
static size_t run_length(const struct bpe_unicode *unicode, const uint8_t *p, size_t n,
                         unsigned class)
{
    size_t i = 0;
    int length;
    while (i < n && class_at(unicode, p + i, &length) == class)
        i += (size_t)length;
    return i;
}

static size_t contraction_length(const uint8_t *p, size_t n)
{
    if (n >= 2 && (p[1] == 's' || p[1] == 't' || p[1] == 'm' || p[1] == 'd'))
        return 2;
    if (n >= 3 && ((p[1] == 'r' && p[2] == 'e') || (p[1] == 'v' && p[2] == 'e') ||
                   (p[1] == 'l' && p[2] == 'l')))
        return 3;
    return 0;
}

static size_t white_space_length(const struct bpe_unicode *unicode, const uint8_t *p, size_t n)
{
    size_t i = 0, last = 0;
    int length;
    while (i < n && class_at(unicode, p + i, &length) == BPE_SPACE) {
        last = i;
        i += (size_t)length;
    }
    return i == n || last == 0 ? i : last; /* \s+(?!\S), else \s+ */
}

size_t bpe_gpt2_next(const struct bpe_unicode *unicode, const char *text, size_t size)
{
    const uint8_t *p = (const uint8_t *)text;
    int length;
    if (p[0] == '\'') {
        size_t n = contraction_length(p, size); /* 's|'t|'re|'ve|'m|'ll|'d */
        if (n)
            return n;
    }
    size_t space = p[0] == ' ' && size > 1;
    unsigned class = class_at(unicode, p + space, &length);
    if (class != BPE_SPACE) /*  ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+ */
        return space + run_length(unicode, p + space, size - space, class);
    return white_space_length(unicode, p, size);
}

/* Splits into numbers (with `each` one by one) and text between numbers. */
static enum sotto_status split_digits(struct bpe_work *work, int stage, const char *text,
                                      size_t size)
{
    const struct bpe_unicode *unicode = work->unicode;
    const uint8_t *p = (const uint8_t *)text;
    bool each = work->split->stage[stage].each;
    size_t from = 0;
    bool was_number = false;
    for (size_t i = 0; i < size;) {
        int length;
        bool number = class_at(unicode, p + i, &length) == BPE_NUMBER;
        if (i > from && (number != was_number || (number && each))) {
            TRY(bpe_split_run(work, stage + 1, text + from, i - from));
            from = i;
        }
        was_number = number;
        i += (size_t)length;
    }
    return bpe_split_run(work, stage + 1, text + from, size - from);
}

/* Splits into matches of the pattern and the text between them. */
static enum sotto_status split_regex(struct bpe_work *work, int stage, const char *text,
                                     size_t size)
{
    const struct bpe_stage *how = &work->split->stage[stage];
    size_t done = 0, from = 0, start, end;
    while (from <= size) {
        bool found;
        TRY(bpe_regex_find(&work->matcher, how->code, text, size, from, &found, &start, &end));
        if (!found)
            break;
        if (!how->drop_gap)
            TRY(bpe_split_run(work, stage + 1, text + done, start - done));
        if (!how->drop_match)
            TRY(bpe_split_run(work, stage + 1, text + start, end - start));
        done = from = end;
        if (start ==
            end) { /* an empty match splits; the search continues after the next character */
            int length = 1;
            if (end < size)
                bpe_utf8_code((const uint8_t *)text + end, &length);
            from += (size_t)length;
        }
    }
    return how->drop_gap ? SOTTO_OK : bpe_split_run(work, stage + 1, text + done, size - done);
}

static enum sotto_status add_prefix(struct bpe_work *work, int stage, const char *text, size_t size)
{
    bool glued = work->glued;
    work->glued = false;
    if (text[0] == ' ' || glued)
        return bpe_split_run(work, stage + 1, text, size);
    struct bpe_buffer *copy = &work->prefixed;
    copy->count = 0;
    TRY(bpe_buffer_add(copy, " ", 1));
    TRY(bpe_buffer_add(copy, text, size));
    return bpe_split_run(work, stage + 1, copy->data, copy->count);
}

enum sotto_status bpe_split_run(struct bpe_work *work, int stage, const char *text, size_t size)
{
    const struct bpe_split *split = work->split;
    if (size == 0)
        return SOTTO_OK;
    if (stage == split->n_stage)
        return bpe_word(work, text, size);
    switch (split->stage[stage].kind) {
    case BPE_STAGE_GPT2:
        for (size_t n; size > 0; text += n, size -= n) {
            n = bpe_gpt2_next(work->unicode, text, size);
            TRY(bpe_split_run(work, stage + 1, text, n));
        }
        return SOTTO_OK;
    case BPE_STAGE_REGEX:
        return split_regex(work, stage, text, size);
    case BPE_STAGE_DIGITS:
        return split_digits(work, stage, text, size);
    case BPE_STAGE_PREFIX:
        return add_prefix(work, stage, text, size);
    }
    return SOTTO_OK;
}

void bpe_split_free(struct bpe_split *split)
{
    for (int i = 0; i < split->n_stage; i++)
        bpe_regex_free(split->stage[i].code);
    split->n_stage = 0;
}
