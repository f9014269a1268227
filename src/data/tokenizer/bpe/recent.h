/* Letters, marks and numbers that Unicode 15 to 16 added to Unicode 14, in order.
 *
 * `tokenizers` splits by the tables of Unicode 16. utf8proc and PCRE2 may be older; what they would
 * take for unassigned is here, so that the ids are the same whatever is installed. */
#ifndef SOTTO_DATA_TOKENIZER_BPE_RECENT_H
#define SOTTO_DATA_TOKENIZER_BPE_RECENT_H

#include <stdint.h>

struct bpe_recent {
    uint32_t from, to;
    char category[3]; /* Lu, Ll, ... */
};

extern const struct bpe_recent bpe_recent[];
extern const int bpe_recent_count;

#endif
