/* The inside of a tokenizer; for the files of this folder. */
#ifndef SOTTO_DATA_TOKENIZER_TOKENIZER_IMPL_H
#define SOTTO_DATA_TOKENIZER_TOKENIZER_IMPL_H

#include "base/json.h"
#include "data/tokenizer/bpe/bpe.h"
#include "data/tokenizer/decoder/decoder.h"
#include "data/tokenizer/model/model.h"
#include "data/tokenizer/normalizer/normalizer.h"
#include "data/tokenizer/tokenizer.h"

#define TOKENIZER_MAX_AROUND 16 /* tokens before, or after, a text */

struct tokenizer {
    const struct model_kind *kind;
    struct bpe_model model;  /* the vocabulary, and the merges of BPE */
    struct unigram *unigram; /* scores of a Unigram model, else NULL */
    struct {
        size_t most_characters; /* of a word; a longer word is unknown */
        char *prefix;           /* of tokens after the first of a word; owned, (prefix_size) */
        size_t prefix_size;
        size_t longest; /* bytes of the longest token */
    } wordpiece;
    struct bpe_added_list added;
    struct normalizer normalizer;
    struct bpe_split split;
    struct token_decoder decoder;
    bool decoder_bytes; /* a ByteLevel was among the decoders */
    uint32_t end;       /* BPE_NONE: none */
    uint32_t turn_end;  /* from the folder's chat template; BPE_NONE: as `end` */
    bool turn_guessed;  /* the template does not show the token */
    struct tokenizer_around {
        int32_t ids[TOKENIZER_MAX_AROUND];
        int count;
    } before, after; /* tokens of a post-processor around a text */
    char *shell;     /* tokenizer.json to write, without vocabulary, merges and added tokens */
    struct bpe_unicode unicode;
};

/* Makes a tokenizer that has only the tables. */
enum sotto_status tokenizer_make(struct tokenizer **out);
/* Indexes tokens and merges, after the last of them, and finds the end token. */
enum sotto_status tokenizer_finish(struct tokenizer *tokenizer);
/* Finds the token that ends a turn in the chat template of `folder`, if there is one; `config`:
 * tokenizer_config.json or NULL. */
enum sotto_status tokenizer_read_turn(struct tokenizer *tokenizer, const char *folder,
                                      const json_t *config);
/* Reads the parts around GPT-2's vocabulary, for files without such parts. */
enum sotto_status tokenizer_shell_gpt2(struct tokenizer *tokenizer);

#endif
