/* The decoder of a tokenizer.json: from the texts of tokens to a text. */
#ifndef SOTTO_DATA_TOKENIZER_DECODER_DECODER_H
#define SOTTO_DATA_TOKENIZER_DECODER_DECODER_H

#include "base/json.h"
#include "data/tokenizer/bpe/bpe.h"

#define DECODER_MAX_STEPS 16

enum decode_kind {
    DECODE_REPLACE,       /* a text for each match of a pattern */
    DECODE_BYTE_FALLBACK, /* a byte for a token <0xXX> */
    DECODE_FUSE,          /* all tokens become one */
    DECODE_STRIP,         /* a character at the ends of each token */
    DECODE_MARK,          /* Metaspace: a blank for U+2581 */
    DECODE_WORDPIECE,     /* blanks between words, tokens with the prefix join */
};

struct decode_step {
    enum decode_kind kind;
    struct bpe_pattern pattern; /* replace */
    char *content;              /* replace, wordpiece: the prefix; owned, (content_size) */
    size_t content_size;
    uint32_t character; /* strip, mark */
    size_t start, stop; /* strip: most characters to drop at each end */
    bool drop_first;    /* mark: the first token's marks are dropped */
    bool cleanup;       /* wordpiece: no blank before punctuation */
};

struct token_decoder {
    struct decode_step step[DECODER_MAX_STEPS];
    int count;
    bool given; /* without a decoder, blanks are put between tokens */
};

/* Texts of tokens, one after another. Start from {0}. */
struct decode_list {
    struct bpe_buffer text;
    size_t *end; /* (count) end of each token in `text` */
    size_t count, room;
};

/* Appends a token. */
enum sotto_status decode_list_add(struct decode_list *list, const char *text, size_t size);
void decode_list_free(struct decode_list *list);

/* Runs the steps on `list[0]`; the decoded text is then the text of `list[0]`. */
enum sotto_status token_decoder_run(const struct token_decoder *decoder,
                                    struct decode_list list[2]);
void token_decoder_free(struct token_decoder *decoder);

#endif
