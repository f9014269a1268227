/* BPE on characters, as SentencePiece's files have it: the symbols of a word are its characters. A
 * character that is not in the vocabulary becomes the tokens <0xXX> of its bytes, else the unknown
 * token (`merge_word` of `tokenizers`). */
#include "data/tokenizer/bpe/bpe.h"

#include <stdio.h>

bool bpe_has_fallback(const struct bpe_model *model, const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (model->byte_id[bytes[i]] == BPE_NONE)
            return false;
    return true;
}

/* An unknown token waits until the next known or unknown character: bytes' tokens overtake the
 * unknown token, as in `tokenizers`. */
size_t bpe_character_symbols(const struct bpe_model *model, const uint8_t *word, size_t size,
                             uint32_t *id)
{
    size_t n = 0;
    bool waits = false;
    for (size_t i = 0, length; i < size; i += length) {
        const int valid = bpe_utf8_length(word + i, size - i);
        length = valid ? (size_t)valid : 1;
        const uint32_t known = bpe_model_find(model, (const char *)word + i, length);
        if (known != BPE_NONE) {
            if (waits)
                id[n++] = model->unknown;
            id[n++] = known;
            waits = false;
        } else if (bpe_has_fallback(model, word + i, length)) {
            for (size_t k = 0; k < length; k++)
                id[n++] = model->byte_id[word[i + k]];
        } else if (model->unknown != BPE_NONE) {
            if (waits && !model->fuse_unknown)
                id[n++] = model->unknown;
            waits = true;
        }
    }
    if (waits)
        id[n++] = model->unknown;
    return n;
}

void bpe_find_fallback(struct bpe_model *model)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8];
        const int n = snprintf(text, sizeof text, "<0x%02X>", byte);
        model->byte_id[byte] = bpe_model_find(model, text, (size_t)n);
    }
}
