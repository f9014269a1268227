/* The parts of a tokenizer.json around its model. */
#ifndef SOTTO_DATA_TOKENIZER_STAGES_H
#define SOTTO_DATA_TOKENIZER_STAGES_H

#include "base/json.h"
#include "data/tokenizer/tokenizer_impl.h"

/* Reads normalizer, pre_tokenizer and post_processor; checks the decoder. */
enum sotto_status tokenizer_read_stages(struct tokenizer *tokenizer, const json_t *root);

/* Reads a TemplateProcessing. tokenizer_check_around: checks, once the vocabulary is known, that
 * the tokens of the template are in it. */
enum sotto_status tokenizer_read_template(struct tokenizer *tokenizer, const json_t *json);
enum sotto_status tokenizer_check_around(const struct tokenizer *tokenizer);

#endif
