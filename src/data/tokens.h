/* Files of token ids, memory-mapped: sotto's own (with a header), llm.c's, and raw uint16. */
#ifndef SOTTO_DATA_TOKENS_H
#define SOTTO_DATA_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"

struct tokens {
    struct file_map map;
    const uint8_t *data; /* first id, in the map or, for tokens made in memory, in `owned` */
    int width;           /* bytes an id: 2 or 4, little endian                             */
    int64_t count;
    int64_t vocab; /* as the header says, 0 if it does not: every id was checked against it or, if 0, is
                      checked by the reader */
    int32_t *owned;
};

static inline int32_t tokens_at(const struct tokens *t, int64_t i)
{
    const uint8_t *p = t->data + i * t->width;
    if (t->width == 2)
        return p[0] | p[1] << 8;
    return (int32_t)(p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
}

/* Recognises the header; a file without one is raw uint16 only when `raw` says so. */
enum sotto_status tokens_open(struct tokens *tokens, const char *path, bool raw);
/* Takes over `ids` (malloc). */
void tokens_adopt(struct tokens *tokens, int32_t *ids, int64_t count, int64_t vocab);
void tokens_close(struct tokens *tokens);

/* Writes sotto's own format, atomically; uint16 when the vocabulary allows. */
enum sotto_status tokens_save(const char *path, const int32_t *ids, int64_t count, int64_t vocab);

#endif
