/* The model of a tokenizer.json: from a word to ids. The vocabulary of every kind is a bpe_model.
 */
#ifndef SOTTO_DATA_TOKENIZER_MODEL_MODEL_H
#define SOTTO_DATA_TOKENIZER_MODEL_MODEL_H

#include "base/json.h"
#include "data/tokenizer/bpe/bpe.h"

struct tokenizer;

/* A kind of model. */
struct model_kind {
    const char *type;
    bpe_ids_of *ids_of;
    /* Reads the member "model", after the stages. */
    enum sotto_status (*read)(struct tokenizer *tokenizer, const json_t *json);
    /* Writes vocabulary and merges into the member "model", which has the other members. */
    enum sotto_status (*write)(const struct tokenizer *tokenizer, json_t *json);
    /* (optional) Releases what `read` made; the vocabulary is released anyway. */
    void (*free)(struct tokenizer *tokenizer);
};

extern const struct model_kind model_bpe, model_unigram, model_wordpiece;

/* Finds the kind by the member "type"; files without a type are BPE. */
enum sotto_status model_kind_find(const struct model_kind **out, const json_t *json);

/* Adds the tokens of {"text": id}. */
enum sotto_status model_read_vocab(struct bpe_model *model, json_t *vocab);
/* Adds the merge "left right", a line of merges.txt. */
enum sotto_status model_read_merge(struct bpe_model *model, const char *text, size_t size);
/* Finds the token that the member names, `*id` BPE_NONE if the member is absent or null. */
enum sotto_status model_read_unknown(const struct bpe_model *model, const json_t *json,
                                     uint32_t *id);
/* Writes {"text": id}. */
enum sotto_status model_write_vocab(const struct bpe_model *model, json_t *vocab);
enum sotto_status model_write_no_memory(void);

#endif
