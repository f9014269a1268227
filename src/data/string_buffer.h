/* A growing string of bytes. Start from {0}; text_status reports a failed allocation. */
#ifndef SOTTO_DATA_STRING_BUFFER_H
#define SOTTO_DATA_STRING_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct text {
    char *data; /* NUL after the last byte; NULL while empty */
    size_t size, room;
    bool failed;
};

void text_put(struct text *text, const char *bytes, size_t count);
void text_add(struct text *text, const char *string);
void text_char(struct text *text, char c);
void text_clear(struct text *text); /* keeps the memory */
void text_free(struct text *text);
enum sotto_status text_status(const struct text *text);

#endif
