/* The normalizer of a tokenizer.json: a chain of steps that change a text. */
#ifndef SOTTO_DATA_TOKENIZER_NORMALIZER_NORMALIZER_H
#define SOTTO_DATA_TOKENIZER_NORMALIZER_NORMALIZER_H

#include "base/json.h"
#include "data/tokenizer/bpe/bpe.h"

#define NORMALIZER_MAX_STEPS 16

enum normal_kind {
    NORMAL_NFC,
    NORMAL_FORM,        /* NFD, NFKC, NFKD */
    NORMAL_REPLACE,     /* a text for each match of a pattern */
    NORMAL_PREPEND,     /* a text before a text that is not empty */
    NORMAL_STRIP,       /* white space at the ends */
    NORMAL_MAP,         /* a function of each character */
    NORMAL_PRECOMPILED, /* SentencePiece's table */
    NORMAL_BERT,
};

/* Writes the characters that `code` becomes, at most NORMAL_MAPPED; returns their number. */
enum { NORMAL_MAPPED = 3 };
typedef int normal_map(uint32_t code, uint32_t out[NORMAL_MAPPED]);

/* The maps of steps (maps.c). */
normal_map normal_lowercase, normal_nmt, normal_drop_marks, normal_drop_accents, normal_clean,
    normal_part_chinese;

struct normal_step {
    enum normal_kind kind;
    enum bpe_form form;
    bool left, right; /* strip */
    normal_map *map;
    struct bpe_pattern pattern; /* replace */
    char *content;              /* replace, prepend; owned, (content_size) */
    size_t content_size;
    struct precompiled *precompiled;         /* owned */
    bool clean, chinese, accents, lowercase; /* bert */
};

struct normalizer {
    struct normal_step step[NORMALIZER_MAX_STEPS];
    int count;
};

/* Normalizes valid UTF-8. The result is in `buffer[0]` or `buffer[1]`, or is the text itself.
 * `*front`: bytes of the result that the text's first character became, 0 if the character was
 * dropped; `glued`: the text follows other text without a blank between. */
enum sotto_status normalizer_run(const struct normalizer *normalizer,
                                 const struct bpe_unicode *unicode, struct bpe_matcher **matcher,
                                 struct bpe_buffer buffer[2], bool glued, const char **text,
                                 size_t *size, size_t *front);
void normalizer_free(struct normalizer *normalizer);
/* True if the normalizer may change a text that is in NFC. */
bool normalizer_changes(const struct normalizer *normalizer);

/* SentencePiece's table of replacements (precompiled.c). `text`: base64. */
enum sotto_status precompiled_read(struct precompiled **out, const char *text, size_t size);
void precompiled_free(struct precompiled *precompiled);
/* `*front` as in normalizer_run. */
enum sotto_status precompiled_run(const struct precompiled *precompiled, const char *text,
                                  size_t size, struct bpe_buffer *out, size_t *front);

#endif
