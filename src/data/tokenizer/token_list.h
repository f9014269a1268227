/* A growing list of token ids. Start from {0}; the caller frees `data`. */
#ifndef SOTTO_DATA_TOKENIZER_TOKEN_LIST_H
#define SOTTO_DATA_TOKENIZER_TOKEN_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct token_list {
    int32_t *data;
    size_t count, room;
};

/* Makes room for `more` ids; appends one id. */
enum sotto_status token_list_reserve(struct token_list *list, size_t more);
enum sotto_status token_list_add(struct token_list *list, int32_t id);

#endif
