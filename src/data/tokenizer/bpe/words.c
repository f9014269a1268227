#include "data/tokenizer/bpe/words.h"

#include <stdlib.h>
#include <string.h>

static enum sotto_status words_no_memory(uint32_t n)
{
    return fail(SOTTO_ENOMEM, "no memory for %u distinct words", n);
}

static enum sotto_status grow_word_table(struct bpe_words *words)
{
    uint32_t size = words->mask ? (words->mask + 1) * 2 : 1 << 14;
    uint32_t *slot = calloc(size, sizeof *slot);
    if (!slot)
        return words_no_memory(words->n);
    for (uint32_t k = 0; k < words->n; k++) {
        uint32_t i = words->word[k].hash;
        while (slot[i & (size - 1)])
            i++;
        slot[i & (size - 1)] = k + 1;
    }
    free(words->slot);
    words->slot = slot;
    words->mask = size - 1;
    return SOTTO_OK;
}

static enum sotto_status count_word(struct bpe_words *words, const char *text, size_t size)
{
    if (size > BPE_MAX_WORD)
        return fail(SOTTO_EINVAL, "a word of %zu bytes is more than the %u allowed", size,
                    BPE_MAX_WORD);
    if (words->n >= words->mask / 2)
        TRY(grow_word_table(words));
    uint32_t hash = bpe_hash(text, size), i = hash;
    for (; words->slot[i & words->mask]; i++) {
        struct bpe_word_count *word = &words->word[words->slot[i & words->mask] - 1];
        if (word->hash == hash && word->size == size &&
            memcmp(words->pool.data + word->at, text, size) == 0) {
            word->count++;
            return SOTTO_OK;
        }
    }
    if (words->n == words->room) {
        uint32_t room = words->room * 2 + 1024;
        struct bpe_word_count *word = realloc(words->word, room * sizeof *word);
        if (!word)
            return words_no_memory(room);
        words->word = word;
        words->room = room;
    }
    words->word[words->n] = (struct bpe_word_count){words->pool.count, (uint32_t)size, hash, 1};
    TRY(bpe_buffer_add(&words->pool, text, size));
    words->slot[i & words->mask] = ++words->n;
    return SOTTO_OK;
}

/* Counts words in the same stretches of valid and of other bytes as encoding. */
static enum sotto_status count_piece(struct bpe_words *words, const struct bpe_unicode *unicode,
                                     const char *text, size_t size)
{
    while (size > 0) {
        size_t valid = bpe_utf8_prefix((const uint8_t *)text, size);
        for (size_t i = 0, n; i < valid; i += n) {
            n = bpe_gpt2_next(unicode, text + i, valid - i);
            TRY(count_word(words, text + i, n));
        }
        size_t other = valid;
        while (other < size && bpe_utf8_length((const uint8_t *)text + other, size - other) == 0)
            other++;
        if (other > valid)
            TRY(count_word(words, text + valid, other - valid));
        text += other;
        size -= other;
    }
    return SOTTO_OK;
}

enum sotto_status bpe_words_count(struct bpe_words *words, const struct bpe_unicode *unicode,
                                  const char *text, size_t size, const char *end)
{
    size_t end_size = end ? strlen(end) : 0, from = 0;
    for (size_t i = 0; end_size > 0 && size - i >= end_size;) {
        const char *first = memchr(text + i, end[0], size - i - end_size + 1);
        if (!first)
            break;
        i = (size_t)(first - text);
        if (memcmp(first, end, end_size) != 0) {
            i++;
            continue;
        }
        TRY(count_piece(words, unicode, text + from, i - from));
        from = i += end_size;
    }
    return count_piece(words, unicode, text + from, size - from);
}

void bpe_words_free(struct bpe_words *words)
{
    free(words->pool.data);
    free(words->word);
    free(words->slot);
}
