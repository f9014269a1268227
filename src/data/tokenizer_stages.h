/* The parts of a tokenizer.json around its model. */
#ifndef SOTTO_DATA_TOKENIZER_STAGES_H
#define SOTTO_DATA_TOKENIZER_STAGES_H

#include "base/json.h"
#include "data/bpe.h"

/* Reads normalizer and pre_tokenizer; checks post_processor and decoder. */
enum sotto_status tokenizer_read_stages(struct tokenizer *tokenizer, const json_t *root);

#endif
