/* Words of characters in parts. A file without a pre-tokenizer makes one word of a text, for which
 * the heap of merges is long and no cache helps. SentencePiece learns no token with U+2581 after a
 * different character, so that no merge crosses such a place, and the parts have the same ids. */
#include "data/tokenizer/bpe/bpe.h"

#include <string.h>

enum { MARK = sizeof BPE_MARK - 1 };

static bool is_mark(const char *text, size_t size)
{
    return size >= MARK && memcmp(text, BPE_MARK, MARK) == 0;
}

/* Returns the first place of a mark after a different character, `size` if there is none. */
static size_t next_part(const char *text, size_t size)
{
    size_t i = 0;
    while (is_mark(text + i, size - i))
        i += MARK;
    while (i < size) {
        const char *at = memchr(text + i, BPE_MARK[0], size - i);
        i = at ? (size_t)(at - text) : size;
        if (is_mark(text + i, size - i))
            break;
        i += i < size;
    }
    return i;
}

void bpe_check_marks(struct bpe_model *model)
{
    model->cut_marks = !model->ignore_merges && bpe_model_find(model, BPE_MARK, MARK) != BPE_NONE;
    for (uint32_t i = 0; i < model->n_merge && model->cut_marks; i++) {
        const struct bpe_token *token = &model->token[model->merge[i].result];
        model->cut_marks =
            next_part(model->pool.data + token->text, token->text_size) == token->text_size;
    }
}

enum sotto_status bpe_word_parts(struct bpe_work *work, const char *word, size_t size)
{
    while (size > 0) {
        const size_t n = next_part(word, size);
        TRY(bpe_word(work, word, n));
        word += n;
        size -= n;
    }
    return SOTTO_OK;
}

enum sotto_status bpe_raw_bytes(struct bpe_work *work, const char *bytes, size_t size)
{
    const struct bpe_model *model = work->model;
    if (!model->characters)
        return bpe_word(work, bytes, size);
    if (bpe_has_fallback(model, (const uint8_t *)bytes, size)) {
        for (size_t i = 0; i < size; i++)
            TRY(token_list_add(work->out, (int32_t)model->byte_id[(uint8_t)bytes[i]]));
        return SOTTO_OK;
    }
    return model->unknown == BPE_NONE ? SOTTO_OK
                                      : token_list_add(work->out, (int32_t)model->unknown);
}
