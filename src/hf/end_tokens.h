/* The tokens that end the texts of a model in a folder. */
#ifndef SOTTO_HF_END_TOKENS_H
#define SOTTO_HF_END_TOKENS_H

#include "base/json.h"
#include "data/tokenizer/tokenizer.h"

enum { ENDS_ROOM = 64 };

struct ends {
    int id[ENDS_ROOM];
    int count;
};

/* Reads the "eos_token_id" of a configuration: a number or a list of numbers; absent: no tokens. */
enum sotto_status ends_of(struct ends *ends, const json_t *config);

/* Reads the tokens that generate() of transformers stops at: from generation_config.json, else from
 * config.json, else the tokenizer's (optional). */
enum sotto_status ends_read(struct ends *ends, const char *folder,
                            const struct tokenizer *tokenizer);

bool ends_have(const struct ends *ends, int id);
/* Returns a number, or a list if there are several, as a new reference. */
json_t *ends_to_json(const struct ends *ends);

#endif
