/* GPT-2's split pattern by hand.
 *
 * The pattern distinguishes characters by class only, and every character is in exactly one of four
 * classes, so the alternatives become: a contraction; else a space and the following run of one
 * class; else a run of one class; else white space, without its last character if a word follows.
 */
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
