/* Runs the steps of a normalizer one after another, between two buffers. */
#include "data/tokenizer/normalizer/normalizer.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "data/tokenizer/bpe/pattern.h"

/* Inputs that the steps share, and the text between two steps. */
struct normal_run {
    const struct bpe_unicode *unicode;
    struct bpe_matcher **matcher;
    struct bpe_buffer *buffer; /* (2) */
    int next;                  /* the buffer that does not have the text */
    bool glued;
    const char *text;
    size_t size;
    size_t front; /* bytes of `text` that the first character became */
};

static struct bpe_buffer *clear_next(struct normal_run *r)
{
    struct bpe_buffer *out = &r->buffer[r->next];
    out->count = 0;
    return out;
}

static void take_next(struct normal_run *r)
{
    r->text = r->buffer[r->next].data;
    r->size = r->buffer[r->next].count;
    r->next = !r->next;
}

static enum sotto_status map_text(struct normal_run *r, normal_map *map)
{
    struct bpe_buffer *out = clear_next(r);
    size_t front = 0;
    TRY(bpe_buffer_reserve(out, r->size + 64));
    for (size_t i = 0; i < r->size;) {
        int length;
        uint32_t to[NORMAL_MAPPED];
        const uint32_t code = bpe_utf8_code((const uint8_t *)r->text + i, &length);
        const int n = map(code, to);
        TRY(bpe_buffer_reserve(out, NORMAL_MAPPED * 4));
        for (int k = 0; k < n; k++) {
            if (to[k] < 0x80)
                out->data[out->count++] = (char)to[k];
            else
                out->count += (size_t)utf8proc_encode_char(
                    (utf8proc_int32_t)to[k], (utf8proc_uint8_t *)out->data + out->count);
        }
        if (i < r->front)
            front = out->count;
        i += (size_t)length;
    }
    r->front = front;
    take_next(r);
    return SOTTO_OK;
}

/* A replacement has the place of the last character that the replacement replaces. */
static enum sotto_status replace_text(struct normal_run *r, const struct normal_step *step)
{
    struct bpe_buffer *out = clear_next(r);
    struct pattern_search search = {.text = r->text, .size = r->size};
    size_t done = 0, start, end, front = 0;
    bool found = r->size > 0;
    TRY(bpe_buffer_reserve(out, r->size + 64));
    while (found) {
        TRY(pattern_next(&step->pattern, r->matcher, &search, &found, &start, &end));
        if (!found)
            break;
        TRY(bpe_buffer_add(out, r->text + done, start - done));
        if (done < r->front)
            front = start < r->front ? out->count : out->count - (start - r->front);
        TRY(bpe_buffer_add(out, step->content, step->content_size));
        if (end <= r->front)
            front = out->count;
        done = end;
    }
    if (done < r->front)
        front = out->count + (r->front - done);
    TRY(bpe_buffer_add(out, r->text + done, r->size - done));
    r->front = front;
    take_next(r);
    return SOTTO_OK;
}

static enum sotto_status prepend_text(struct normal_run *r, const struct normal_step *step)
{
    struct bpe_buffer *out = clear_next(r);
    if (r->size == 0 || r->glued)
        return SOTTO_OK;
    TRY(bpe_buffer_add(out, step->content, step->content_size));
    TRY(bpe_buffer_add(out, r->text, r->size));
    r->front += step->content_size;
    take_next(r);
    return SOTTO_OK;
}

static bool space_at(const char *text, int *length)
{
    return bpe_is_white_space(bpe_utf8_code((const uint8_t *)text, length));
}

static void strip_text(struct normal_run *r, const struct normal_step *step)
{
    int length;
    while (step->left && r->size > 0 && space_at(r->text, &length)) {
        r->text += length;
        r->size -= (size_t)length;
        r->front -= r->front < (size_t)length ? r->front : (size_t)length;
    }
    while (step->right && r->size > 0) {
        size_t last = r->size - 1;
        while (last > 0 && ((uint8_t)r->text[last] & 0xc0) == 0x80)
            last--;
        if (!space_at(r->text + last, &length))
            break;
        r->size = last;
    }
}

static enum sotto_status change_form(struct normal_run *r, enum bpe_form form)
{
    TRY(bpe_normal_form(form, r->text, r->front, &r->buffer[r->next]));
    const size_t front = r->buffer[r->next].count;
    TRY(bpe_normal_form(form, r->text, r->size, &r->buffer[r->next]));
    r->front = front;
    take_next(r);
    return SOTTO_OK;
}

static enum sotto_status bert_text(struct normal_run *r, const struct normal_step *step)
{
    if (step->clean)
        TRY(map_text(r, normal_clean));
    if (step->chinese)
        TRY(map_text(r, normal_part_chinese));
    if (step->accents) {
        TRY(change_form(r, BPE_NFD));
        TRY(map_text(r, normal_drop_accents));
    }
    return step->lowercase ? map_text(r, normal_lowercase) : SOTTO_OK;
}

static enum sotto_status run_normal_step(struct normal_run *r, const struct normal_step *step)
{
    bool same;
    switch (step->kind) {
    case NORMAL_NFC:
        TRY(bpe_nfc(r->unicode, r->text, r->size, &r->buffer[r->next], &same));
        if (!same)
            take_next(r);
        return SOTTO_OK;
    case NORMAL_FORM:
        return change_form(r, step->form);
    case NORMAL_REPLACE:
        return replace_text(r, step);
    case NORMAL_PREPEND:
        return prepend_text(r, step);
    case NORMAL_STRIP:
        strip_text(r, step);
        return SOTTO_OK;
    case NORMAL_MAP:
        return map_text(r, step->map);
    case NORMAL_PRECOMPILED:
        TRY(precompiled_run(step->precompiled, r->text, r->size, clear_next(r), &r->front));
        take_next(r);
        return SOTTO_OK;
    case NORMAL_BERT:
        return bert_text(r, step);
    }
    return SOTTO_OK;
}

enum sotto_status normalizer_run(const struct normalizer *normalizer,
                                 const struct bpe_unicode *unicode, struct bpe_matcher **matcher,
                                 struct bpe_buffer buffer[2], bool glued, const char **text,
                                 size_t *size, size_t *front)
{
    int length = 0;
    if (*size)
        bpe_utf8_code((const uint8_t *)*text, &length);
    struct normal_run r = {unicode, matcher, buffer, 0, glued, *text, *size, (size_t)length};
    for (int i = 0; i < normalizer->count; i++)
        TRY(run_normal_step(&r, &normalizer->step[i]));
    *text = r.text;
    *size = r.size;
    *front = r.front;
    return SOTTO_OK;
}

bool normalizer_changes(const struct normalizer *normalizer)
{
    for (int i = 0; i < normalizer->count; i++)
        if (normalizer->step[i].kind != NORMAL_NFC)
            return true;
    return false;
}

void normalizer_free(struct normalizer *normalizer)
{
    for (int i = 0; i < normalizer->count; i++) {
        pattern_free(&normalizer->step[i].pattern);
        free(normalizer->step[i].content);
        precompiled_free(normalizer->step[i].precompiled);
    }
    normalizer->count = 0;
}
