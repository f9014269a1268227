/* libFuzzer: any bytes as instruction data. What is accepted gives rows of every length that have
 * something to learn, stay within the length, and hold only ids of the vocabulary. */
#include <assert.h>
#include <stdlib.h>

#include "data/text/instruct.h"
#include "data/text/records.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_row(const struct instruct_set *set, int64_t i, int t, int vocab)
{
    int32_t tokens[64], targets[64];
    int length = instruct_row(set, i, t, tokens, targets), learned = 0;
    assert(length > 0 && length <= t && length == instruct_length(set, i, t));
    for (int k = 0; k < length; k++) {
        assert(tokens[k] >= 0 && tokens[k] < vocab);
        assert(targets[k] == INSTRUCT_MASKED || (targets[k] >= 0 && targets[k] < vocab));
        assert(k + 1 == length || targets[k] < 0 || targets[k] == tokens[k + 1]);
        learned += targets[k] >= 0;
    }
    assert(learned > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tokenizer *tokenizer;
    if (!tokenizer) {
        const struct tokenizer_training how = {260, 2, "<|endoftext|>"};
        const char *text = "instruction";
        const size_t length = 11;
        if (tokenizer_train(&tokenizer, &how, &text, &length, 1) != SOTTO_OK)
            abort();
    }
    struct instruct_set set;
    if (instruct_open(&set, (const char *)data, size, "fuzz", tokenizer) == SOTTO_OK) {
        for (int64_t i = 0; i < set.count; i++)
            for (int t = 1; t <= 64; t *= 2)
                check_row(&set, i, t, tokenizer_vocab_size(tokenizer));
        instruct_close(&set);
    }
    struct records records;
    json_t *record;
    records_begin(&records, (const char *)data, size, "fuzz");
    while (records_next(&records, &record) == SOTTO_OK && record) {
        assert(records.at <= records.end && records.begins <= records.line);
        json_decref(record);
    }
    return 0;
}
