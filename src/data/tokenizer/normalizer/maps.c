/* Steps of a normalizer that treat each character by itself. */
#include <utf8proc.h>

#include "data/tokenizer/normalizer/normalizer.h"

int normal_lowercase(uint32_t c, uint32_t out[NORMAL_MAPPED])
{
    out[0] = c;
    if (c < 0x80) {
        out[0] = c >= 'A' && c <= 'Z' ? c + 32 : c;
    } else if (c == 0x130) { /* the only character whose lowercase has two characters */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    } else {
        out[0] = bpe_lowercase(c);
    }
    return 1;
}

int normal_nmt(uint32_t c, uint32_t out[NORMAL_MAPPED])
{
    if ((c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f ||
        c == 0x9f)
        return 0;
    const bool blank = c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
                       (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                       c == 0xfeff || c == 0xfffd;
    out[0] = blank ? ' ' : c;
    return 1;
}

/* StripAccents drops marks of every kind. */
int normal_drop_marks(uint32_t c, uint32_t out[NORMAL_MAPPED])
{
    out[0] = c;
    return c < 0x300 || !bpe_is_old_mark(c);
}

/* BertNormalizer drops marks without width. */
int normal_drop_accents(uint32_t c, uint32_t out[NORMAL_MAPPED])
{
    out[0] = c;
    return c < 0x300 || !bpe_is_old_accent(c);
}

int normal_clean(uint32_t c, uint32_t out[NORMAL_MAPPED])
{
    if (c >= ' ' && c < 0x7f) {
        out[0] = c;
        return 1;
    }
    out[0] = bpe_is_white_space(c) ? ' ' : c;
    if (c == '\t' || c == '\n' || c == '\r')
        return 1;
    return c != 0 && c != 0xfffd && !bpe_is_control(c);
}

int normal_part_chinese(uint32_t c, uint32_t out[NORMAL_MAPPED])
{
    const bool chinese = (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
                         (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
                         (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
                         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
    out[0] = out[2] = ' ';
    out[chinese] = c;
    return chinese ? 3 : 1;
}
