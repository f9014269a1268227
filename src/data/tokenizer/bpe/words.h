/* The distinct words of a text and their counts. */
#ifndef SOTTO_DATA_TOKENIZER_BPE_WORDS_H
#define SOTTO_DATA_TOKENIZER_BPE_WORDS_H

#include "data/tokenizer/bpe/bpe.h"

struct bpe_words {
    struct bpe_buffer pool;
    struct bpe_word_count {
        size_t at; /* in `pool` */
        uint32_t size, hash;
        int64_t count;
    } * word; /* (n), in the order of first sight */
    uint32_t n, room;
    uint32_t *slot; /* open addressing: index + 1 */
    uint32_t mask;
};

/* Counts the words that GPT-2's pattern makes of `text`; occurrences of `end` separate texts and
 * are not counted. */
enum sotto_status bpe_words_count(struct bpe_words *words, const struct bpe_unicode *unicode,
                                  const char *text, size_t size, const char *end);
void bpe_words_free(struct bpe_words *words);

#endif
