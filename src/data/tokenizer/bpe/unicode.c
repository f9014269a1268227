/* Code points: their classes, and the letters for bytes in vocabulary files. */
#include "data/tokenizer/bpe/bpe.h"

#include <string.h>
#include <utf8proc.h>

#include "data/tokenizer/bpe/recent.h"

bool bpe_is_white_space(uint32_t c) /* without U+180E, which PCRE2's \s has */
{
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

/* Returns the category as two letters, "Lu". */
static const char *category_of(uint32_t c, utf8proc_category_t category)
{
    if (category == UTF8PROC_CATEGORY_CN)
        for (int i = 0; i < bpe_recent_count && bpe_recent[i].from <= c; i++)
            if (c <= bpe_recent[i].to)
                return bpe_recent[i].category;
    return utf8proc_category_string((utf8proc_int32_t)c);
}

static enum bpe_class character_class(uint32_t c, utf8proc_category_t category)
{
    if (bpe_is_white_space(c))
        return BPE_SPACE;
    char first = category_of(c, category)[0];
    return first == 'L' ? BPE_LETTER : first == 'N' ? BPE_NUMBER : BPE_OTHER;
}

/* Marks and composites newer than Unicode 9: `tokenizers` normalizes by tables of Unicode 9, so NFC
 * takes these characters as plain. */
static const uint32_t late[][2] = {
    {0x7fd, 0x7fd},     {0x897, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},
    {0xc3c, 0xc3c},     {0xd3b, 0xd3c},     {0xeba, 0xeba},     {0x1715, 0x1715},
    {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},   {0xa82c, 0xa82c},   {0x10d24, 0x10d27},
    {0x10d69, 0x10d6d}, {0x10eab, 0x10eac}, {0x10efc, 0x10eff}, {0x10f46, 0x10f50},
    {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x113b8, 0x113d0},
    {0x1145e, 0x1145e}, {0x11839, 0x1183a}, {0x11930, 0x11930}, {0x11935, 0x11935},
    {0x11938, 0x11938}, {0x1193d, 0x1193e}, {0x11943, 0x11943}, {0x119e0, 0x119e0},
    {0x11a34, 0x11a34}, {0x11a47, 0x11a47}, {0x11a99, 0x11a99}, {0x11d42, 0x11d42},
    {0x11d44, 0x11d45}, {0x11d97, 0x11d97}, {0x11f41, 0x11f42}, {0x1611e, 0x1612f},
    {0x16d63, 0x16d6a}, {0x16ff0, 0x16ff1}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136},
    {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef}, {0x1e5ee, 0x1e5ef}};

bool bpe_is_late(uint32_t c)
{
    size_t low = 0, high = sizeof late / sizeof *late;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (c > late[middle][1])
            low = middle + 1;
        else
            high = middle;
    }
    return low < sizeof late / sizeof *late && c >= late[low][0];
}

/* True for starters that join with the character before although they are no marks: Hangul vowels,
 * finals. */
static bool joins_before(uint32_t c)
{
    return (c >= 0x1161 && c <= 0x1175) || (c >= 0x11a8 && c <= 0x11c2);
}

uint8_t bpe_properties(uint32_t c)
{
    const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)c);
    utf8proc_category_t category = p->category;
    bool mark = category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
    bool plain = category != UTF8PROC_CATEGORY_CN && !mark && p->combining_class == 0 &&
                 p->decomp_seqindex == UINT16_MAX && !joins_before(c);
    bool inert = c < 0x300 || plain || bpe_is_late(c);
    return (uint8_t)(character_class(c, category) | (inert ? BPE_INERT : 0));
}

void bpe_unicode_init(struct bpe_unicode *unicode)
{
    for (uint32_t c = 0; c < 0x10000; c++)
        unicode->bmp[c] = bpe_properties(c);
}

bool bpe_is_word(uint32_t c) /* Alphabetic, marks, decimal digits, connectors, joiners */
{
    const char *category = category_of(c, utf8proc_category((utf8proc_int32_t)c));
    if (category[0] == 'L' || category[0] == 'M' || strcmp(category, "Nd") == 0 ||
        strcmp(category, "Nl") == 0 || strcmp(category, "Pc") == 0)
        return true;
    return c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) || /* circled letters */
           (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
           (c >= 0x1f170 && c <= 0x1f189);
}

static bool is_continuation(const uint8_t *p, size_t n, size_t i)
{
    return i < n && (p[i] & 0xc0) == 0x80;
}

int bpe_utf8_length(const uint8_t *p, size_t n)
{
    if (p[0] < 0x80)
        return 1;
    if (p[0] < 0xc2 || p[0] > 0xf4 || !is_continuation(p, n, 1))
        return 0;
    if (p[0] < 0xe0)
        return 2;
    if (!is_continuation(p, n, 2))
        return 0;
    if (p[0] < 0xf0) /* no overlong forms, no surrogates */
        return (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ? 0 : 3;
    if (!is_continuation(p, n, 3))
        return 0;
    return (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f) ? 0 : 4;
}

size_t bpe_utf8_prefix(const uint8_t *p, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint64_t eight;
        if (n - i >= sizeof eight) {
            memcpy(&eight, p + i, sizeof eight);
            if (!(eight & 0x8080808080808080u)) {
                i += sizeof eight;
                continue;
            }
        }
        int length = bpe_utf8_length(p + i, n - i);
        if (length == 0)
            break;
        i += (size_t)length;
    }
    return i;
}

static bool is_printable(unsigned byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
}

uint32_t bpe_letter(uint8_t byte)
{
    if (is_printable(byte))
        return byte;
    if (byte <= ' ')
        return 256u + byte;
    return byte == 0xad ? 256 + 67 : 256u + 33 + (byte - 0x7fu); /* 0x7f .. 0xa0, then 0xad */
}

int bpe_letter_utf8(uint8_t byte, char out[2])
{
    uint32_t c = bpe_letter(byte);
    if (c < 0x80)
        return out[0] = (char)c, 1;
    out[0] = (char)(0xc0 | c >> 6);
    out[1] = (char)(0x80 | (c & 0x3f));
    return 2;
}

bool bpe_letters_to_bytes(const char *text, size_t size, char *out, size_t *n_out)
{
    size_t n = 0;
    for (size_t i = 0; i < size;) {
        int length;
        uint32_t c = bpe_utf8_code((const uint8_t *)text + i, &length);
        i += (size_t)length;
        if (c < 256 && is_printable(c))
            out[n++] = (char)c;
        else if (c >= 256 && c <= 256 + ' ')
            out[n++] = (char)(c - 256);
        else if (c > 256 + ' ' && c < 256 + 67)
            out[n++] = (char)(c - 256 - 33 + 0x7f);
        else if (c == 256 + 67)
            out[n++] = (char)0xad;
        else
            return false;
    }
    *n_out = n;
    return true;
}
