/* The table of a SentencePiece model (`precompiled_charsmap`): a trie from texts to their
 * replacements, as a double array.
 *
 * `tokenizers` looks a grapheme cluster of less than 6 bytes up as a whole, else each character by
 * itself. The shortest entry that begins a text counts, and its replacement replaces the whole
 * text: "a" with two accents loses the second accent where the table has "a" with the first. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "data/tokenizer/normalizer/normalizer.h"

enum { CLUSTER = 6 }; /* bytes of the first cluster that is too long */

struct precompiled {
    uint32_t *unit; /* (n_unit) of the double array */
    size_t n_unit;
    char *text; /* replacements, each with a NUL after it; a NUL follows the last */
    size_t text_size;
    bool plain[128]; /* ASCII characters without a replacement */
};

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Returns the number of bytes at `out`, -1 for a text that is not base64. */
static long decode_base64(const char *text, size_t size, uint8_t *out)
{
    size_t n = 0;
    while (size > 0 && text[size - 1] == '=')
        size--;
    uint32_t bits = 0;
    for (size_t i = 0; i < size; i++) {
        const int value = base64_value(text[i]);
        if (value < 0)
            return -1;
        bits = bits << 6 | (uint32_t)value;
        if (i % 4 > 0)
            out[n++] = (uint8_t)(bits >> (6 - 2 * (i % 4)));
    }
    return size % 4 == 1 ? -1 : (long)n;
}

static uint32_t little_endian(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static enum sotto_status take_parts(struct precompiled *p, const uint8_t *bytes, size_t size)
{
    const size_t trie = size >= 4 ? little_endian(bytes) : 0;
    if (size < 4 || trie > size - 4 || trie % 4 != 0 || trie == 0)
        return fail(SOTTO_EFORMAT, "\"precompiled_charsmap\" of %zu bytes has no trie", size);
    p->n_unit = trie / 4;
    p->text_size = size - 4 - trie;
    p->unit = malloc(trie);
    p->text = calloc(1, p->text_size + 1);
    if (!p->unit || !p->text)
        return fail(SOTTO_ENOMEM, "no memory for a table of %zu bytes", size);
    for (size_t i = 0; i < p->n_unit; i++)
        p->unit[i] = little_endian(bytes + 4 + 4 * i);
    memcpy(p->text, bytes + 4 + trie, p->text_size);
    if (bpe_utf8_prefix((const uint8_t *)p->text, p->text_size) != p->text_size)
        return fail(SOTTO_EFORMAT, "\"precompiled_charsmap\" has a replacement that is not UTF-8");
    return SOTTO_OK;
}

void precompiled_free(struct precompiled *p)
{
    if (!p)
        return;
    free(p->unit);
    free(p->text);
    free(p);
}

static uint32_t unit_offset(uint32_t unit)
{
    return unit >> 10 << ((unit & 1u << 9) >> 6);
}

/* Returns the replacement of the shortest entry that begins `text`, NULL if there is none. */
static const char *find_replacement(const struct precompiled *p, const char *text, size_t size)
{
    size_t at = unit_offset(p->unit[0]);
    for (size_t i = 0; i < size && text[i]; i++) {
        at ^= (uint8_t)text[i];
        if (at >= p->n_unit)
            return NULL;
        const uint32_t unit = p->unit[at];
        if ((unit & (1u << 31 | 0xff)) != (uint8_t)text[i])
            return NULL;
        at ^= unit_offset(unit);
        if (at >= p->n_unit)
            return NULL;
        if (unit >> 8 & 1) {
            const size_t place = p->unit[at] & ~(1u << 31);
            const bool inside = place <= p->text_size && ((uint8_t)p->text[place] & 0xc0) != 0x80;
            return inside ? p->text + place : NULL;
        }
    }
    return NULL;
}

static void find_plain(struct precompiled *p)
{
    for (char c = 1; c < 127; c++) /* a line break joins '\r' in a cluster */
        p->plain[(uint8_t)c] = c != '\r' && c != '\n' && !find_replacement(p, &c, 1);
}

enum sotto_status precompiled_read(struct precompiled **out, const char *text, size_t size)
{
    enum sotto_status st = SOTTO_OK;
    uint8_t *bytes = malloc(size / 4 * 3 + 4);
    struct precompiled *p = calloc(1, sizeof *p);
    if (!bytes || !p) {
        st = fail(SOTTO_ENOMEM, "no memory for a table of %zu bytes", size);
    } else {
        const long n = decode_base64(text, size, bytes);
        st = n < 0 ? fail(SOTTO_EFORMAT, "\"precompiled_charsmap\" is not base64")
                   : take_parts(p, bytes, (size_t)n);
    }
    if (st == SOTTO_OK)
        find_plain(p);
    free(bytes);
    *out = p; /* the caller frees in every case */
    return st;
}

/* Returns the bytes of plain characters that are clusters by themselves: no mark follows. */
static size_t plain_length(const struct precompiled *p, const uint8_t *text, size_t size)
{
    size_t n = 0;
    while (n < size && text[n] < 0x80 && p->plain[text[n]])
        n++;
    return n - (n > 0 && n < size && text[n] >= 0x80);
}

/* Returns the end of the extended grapheme cluster at `i`. */
static size_t cluster_end(const char *text, size_t size, size_t i)
{
    int length;
    utf8proc_int32_t state = 0;
    uint32_t last = bpe_utf8_code((const uint8_t *)text + i, &length);
    for (i += (size_t)length; i < size; i += (size_t)length) {
        const uint32_t code = bpe_utf8_code((const uint8_t *)text + i, &length);
        if (last < 0x300 && code < 0x300 && last != '\r') /* no marks below U+0300 */
            break;
        const bool ends = utf8proc_grapheme_break_stateful((utf8proc_int32_t)last,
                                                           (utf8proc_int32_t)code, &state);
        if (ends && !bpe_joins_cluster(code))
            break;
        last = code;
    }
    return i;
}

/* Appends the replacement of a text, or the text itself. */
static enum sotto_status put_replaced(const char *to, const char *text, size_t size,
                                      struct bpe_buffer *out)
{
    return to ? bpe_buffer_add(out, to, strlen(to)) : bpe_buffer_add(out, text, size);
}

enum sotto_status precompiled_run(const struct precompiled *p, const char *text, size_t size,
                                  struct bpe_buffer *out, size_t *front)
{
    size_t first = *front; /* places below `first` are the front */
    TRY(bpe_buffer_reserve(out, size + 64));
    *front = 0;
    for (size_t i = 0, end; i < size; i = end) {
        end = i + (i < first ? 0 : plain_length(p, (const uint8_t *)text + i, size - i));
        if (end > i) {
            TRY(bpe_buffer_add(out, text + i, end - i));
            continue;
        }
        end = cluster_end(text, size, i);
        const char *to = end - i < CLUSTER ? find_replacement(p, text + i, end - i) : NULL;
        for (size_t part; i < end; i += part) {
            int length;
            bpe_utf8_code((const uint8_t *)text + i, &length);
            part = to ? end - i : (size_t)length;
            TRY(put_replaced(to ? to : find_replacement(p, text + i, part), text + i, part, out));
            if (i < first)
                *front = out->count;
            if (out->count == 0) /* as in `tokenizers`, the next character takes the place */
                first = i + part + 1;
        }
    }
    return SOTTO_OK;
}
