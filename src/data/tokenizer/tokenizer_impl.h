/* What a tokenizer holds; for the files of this folder. */
#ifndef SOTTO_DATA_TOKENIZER_TOKENIZER_IMPL_H
#define SOTTO_DATA_TOKENIZER_TOKENIZER_IMPL_H

#include "base/json.h"
#include "data/tokenizer/bpe/bpe.h"
#include "data/tokenizer/tokenizer.h"

#define TOKENIZER_MAX_AROUND 16 /* tokens put before, or behind, a text */

struct tokenizer {
    struct bpe_model model;
    struct bpe_added_list added;
    struct bpe_split split;
    bool nfc;
    uint32_t end;      /* BPE_NONE: none */
    uint32_t turn_end; /* as the folder's chat template has it; BPE_NONE: as `end` */
    bool turn_guessed; /* there is a template, which does not show it */
    struct tokenizer_around {
        int32_t ids[TOKENIZER_MAX_AROUND];
        int count;
    } before, after; /* what a post-processor puts around a text */
    char *shell; /* tokenizer.json without vocabulary, merges and added tokens: what is written back
                  */
    struct bpe_unicode unicode;
};

/* A tokenizer with nothing in it but the tables. */
enum sotto_status tokenizer_make(struct tokenizer **out);
/* When tokens, merges and added tokens are in: indexes them, finds the end token. */
enum sotto_status tokenizer_finish(struct tokenizer *tokenizer);
/* Finds the token that ends a turn in the chat template of `folder`, if it has one; `config` is its
 * tokenizer_config.json or NULL. */
enum sotto_status tokenizer_read_turn(struct tokenizer *tokenizer, const char *folder,
                                      const json_t *config);
/* Reads what GPT-2 uses around its vocabulary: the shell of a tokenizer that comes without one. */
enum sotto_status tokenizer_shell_gpt2(struct tokenizer *tokenizer);

#endif
