/* A pattern of a tokenizer.json: a regular expression or a text to find. */
#ifndef SOTTO_DATA_TOKENIZER_BPE_PATTERN_H
#define SOTTO_DATA_TOKENIZER_BPE_PATTERN_H

#include "base/json.h"
#include "data/tokenizer/bpe/bpe.h"

/* Reads the member "pattern", {"String": ...} or {"Regex": ...}. */
enum sotto_status pattern_read(struct bpe_pattern *pattern, const json_t *json);
void pattern_free(struct bpe_pattern *pattern);

/* A search through a text. Start from {.text, .size}. */
struct pattern_search {
    const char *text;
    size_t size;
    size_t from; /* place of the next search */
    size_t last; /* end of the latest match + 1; 0: no match yet */
};

/* Finds the next match. An empty match at the end of the match before is skipped, as in
 * Oniguruma's iterator. `*matcher` is made if it is NULL. */
enum sotto_status pattern_next(const struct bpe_pattern *pattern, struct bpe_matcher **matcher,
                               struct pattern_search *search, bool *found, size_t *start,
                               size_t *end);

#endif
