/* The tokens that a model in a folder ends its texts with. */
#ifndef SOTTO_HF_END_TOKENS_H
#define SOTTO_HF_END_TOKENS_H

#include "base/json.h"
#include "data/tokenizer/tokenizer.h"

enum { ENDS_ROOM = 64 };

struct ends {
    int id[ENDS_ROOM];
    int count;
};

/* The "eos_token_id" of a configuration: a number or a list of them; none where it has none. */
enum sotto_status ends_of(struct ends *ends, const json_t *config);

/* What generate() of transformers stops at: as generation_config.json says, else config.json, else
 * the tokenizer (optional). */
enum sotto_status ends_read(struct ends *ends, const char *folder,
                            const struct tokenizer *tokenizer);

bool ends_have(const struct ends *ends, int id);
/* A number, or a list of several; a new reference. */
json_t *ends_to_json(const struct ends *ends);

#endif
