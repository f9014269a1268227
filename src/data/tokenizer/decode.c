/* Ids to text: the bytes of tokens in a row, or the texts of tokens through the decoder. */
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/tokenizer_impl.h"

static enum sotto_status check_ids(const struct bpe_model *model, const int32_t *ids, size_t count,
                                   size_t *total)
{
    *total = 0;
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= model->size)
            return fail(SOTTO_EINVAL, "id %d at place %zu is not in 0..%u", ids[i], i,
                        model->size - 1);
        if (model->token[ids[i]].bytes == BPE_NONE)
            return fail(SOTTO_EINVAL, "id %d at place %zu has no token", ids[i], i);
        *total += model->token[ids[i]].bytes_size;
    }
    return SOTTO_OK;
}

static enum sotto_status run_decoder(const struct tokenizer *tokenizer, const int32_t *ids,
                                     size_t count, struct decode_list list[2])
{
    const struct bpe_model *model = &tokenizer->model;
    const bool blanks = !tokenizer->decoder.given; /* as in `tokenizers` */
    for (size_t i = 0; i < count; i++) {
        const struct bpe_token *token = &model->token[ids[i]];
        if (blanks && i > 0)
            TRY(bpe_buffer_add(&list[0].text, " ", 1));
        TRY(decode_list_add(&list[0], model->pool.data + token->bytes, token->bytes_size));
    }
    TRY(token_decoder_run(&tokenizer->decoder, list));
    TRY(bpe_buffer_reserve(&list[0].text, 1));
    list[0].text.data[list[0].text.count] = '\0';
    return SOTTO_OK;
}

/* Copies the bytes of the tokens. */
static enum sotto_status join_token_bytes(const struct bpe_model *model, const int32_t *ids,
                                          size_t count, size_t total, char **text)
{
    char *out = *text = malloc(total + 1);
    if (!out)
        return fail(SOTTO_ENOMEM, "no memory for %zu bytes of text", total);
    for (size_t i = 0; i < count; i++) {
        const struct bpe_token *token = &model->token[ids[i]];
        if (token->bytes_size)
            memcpy(out, model->pool.data + token->bytes, token->bytes_size);
        out += token->bytes_size;
    }
    *out = '\0';
    return SOTTO_OK;
}

enum sotto_status tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids,
                                   size_t count, char **text, size_t *size)
{
    size_t total;
    *text = NULL;
    *size = 0;
    TRY(check_ids(&tokenizer->model, ids, count, &total));
    if (!tokenizer->model.characters) {
        TRY(join_token_bytes(&tokenizer->model, ids, count, total, text));
        *size = total;
        return SOTTO_OK;
    }
    struct decode_list list[2] = {{{0}, NULL, 0, 0}, {{0}, NULL, 0, 0}};
    const enum sotto_status st = run_decoder(tokenizer, ids, count, list);
    if (st == SOTTO_OK) {
        *text = list[0].text.data;
        *size = list[0].text.count;
        list[0].text = (struct bpe_buffer){0};
    }
    decode_list_free(&list[0]);
    decode_list_free(&list[1]);
    return st;
}
