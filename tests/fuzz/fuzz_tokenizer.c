/* Any bytes as a tokenizer.json: it is refused, or it encodes, decodes and writes without a fault.
 * Where nothing in the document changes text and every byte has a token, the bytes come back. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/tokenizer_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool keeps_bytes(const struct tokenizer *t)
{
    if (t->normalizer.count || t->model.characters)
        return false;
    for (int byte = 0; byte < 256; byte++)
        if (t->model.byte_id[byte] == BPE_NONE)
            return false;
    for (int i = 0; i < t->split.n_stage; i++)
        if (t->split.stage[i].kind == BPE_STAGE_PREFIX ||
            (t->split.stage[i].behavior == BPE_REMOVED &&
             (t->split.stage[i].kind == BPE_STAGE_PATTERN ||
              t->split.stage[i].kind == BPE_STAGE_CLASS)))
            return false;
    for (uint32_t i = 0; i < t->added.count; i++)
        if (t->added.item[i].lstrip || t->added.item[i].rstrip)
            return false;
    for (uint32_t id = 0; id < t->model.size;
         id++) { /* letters of bytes that are another token's content */
        struct bpe_token token = t->model.token[id];
        char *bytes = malloc(token.text_size + 1u);
        size_t n;
        bool same =
            token.text == BPE_NONE || !bytes ||
            !bpe_letters_to_bytes(t->model.pool.data + token.text, token.text_size, bytes, &n) ||
            (n == token.bytes_size && memcmp(bytes, t->model.pool.data + token.bytes, n) == 0);
        free(bytes);
        if (!same)
            return false;
    }
    return true;
}

static void check(const struct tokenizer *t, const char *text, size_t size)
{
    struct token_list ids = {0};
    char *back;
    size_t n;
    if (tokenizer_encode(t, text, size, &ids) == SOTTO_OK) {
        for (size_t i = 0; i < ids.count; i++)
            if (ids.data[i] < 0 || ids.data[i] >= tokenizer_vocab_size(t))
                abort();
        if (tokenizer_decode(t, ids.data, ids.count, &back, &n) != SOTTO_OK)
            abort();
        if (keeps_bytes(t) && (n != size || memcmp(back, text, n) != 0))
            abort();
        free(back);
    }
    free(ids.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char sample[] =
        "It's  12 caf\xc3\xa9 e\xcc\x81\xcc\xa3 \xff\xfe<|endoftext|> \n\n\xe4\xb8\xad\xf0\x9f\x91\x8d"
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab\0 ";
    struct tokenizer *t;
    if (tokenizer_parse(&t, (const char *)data, size, "fuzz") != SOTTO_OK)
        return 0;
    check(t, sample, sizeof sample - 1);
    check(t, (const char *)data, size < 256 ? size : 256);
    if (tokenizer_save(t, "/dev/null/none") == SOTTO_OK)
        abort();
    tokenizer_close(t);
    return 0;
}
