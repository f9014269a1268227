/* Splitting text into words by a chain of stages: patterns, classes of characters, digits, the
 * character for a blank (Metaspace), a leading space. */
#include "data/tokenizer/bpe/bpe.h"

#include <string.h>

#include "data/tokenizer/bpe/pattern.h"

/* A stage while the stage cuts a text: the piece that may still grow. */
struct stage_cut {
    struct bpe_work *work;
    int stage;
    enum bpe_behavior behavior;
    const char *text;
    size_t from, end; /* of the piece */
    bool open;        /* there is a piece */
    bool match;       /* the latest part of the piece was a match */
};

static enum sotto_status flush_piece(struct stage_cut *c)
{
    const bool open = c->open;
    c->open = false;
    return open ? bpe_split_run(c->work, c->stage + 1, c->text + c->from, c->end - c->from)
                : SOTTO_OK;
}

/* Takes the next part of the text: a match, or text between matches. */
static enum sotto_status cut_part(struct stage_cut *c, size_t start, size_t end, bool match)
{
    bool joins = false;
    switch (c->behavior) {
    case BPE_REMOVED:
        if (match)
            return SOTTO_OK;
        break;
    case BPE_ISOLATED:
        break;
    case BPE_CONTIGUOUS:
        joins = c->open && match == c->match;
        break;
    case BPE_MERGED_WITH_PREVIOUS:
        joins = c->open && match && !c->match;
        break;
    case BPE_MERGED_WITH_NEXT:
        joins = c->open && !match && c->match;
        break;
    }
    c->match = match;
    if (joins) {
        c->end = end;
        return SOTTO_OK;
    }
    TRY(flush_piece(c));
    c->from = start;
    c->end = end;
    c->open = true;
    return SOTTO_OK;
}

static enum sotto_status split_pattern(struct bpe_work *work, int stage, const char *text,
                                       size_t size)
{
    const struct bpe_stage *how = &work->split->stage[stage];
    struct stage_cut cut = {work, stage, how->behavior, text, 0, 0, false, false};
    struct pattern_search search = {.text = text, .size = size};
    size_t done = 0, start, end;
    for (;;) {
        bool found;
        TRY(pattern_next(&how->pattern, &work->matcher, &search, &found, &start, &end));
        if (!found)
            break;
        if (start > done)
            TRY(cut_part(&cut, done, start, how->invert));
        TRY(cut_part(&cut, start, end, !how->invert));
        done = end;
    }
    if (done < size)
        TRY(cut_part(&cut, done, size, how->invert));
    return flush_piece(&cut);
}

static enum sotto_status split_class(struct bpe_work *work, int stage, const char *text,
                                     size_t size)
{
    const struct bpe_stage *how = &work->split->stage[stage];
    struct stage_cut cut = {work, stage, how->behavior, text, 0, 0, false, false};
    size_t done = 0;
    for (size_t i = 0; i < size;) {
        int length;
        const uint32_t code = bpe_utf8_code((const uint8_t *)text + i, &length);
        const size_t next = i + (size_t)length;
        if (how->in_class(work->unicode, code)) {
            if (i > done)
                TRY(cut_part(&cut, done, i, false));
            TRY(cut_part(&cut, i, next, true));
            done = next;
        }
        i = next;
    }
    if (done < size)
        TRY(cut_part(&cut, done, size, false));
    return flush_piece(&cut);
}

/* Writes `text` with the mark for each blank. */
static enum sotto_status put_marks(struct bpe_buffer *out, const char *mark, const char *text,
                                   size_t size)
{
    const size_t n_mark = strlen(mark);
    TRY(bpe_buffer_reserve(out, size + 64));
    while (size > 0) {
        const char *blank = memchr(text, ' ', size);
        const size_t n = blank ? (size_t)(blank - text) : size;
        TRY(bpe_buffer_add(out, text, n));
        if (blank)
            TRY(bpe_buffer_add(out, mark, n_mark));
        text += n + (blank != NULL);
        size -= n + (blank != NULL);
    }
    return SOTTO_OK;
}

static enum sotto_status split_mark(struct bpe_work *work, int stage, const char *text, size_t size)
{
    const struct bpe_stage *how = &work->split->stage[stage];
    struct bpe_buffer *copy = &work->stage_text[stage];
    const size_t n = strlen(how->mark);
    const bool first = work->first && text >= work->first && text < work->first + work->first_size;
    const bool has = text[0] == ' ' || (size >= n && memcmp(text, how->mark, n) == 0);
    const bool wanted = how->prefix == BPE_MARK_ALWAYS || (how->prefix == BPE_MARK_FIRST && first);
    copy->count = 0;
    if (!has && wanted && text != work->joined)
        TRY(bpe_buffer_add(copy, how->mark, n));
    TRY(put_marks(copy, how->mark, text, size));
    text = copy->data;
    size = copy->count;
    if (first)
        work->first = text;
    if (how->keep)
        return bpe_split_run(work, stage + 1, text, size);
    while (size > 0) { /* each mark begins a word */
        size_t end = n < size && memcmp(text, how->mark, n) == 0 ? n : 1;
        for (const char *at; end < size; end++) {
            at = memchr(text + end, how->mark[0], size - end);
            end = at ? (size_t)(at - text) : size;
            if (end + n <= size && memcmp(text + end, how->mark, n) == 0)
                break;
        }
        end = end < size ? end : size;
        TRY(bpe_split_run(work, stage + 1, text, end));
        text += end;
        size -= end;
    }
    return SOTTO_OK;
}

static enum sotto_status split_letters(struct bpe_work *work, int stage, const char *text,
                                       size_t size)
{
    struct bpe_buffer *copy = &work->stage_text[stage];
    copy->count = 0;
    TRY(bpe_buffer_reserve(copy, 2 * size));
    for (size_t i = 0; i < size; i++)
        copy->count += (size_t)bpe_letter_utf8((uint8_t)text[i], copy->data + copy->count);
    return bpe_split_run(work, stage + 1, copy->data, copy->count);
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
        const uint32_t code = bpe_utf8_code(p + i, &length);
        const bool number = (bpe_look_up(unicode, code) & BPE_CLASS_MASK) == BPE_NUMBER ||
                            (code >= 0x11de0 && bpe_is_new_number(code));
        if (i > from && (number != was_number || (number && each))) {
            TRY(bpe_split_run(work, stage + 1, text + from, i - from));
            from = i;
        }
        was_number = number;
        i += (size_t)length;
    }
    return bpe_split_run(work, stage + 1, text + from, size - from);
}

static enum sotto_status add_prefix(struct bpe_work *work, int stage, const char *text, size_t size)
{
    if (text[0] == ' ' || text == work->joined)
        return bpe_split_run(work, stage + 1, text, size);
    struct bpe_buffer *copy = &work->stage_text[stage];
    copy->count = 0;
    TRY(bpe_buffer_add(copy, " ", 1));
    TRY(bpe_buffer_add(copy, text, size));
    if (text == work->first)
        work->first = copy->data;
    return bpe_split_run(work, stage + 1, copy->data, copy->count);
}

/* Takes a word after the last stage. */
static enum sotto_status take_word(struct bpe_work *work, const char *text, size_t size)
{
    if (work->model->cut_marks)
        return bpe_word_parts(work, text, size);
    if (!work->split->letters)
        return bpe_word(work, text, size);
    struct bpe_buffer *bytes = &work->stage_text[BPE_MAX_STAGES];
    size_t n = 0;
    TRY(bpe_buffer_reserve(bytes, size));
    if (!bpe_letters_to_bytes(text, size, bytes->data, &n))
        return fail(SOTTO_EFORMAT, "a stage after ByteLevel made a character that is no byte");
    return bpe_word(work, bytes->data, n);
}

enum sotto_status bpe_split_run(struct bpe_work *work, int stage, const char *text, size_t size)
{
    const struct bpe_split *split = work->split;
    if (size == 0)
        return SOTTO_OK;
    if (stage == split->n_stage)
        return take_word(work, text, size);
    switch (split->stage[stage].kind) {
    case BPE_STAGE_GPT2:
        for (size_t n; size > 0; text += n, size -= n) {
            n = bpe_gpt2_next(work->unicode, text, size);
            TRY(bpe_split_run(work, stage + 1, text, n));
        }
        return SOTTO_OK;
    case BPE_STAGE_PATTERN:
        return split_pattern(work, stage, text, size);
    case BPE_STAGE_CLASS:
        return split_class(work, stage, text, size);
    case BPE_STAGE_DIGITS:
        return split_digits(work, stage, text, size);
    case BPE_STAGE_PREFIX:
        return add_prefix(work, stage, text, size);
    case BPE_STAGE_LETTERS:
        return split_letters(work, stage, text, size);
    case BPE_STAGE_MARK:
        return split_mark(work, stage, text, size);
    }
    return SOTTO_OK;
}

void bpe_split_free(struct bpe_split *split)
{
    for (int i = 0; i < split->n_stage; i++)
        pattern_free(&split->stage[i].pattern);
    split->n_stage = 0;
}
