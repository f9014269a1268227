/* The steps of a decoder, each from a list of tokens to a list of tokens. Bytes of <0xXX> that are
 * not UTF-8 stay bytes, where `tokenizers` has U+FFFD. */
#define _GNU_SOURCE /* memmem */
#include "data/tokenizer/decoder/decoder.h"

#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/bpe/pattern.h"

static enum sotto_status close_token(struct decode_list *list)
{
    if (list->count == list->room) {
        const size_t room = list->room * 2 + 256;
        size_t *end = realloc(list->end, room * sizeof *end);
        if (!end)
            return fail(SOTTO_ENOMEM, "no memory for %zu tokens", room);
        list->end = end;
        list->room = room;
    }
    list->end[list->count++] = list->text.count;
    return SOTTO_OK;
}

enum sotto_status decode_list_add(struct decode_list *list, const char *text, size_t size)
{
    TRY(bpe_buffer_add(&list->text, text, size));
    return close_token(list);
}

void decode_list_free(struct decode_list *list)
{
    free(list->text.data);
    free(list->end);
}

/* A step at one token. */
struct decode_place {
    const struct decode_step *step;
    struct bpe_matcher **matcher;
    bool first;
};

static enum sotto_status replace_in_token(const struct decode_place *p, const char *text,
                                          size_t size, struct bpe_buffer *out)
{
    const struct decode_step *step = p->step;
    struct pattern_search search = {.text = text, .size = size};
    size_t done = 0, start, end;
    for (bool found = size > 0; found;) {
        TRY(pattern_next(&step->pattern, p->matcher, &search, &found, &start, &end));
        if (!found)
            break;
        TRY(bpe_buffer_add(out, text + done, start - done));
        TRY(bpe_buffer_add(out, step->content, step->content_size));
        done = end;
    }
    return bpe_buffer_add(out, text + done, size - done);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* True for a token <0xXX>, of `*byte`. */
static bool fallback_byte(const char *text, size_t size, char *byte)
{
    if (size != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return false;
    const int high = text[3] == '+' ? 0 : hex_digit(text[3]); /* Rust's numbers may have a sign */
    const int low = hex_digit(text[4]);
    *byte = (char)((unsigned)high << 4 | (unsigned)low);
    return high >= 0 && low >= 0;
}

/* Returns the bytes of the character at `text`; a byte that is not UTF-8 is a character. */
static size_t character_at(const char *text, size_t size, uint32_t *code)
{
    int length = bpe_utf8_length((const uint8_t *)text, size);
    *code = UINT32_MAX;
    if (length)
        *code = bpe_utf8_code((const uint8_t *)text, &length);
    return length ? (size_t)length : 1;
}

static size_t last_character(const char *text, size_t size, uint32_t *code)
{
    size_t n = 1;
    while (n < size && n < 4 && ((uint8_t)text[size - n] & 0xc0) == 0x80)
        n++;
    if (character_at(text + size - n, n, code) == n)
        return n;
    *code = UINT32_MAX;
    return 1;
}

static enum sotto_status strip_token(const struct decode_step *step, const char *text, size_t size,
                                     struct bpe_buffer *out)
{
    uint32_t code;
    for (size_t i = 0; i < step->start && size > 0; i++) {
        const size_t n = character_at(text, size, &code);
        if (code != step->character)
            break;
        text += n;
        size -= n;
    }
    for (size_t i = 0; i < step->stop && size > 0; i++) {
        const size_t n = last_character(text, size, &code);
        if (code != step->character)
            break;
        size -= n;
    }
    return bpe_buffer_add(out, text, size);
}

static enum sotto_status blanks_for_marks(const struct decode_place *p, const char *text,
                                          size_t size, struct bpe_buffer *out)
{
    uint32_t code;
    for (size_t i = 0, n; i < size; i += n) {
        n = character_at(text + i, size - i, &code);
        if (code != p->step->character)
            TRY(bpe_buffer_add(out, text + i, n));
        else if (!p->first || !p->step->drop_first)
            TRY(bpe_buffer_add(out, " ", 1));
    }
    return SOTTO_OK;
}

/* Replaces a text, from left to right, in the bytes of `out` from `from` on; the replacement is not
 * longer. */
static void shorten_text(struct bpe_buffer *out, size_t from, const char *old, const char *instead)
{
    const size_t n_old = strlen(old), n_new = strlen(instead);
    char *write = out->data + from;
    const char *read = write, *end = out->data + out->count;
    for (;;) {
        const char *at = memmem(read, (size_t)(end - read), old, n_old);
        const size_t n = (size_t)((at ? at : end) - read);
        memmove(write, read, n);
        write += n;
        if (!at)
            break;
        memcpy(write, instead, n_new);
        write += n_new;
        read = at + n_old;
    }
    out->count = (size_t)(write - out->data);
}

static enum sotto_status join_words(const struct decode_place *p, const char *text, size_t size,
                                    struct bpe_buffer *out)
{
    static const char *const cleanups[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    const struct decode_step *step = p->step;
    const size_t from = out->count;
    const bool joins =
        size >= step->content_size && memcmp(text, step->content, step->content_size) == 0;
    if (!p->first) {
        if (joins) {
            text += step->content_size;
            size -= step->content_size;
        } else {
            TRY(bpe_buffer_add(out, " ", 1));
        }
    }
    TRY(bpe_buffer_add(out, text, size));
    for (size_t i = 0; step->cleanup && i < sizeof cleanups / sizeof *cleanups; i++)
        shorten_text(out, from, cleanups[i][0], cleanups[i][1]);
    return SOTTO_OK;
}

static enum sotto_status decode_token(const struct decode_place *p, const char *text, size_t size,
                                      struct bpe_buffer *out)
{
    switch (p->step->kind) {
    case DECODE_REPLACE:
        return replace_in_token(p, text, size, out);
    case DECODE_BYTE_FALLBACK:
        return bpe_buffer_add(out, text, size);
    case DECODE_STRIP:
        return strip_token(p->step, text, size, out);
    case DECODE_MARK:
        return blanks_for_marks(p, text, size, out);
    case DECODE_WORDPIECE:
        return join_words(p, text, size, out);
    case DECODE_FUSE:
        break;
    }
    return SOTTO_OK;
}

/* Makes one token of the tokens from `first` on, if there are two or more and their bytes are
 * UTF-8. */
static void join_bytes(struct decode_list *list, size_t first)
{
    const size_t from = first ? list->end[first - 1] : 0, size = list->text.count - from;
    const uint8_t *bytes = (const uint8_t *)list->text.data + from;
    if (list->count > first + 1 && bpe_utf8_prefix(bytes, size) == size) {
        list->end[first] = list->text.count;
        list->count = first + 1;
    }
}

static enum sotto_status decode_step_run(const struct decode_step *step,
                                         struct bpe_matcher **matcher,
                                         const struct decode_list *from, struct decode_list *to)
{
    struct decode_place place = {step, matcher, true};
    const bool bytes = step->kind == DECODE_BYTE_FALLBACK;
    size_t run = 0; /* tokens of bytes at the end of `to` */
    to->text.count = to->count = 0;
    TRY(bpe_buffer_reserve(&to->text, from->text.count + 64));
    for (size_t i = 0, at = 0; i < from->count; at = from->end[i++]) {
        const char *text = from->text.data + at;
        const size_t size = from->end[i] - at;
        char byte;
        const bool is_byte = bytes && fallback_byte(text, size, &byte);
        if (run > 0 && !is_byte)
            join_bytes(to, to->count - run);
        run = is_byte ? run + 1 : 0;
        TRY(is_byte ? bpe_buffer_add(&to->text, &byte, 1)
                    : decode_token(&place, text, size, &to->text));
        TRY(close_token(to));
        place.first = false;
    }
    if (run > 0)
        join_bytes(to, to->count - run);
    return SOTTO_OK;
}

static void swap_lists(struct decode_list list[2])
{
    const struct decode_list first = list[0];
    list[0] = list[1];
    list[1] = first;
}

enum sotto_status token_decoder_run(const struct token_decoder *decoder, struct decode_list list[2])
{
    enum sotto_status st = SOTTO_OK;
    struct bpe_matcher *matcher = NULL;
    for (int i = 0; i < decoder->count && st == SOTTO_OK; i++) {
        if (decoder->step[i].kind == DECODE_FUSE) {
            if (list[0].count > 1) {
                list[0].end[0] = list[0].text.count;
                list[0].count = 1;
            }
            continue;
        }
        st = decode_step_run(&decoder->step[i], &matcher, &list[0], &list[1]);
        swap_lists(list);
    }
    bpe_matcher_free(matcher);
    return st;
}

void token_decoder_free(struct token_decoder *decoder)
{
    for (int i = 0; i < decoder->count; i++) {
        pattern_free(&decoder->step[i].pattern);
        free(decoder->step[i].content);
    }
    decoder->count = 0;
}
