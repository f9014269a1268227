/* Canonical composition (NFC, Unicode annex 15) and the other forms of valid UTF-8.
 *
 * Most text is in NFC already, so only stretches that could change are decomposed: a run of
 * characters that are not inert, with the character before. Decomposing, ordering and composing are
 * linear in the run: utf8proc orders marks by exchanging neighbours, which is quadratic for a long
 * run of marks, so marks are ordered here. */
#include "data/tokenizer/bpe/bpe.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define NFC_OPTIONS (UTF8PROC_STABLE | UTF8PROC_COMPOSE)

static const utf8proc_option_t form_options[] = {[BPE_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
                                                 [BPE_NFKC] = NFC_OPTIONS | UTF8PROC_COMPAT,
                                                 [BPE_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                              UTF8PROC_COMPAT};

struct nfc_run { /* decomposed code points */
    utf8proc_int32_t *code, *copy;
    size_t count, room;
};

static enum sotto_status run_reserve(struct nfc_run *run, size_t more)
{
    if (run->count + more <= run->room)
        return SOTTO_OK;
    size_t room = (run->count + more) * 2;
    utf8proc_int32_t *code = realloc(run->code, room * sizeof *code);
    if (code)
        run->code = code;
    utf8proc_int32_t *copy = realloc(run->copy, room * sizeof *copy);
    if (copy)
        run->copy = copy;
    if (!code || !copy)
        return fail(SOTTO_ENOMEM, "no memory to normalize %zu characters", room);
    run->room = room;
    return SOTTO_OK;
}

static unsigned combining_class(utf8proc_int32_t c)
{
    unsigned class = (unsigned)utf8proc_get_property(c)->combining_class;
    return class && bpe_is_late((uint32_t)c) ? 0 : class;
}

/* Sorts marks by combining class, in stable order. */
static void order_marks(utf8proc_int32_t *code, size_t n, utf8proc_int32_t *copy)
{
    if (n < 16) {
        for (size_t i = 1; i < n; i++) {
            utf8proc_int32_t c = code[i];
            unsigned class = combining_class(c);
            size_t k = i;
            for (; k > 0 && combining_class(code[k - 1]) > class; k--)
                code[k] = code[k - 1];
            code[k] = c;
        }
        return;
    }
    size_t start[257] = {0};
    for (size_t i = 0; i < n; i++)
        start[(combining_class(code[i]) & 255) + 1]++;
    for (int k = 1; k < 257; k++)
        start[k] += start[k - 1];
    for (size_t i = 0; i < n; i++)
        copy[start[combining_class(code[i]) & 255]++] = code[i];
    memcpy(code, copy, n * sizeof *code);
}

static enum sotto_status normalize_run(struct nfc_run *run, utf8proc_option_t options,
                                       const char *text, size_t size, struct bpe_buffer *out)
{
    run->count = 0;
    for (size_t i = 0; i < size;) {
        int length, boundary = 0;
        uint32_t c = bpe_utf8_code((const uint8_t *)text + i, &length);
        i += (size_t)length;
        TRY(run_reserve(run, 32));
        utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)c, run->code + run->count,
                                                     32, options, &boundary);
        if (n < 0 || n > 32)
            return fail(SOTTO_EFORMAT, "cannot normalize U+%04X", (unsigned)c);
        run->count += (size_t)n;
    }
    for (size_t i = 0; i < run->count;) {
        size_t from = i;
        while (i < run->count && combining_class(run->code[i]) != 0)
            i++;
        order_marks(run->code + from, i - from, run->copy);
        i += i == from;
    }
    utf8proc_ssize_t n = (utf8proc_ssize_t)run->count;
    if (options & UTF8PROC_COMPOSE)
        n = utf8proc_normalize_utf32(run->code, n, options);
    if (n < 0)
        return fail(SOTTO_EFORMAT, "cannot normalize: %s", utf8proc_errmsg(n));
    TRY(bpe_buffer_reserve(out, (size_t)n * 4));
    for (utf8proc_ssize_t i = 0; i < n; i++)
        out->count +=
            (size_t)utf8proc_encode_char(run->code[i], (utf8proc_uint8_t *)out->data + out->count);
    return SOTTO_OK;
}

/* Returns the bytes up to the first character that is not inert; `*last`: start of the character
 * before. */
static size_t inert_prefix(const struct bpe_unicode *unicode, const char *text, size_t size,
                           size_t *last)
{
    const uint8_t *p = (const uint8_t *)text;
    size_t i = 0;
    *last = 0;
    while (i < size) {
        int length = 1 + (p[i] >= 0xc0); /* below 0x300: one or two bytes, the first below 0xcc */
        if (p[i] >= 0xcc && !(bpe_look_up(unicode, bpe_utf8_code(p + i, &length)) & BPE_INERT))
            break;
        *last = i;
        i += (size_t)length;
    }
    return i;
}

enum sotto_status bpe_nfc(const struct bpe_unicode *unicode, const char *text, size_t size,
                          struct bpe_buffer *out, bool *same)
{
    enum sotto_status st = SOTTO_OK;
    struct nfc_run run = {0};
    size_t last, i = inert_prefix(unicode, text, size, &last);
    *same = i == size;
    if (*same)
        return SOTTO_OK;
    out->count = 0;
    size_t from = 0; /* start of the text that is not in `out` yet */
    while (i < size) {
        TRY_DONE(bpe_buffer_add(out, text + from, last - from));
        int length;
        while (
            i < size &&
            !(bpe_look_up(unicode, bpe_utf8_code((const uint8_t *)text + i, &length)) & BPE_INERT))
            i += (size_t)length;
        TRY_DONE(normalize_run(&run, NFC_OPTIONS, text + last, i - last, out));
        from = i;
        i += inert_prefix(unicode, text + from, size - from, &last);
        last += from;
    }
    TRY_DONE(bpe_buffer_add(out, text + from, size - from));
done:
    free(run.code);
    free(run.copy);
    return st;
}

/* True if `tokenizers` takes the character as plain in every form: no mark, no parts. */
static bool is_plain(uint32_t c)
{
    return bpe_is_late(c) || bpe_is_late_compatible(c);
}

/* Normalizes run by run: a run has an ASCII character, if one is before, and the characters up to
 * the next ASCII or plain character. */
enum sotto_status bpe_normal_form(enum bpe_form form, const char *text, size_t size,
                                  struct bpe_buffer *out)
{
    enum sotto_status st = SOTTO_OK;
    struct nfc_run run = {0};
    const uint8_t *p = (const uint8_t *)text;
    size_t from = 0; /* start of the text that is not in `out` yet */
    int length;
    out->count = 0;
    for (size_t i = 0; i < size;) {
        while (i < size && (p[i] < 0x80 || is_plain(bpe_utf8_code(p + i, &length))))
            i += p[i] < 0x80 ? 1 : (size_t)length;
        if (i == size)
            break;
        const size_t start = i > from && p[i - 1] < 0x80 ? i - 1 : i;
        while (i < size && p[i] >= 0x80 && !is_plain(bpe_utf8_code(p + i, &length)))
            i += (size_t)length;
        TRY_DONE(bpe_buffer_add(out, text + from, start - from));
        TRY_DONE(normalize_run(&run, form_options[form], text + start, i - start, out));
        from = i;
    }
    TRY_DONE(bpe_buffer_add(out, text + from, size - from));
done:
    free(run.code);
    free(run.copy);
    return st;
}
