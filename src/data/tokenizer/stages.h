/* The parts of a tokenizer.json around its model. */
#ifndef SOTTO_DATA_TOKENIZER_STAGES_H
#define SOTTO_DATA_TOKENIZER_STAGES_H

#include "base/json.h"
#include "data/tokenizer/tokenizer_impl.h"

/* Reads normalizer, pre_tokenizer, post_processor and decoder. */
enum sotto_status tokenizer_read_stages(struct tokenizer *tokenizer, const json_t *root);

/* A type of a part. A table of readers ends with a NULL type. */
struct stage_reader {
    const char *type;
    enum sotto_status (*read)(struct tokenizer *tokenizer,
                              const json_t *json); /* NULL: nothing to do */
};

extern const struct stage_reader tokenizer_normalizers[], tokenizer_pre_tokenizers[],
    tokenizer_decoders[];

/* Reads a member that is one character. */
enum sotto_status tokenizer_read_character(const json_t *json, const char *key, uint32_t *code);
/* Reads where Metaspace puts U+2581: "prepend_scheme", or "add_prefix_space" of older files. */
enum sotto_status tokenizer_read_mark_prefix(const json_t *json, enum bpe_mark_prefix *out);

/* Reads post-processors with tokens around a text. tokenizer_check_around: checks, once the
 * vocabulary is known, that the tokens are in it. */
enum sotto_status tokenizer_read_template(struct tokenizer *tokenizer, const json_t *json);
enum sotto_status tokenizer_read_pair(struct tokenizer *tokenizer, const json_t *json);
enum sotto_status tokenizer_check_around(const struct tokenizer *tokenizer);

#endif
