/* The tokens that end the texts of a model in a folder. */
#ifndef SOTTO_HF_END_TOKENS_H
#define SOTTO_HF_END_TOKENS_H

#include "base/json.h"
#include "data/tokenizer/tokenizer.h"

enum { END_TOKENS_ROOM = 64 };

struct end_tokens {
    int id[END_TOKENS_ROOM];
    int count;
};

/* Reads the "eos_token_id" of a configuration: a number or a list of numbers; absent: no tokens. */
enum sotto_status end_tokens_from_json(struct end_tokens *ends, const json_t *config);

/* Reads the tokens that generate() of transformers stops at: from generation_config.json, else from
 * config.json, else the tokenizer's (optional). */
enum sotto_status end_tokens_read(struct end_tokens *ends, const char *folder,
                                  const struct tokenizer *tokenizer);

bool end_tokens_have(const struct end_tokens *ends, int id);
/* Returns a number, or a list if there are several, as a new reference. */
json_t *end_tokens_to_json(const struct end_tokens *ends);

#endif
