/* Byte-level BPE as GPT-2, GPT-NeoX, Llama 3 and others use it; reads and writes Hugging Face
 * files.
 *
 * The ids are those of Hugging Face `tokenizers`: of a text alone, as with add_special_tokens off,
 * or with what the post-processor puts around it (<s>, <|begin_of_text|>), as with it on. Special
 * tokens that stand in the text become their ids either way. Bytes that are not UTF-8, which
 * `tokenizers` cannot be given, are words of their own, so that encoding and decoding give any
 * bytes back; a file with NFC, with a leading space, with stripping tokens or without tokens for
 * all 256 bytes changes what it says it changes. */
#ifndef SOTTO_DATA_TOKENIZER_TOKENIZER_H
#define SOTTO_DATA_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/tokenizer/token_list.h"

struct tokenizer; /* read-only once made: any number of threads may encode at once */

/* `path`: a tokenizer.json, or a folder with tokenizer.json or with vocab.json + merges.txt. What
 * would change the ids and is not implemented is an error that names it. */
enum sotto_status tokenizer_open(struct tokenizer **out, const char *path);
enum sotto_status tokenizer_parse(struct tokenizer **out, const char *json, size_t size,
                                  const char *name); /* the text of a tokenizer.json */
void tokenizer_close(struct tokenizer *tokenizer);
/* Whether `folder` has one that tokenizer_open would read. */
bool tokenizer_in(const char *folder);

/* Ids including added tokens: every id is below this. */
int tokenizer_vocab_size(const struct tokenizer *tokenizer);
/* The id of the token of this text, -1 if there is none. */
int tokenizer_find(const struct tokenizer *tokenizer, const char *text, size_t size);
/* The id of the end-of-text token, -1 if it has none: the special token with one of the usual
 * names, else the only special token, else the one that tokenizer_config.json names. */
int tokenizer_end(const struct tokenizer *tokenizer);
/* The id of the token that ends a turn of a conversation: the one that the chat template in the
 * tokenizer's folder puts after an assistant's text; without a template, the end-of-text token. A
 * guess is tokenizer_config.json's eos_token: there is a template, and it does not show the token.
 */
int tokenizer_turn_end(const struct tokenizer *tokenizer);
bool tokenizer_turn_guessed(const struct tokenizer *tokenizer);
/* The first token that the post-processor puts before a text, -1 if it puts none. */
int tokenizer_begin(const struct tokenizer *tokenizer);
/* Whether both give the same ids to any text, whatever they put around it. */
bool tokenizer_same(const struct tokenizer *a, const struct tokenizer *b);

/* Appends the ids of `text` (any bytes, NULs and invalid UTF-8 included). */
enum sotto_status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t size,
                                   struct token_list *out);

/* The same with what the post-processor puts before the text, which is what a model goes on from.
 */
enum sotto_status tokenizer_encode_prompt(const struct tokenizer *tokenizer, const char *text,
                                          size_t size, struct token_list *out);
/* The same with what it puts before and behind the text. */
enum sotto_status tokenizer_encode_special(const struct tokenizer *tokenizer, const char *text,
                                           size_t size, struct token_list *out);
/* The same, and the end token behind it unless that is what it ends with already: a document of the
 * training data. */
enum sotto_status tokenizer_encode_document(const struct tokenizer *tokenizer, const char *text,
                                            size_t size, struct token_list *out);

/* The bytes of `ids`, NUL behind them (not counted); the caller frees. An id out of range is an
 * error. */
enum sotto_status tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids,
                                   size_t count, char **text, size_t *size);

struct tokenizer_training {
    int vocab_size;    /* 256 bytes + end token + merges          */
    int min_frequency; /* a pair seen less often is not merged    */
    const char *end;   /* e.g. "<|endoftext|>"; NULL: none        */
};

/* Learns merges from texts given one after another (documents, not copied). */
enum sotto_status tokenizer_train(struct tokenizer **out, const struct tokenizer_training *how,
                                  const char *const *texts, const size_t *sizes, size_t count);

/* Writes tokenizer.json (atomically; into `path` if that is a folder). */
enum sotto_status tokenizer_save(const struct tokenizer *tokenizer, const char *path);

#endif
