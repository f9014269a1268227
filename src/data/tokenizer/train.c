/* Training a tokenizer on texts: GPT-2's parts around a learned vocabulary. */
#include <string.h>

#include "data/tokenizer/bpe/words.h"
#include "data/tokenizer/tokenizer_impl.h"

/* Adds the end token, then a token for each byte, in the order of the bytes' letters. */
static enum sotto_status first_tokens(struct tokenizer *tokenizer, const char *end)
{
    struct bpe_model *model = &tokenizer->model;
    if (end) {
        TRY(bpe_model_add(model, end, strlen(end), 0));
        TRY(bpe_added_add(&tokenizer->added, (struct bpe_added){.id = 0, .special = true}, end,
                          strlen(end)));
    }
    for (uint32_t letter = 0; letter < 512; letter++)
        for (int byte = 0; byte < 256; byte++)
            if (bpe_letter((uint8_t)byte) == letter) {
                char text[2];
                int size = bpe_letter_utf8((uint8_t)byte, text);
                TRY(bpe_model_add(model, text, (size_t)size, model->size));
            }
    bpe_model_find_bytes(model);
    return SOTTO_OK;
}

static enum sotto_status check_training(const struct tokenizer_training *how)
{
    int least = 256 + (how->end != NULL);
    if (how->vocab_size < least || how->vocab_size > BPE_MAX_VOCAB)
        return fail(SOTTO_EINVAL, "vocabulary of %d tokens, must be in %d..%d", how->vocab_size,
                    least, BPE_MAX_VOCAB);
    if (!how->end)
        return SOTTO_OK;
    size_t size = strlen(how->end);
    if (size < 3 || size > BPE_MAX_ADDED) /* a letter takes up to 2 bytes */
        return fail(SOTTO_EINVAL, "end token of %zu bytes, must have 3..%d", size, BPE_MAX_ADDED);
    if (bpe_utf8_prefix((const uint8_t *)how->end, size) != size)
        return fail(SOTTO_EINVAL, "the end token is not UTF-8");
    return SOTTO_OK;
}

enum sotto_status tokenizer_train(struct tokenizer **out, const struct tokenizer_training *how,
                                  const char *const *texts, const size_t *sizes, size_t count)
{
    enum sotto_status st;
    struct bpe_words words = {0};
    *out = NULL;
    TRY(check_training(how));
    TRY_DONE(tokenizer_make(out));
    TRY_DONE(tokenizer_shell_gpt2(*out));
    TRY_DONE(first_tokens(*out, how->end));
    for (size_t i = 0; i < count; i++)
        TRY_DONE(bpe_words_count(&words, &(*out)->unicode, texts[i], sizes[i], how->end));
    TRY_DONE(bpe_learn(&(*out)->model, &words, (uint32_t)how->vocab_size,
                       how->min_frequency > 1 ? how->min_frequency : 1));
    TRY_DONE(tokenizer_finish(*out));
done:
    bpe_words_free(&words);
    if (st != SOTTO_OK) {
        tokenizer_close(*out);
        *out = NULL;
    }
    return st;
}
