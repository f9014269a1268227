/* libFuzzer: any bytes as a token file. What is accepted can be read to its last id, and no id that
 * is handed out reaches the vocabulary. */
#include <assert.h>
#include <stdlib.h>

#include "data/text/token_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const struct tokens *tokens)
{
    int32_t *ids = malloc((size_t)tokens->count * sizeof *ids);
    if (!ids)
        return;
    assert(tokens->count > 0 && tokens->vocab > 0 && tokens->vocab <= INT32_MAX);
    for (int64_t start = 0, count; start < tokens->count; start += count) {
        count = tokens->count - start < 100 ? tokens->count - start : 100;
        if (tokens_copy(tokens, start, count, ids + start) != SOTTO_OK)
            continue;
        for (int64_t i = start; i < start + count; i++)
            assert(ids[i] >= 0 && ids[i] < tokens->vocab);
    }
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int raw = 0; raw < 2; raw++) {
        struct tokens tokens;
        if (tokens_parse(&tokens, data, size, "fuzz", raw) == SOTTO_OK)
            read_all(&tokens);
        tokens_close(&tokens);
    }
    return 0;
}
