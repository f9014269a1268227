/* Tokenizers of Hugging Face files: BPE on bytes (GPT-2, Llama 3, Qwen) and on characters (Llama 2,
 * Mistral, Gemma), Unigram (T5), WordPiece (BERT). Training makes BPE on bytes.
 *
 * The ids are those of Hugging Face `tokenizers`: of a text alone, as with add_special_tokens off,
 * or with the tokens that the post-processor puts around a text (<s>, <|begin_of_text|>), as with
 * it on. Special tokens in the text become their ids either way. Bytes that are not UTF-8, which
 * `tokenizers` does not take, are words of their own, so that decoding returns any bytes if the
 * vocabulary has a token for each byte; a file with a normalizer, with a leading space, with
 * stripping tokens or without tokens for all 256 bytes changes texts accordingly. */
#ifndef SOTTO_DATA_TOKENIZER_TOKENIZER_H
#define SOTTO_DATA_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/tokenizer/token_list.h"

struct tokenizer; /* read-only once made: any number of threads may encode at once */

/* Opens `path`: a tokenizer.json, or a folder with tokenizer.json or with vocab.json + merges.txt.
 * Members that would change the ids and are not implemented are errors with the member's name. */
enum sotto_status tokenizer_open(struct tokenizer **out, const char *path);
enum sotto_status tokenizer_parse(struct tokenizer **out, const char *json, size_t size,
                                  const char *name); /* the text of a tokenizer.json */
void tokenizer_close(struct tokenizer *tokenizer);
/* True if `folder` has files for tokenizer_open. */
bool tokenizer_in(const char *folder);

/* Returns the number of ids including added tokens: every id is smaller. */
int tokenizer_vocab_size(const struct tokenizer *tokenizer);
/* Returns the id of the token with this text, -1 if there is none. */
int tokenizer_find(const struct tokenizer *tokenizer, const char *text, size_t size);
/* Returns the id of the end-of-text token, -1 if there is none: the special token with one of the
 * usual names, else the only special token, else the token of tokenizer_config.json. */
int tokenizer_end(const struct tokenizer *tokenizer);
/* Returns the id of the token that ends a turn of a conversation: the token that the chat template
 * in the tokenizer's folder puts after an assistant's text; without a template, the end-of-text
 * token. True for tokenizer_turn_guessed: the template does not show the token, and
 * tokenizer_config.json's eos_token is used. */
int tokenizer_turn_end(const struct tokenizer *tokenizer);
bool tokenizer_turn_guessed(const struct tokenizer *tokenizer);
/* Returns the first token that the post-processor puts before a text, -1 if there is none. */
int tokenizer_begin(const struct tokenizer *tokenizer);
/* True if both give the same ids to any text; tokens around a text may differ. */
bool tokenizer_same(const struct tokenizer *a, const struct tokenizer *b);

/* Appends the ids of `text` (any bytes, NULs and invalid UTF-8 included). */
enum sotto_status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t size,
                                   struct token_list *out);

/* Encodes with the post-processor's tokens before the text, as a prompt that a model continues. */
enum sotto_status tokenizer_encode_prompt(const struct tokenizer *tokenizer, const char *text,
                                          size_t size, struct token_list *out);
/* Encodes `text` from `from` on as the continuation of the text before. BPE on bytes has the ids of
 * the rest alone; other kinds, which may put a blank before a text, the ids of the whole text
 * without the number of ids that the text before has. */
enum sotto_status tokenizer_encode_rest(const struct tokenizer *tokenizer, const char *text,
                                        size_t size, size_t from, struct token_list *out);
/* Encodes with the post-processor's tokens before and after the text. */
enum sotto_status tokenizer_encode_special(const struct tokenizer *tokenizer, const char *text,
                                           size_t size, struct token_list *out);
/* Encodes a document of the training data: as tokenizer_encode_special, followed by the end token
 * unless the ids end with it already. */
enum sotto_status tokenizer_encode_document(const struct tokenizer *tokenizer, const char *text,
                                            size_t size, struct token_list *out);

/* Returns the bytes of `ids`, followed by a NUL (not counted); the caller frees. An id out of range
 * is an error. */
enum sotto_status tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids,
                                   size_t count, char **text, size_t *size);

struct tokenizer_training {
    int vocab_size;    /* 256 bytes + end token + merges */
    int min_frequency; /* a less frequent pair is not merged */
    const char *end;   /* e.g. "<|endoftext|>"; NULL: none */
};

/* Learns merges from texts given one after another (documents, not copied). */
enum sotto_status tokenizer_train(struct tokenizer **out, const struct tokenizer_training *how,
                                  const char *const *texts, const size_t *sizes, size_t count);

/* Writes tokenizer.json (atomically; into `path` if that is a folder). */
enum sotto_status tokenizer_save(const struct tokenizer *tokenizer, const char *path);

#endif
