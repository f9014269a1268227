/* Files of token ids, memory-mapped: sotto's own, llm.c's, and raw uint16.
 *
 * sotto's own, all little endian:
 *      0  "SOTTOTOK"
 *      8  uint32 version (1)
 *     12  uint32 width: bytes an id, 2 or 4
 *     16  uint64 vocab: upper limit of the ids, at most 2^31 - 1
 *     24  uint64 count
 *     32  count ids, and no more bytes
 *
 * Ids are checked on reading, in tokens_copy, so that opening a file of any size costs nothing.
 * Formats without a vocabulary are scanned once when opened (at memory speed) to find it. */
#ifndef SOTTO_DATA_TEXT_TOKEN_FILES_H
#define SOTTO_DATA_TEXT_TOKEN_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"

struct tokens {
    struct file_map map;
    const uint8_t *data; /* first id, in the map or, for tokens made in memory, in `owned` */
    int width;           /* bytes an id: 2 or 4, little endian; 4 and native in `owned` */
    int64_t count;
    int64_t vocab; /* upper limit of the ids of tokens_copy */
    int32_t *owned;
};

/* Recognises the header; `raw`: a file without a header, uint16 from its first byte. */
enum sotto_status tokens_open(struct tokens *tokens, const char *path, bool raw);
/* Opens a mapping or a buffer in memory, which must outlive `tokens`; `name` is for messages. */
enum sotto_status tokens_parse(struct tokens *tokens, const uint8_t *data, size_t size,
                               const char *name, bool raw);
/* Takes over `ids` (malloc), each less than `vocab`. */
void tokens_adopt(struct tokens *tokens, int32_t *ids, int64_t count, int64_t vocab);
void tokens_close(struct tokens *tokens);

/* Copies ids [start, start + count) into `out`; an id that is not less than `vocab` is an error
 * with its position. */
enum sotto_status tokens_copy(const struct tokens *tokens, int64_t start, int64_t count,
                              int32_t *out);

/* True if the bytes begin like a token file with a header. */
bool tokens_recognise(const uint8_t *data, size_t size);

/* Writes sotto's own format, atomically; uint16 when the vocabulary allows. */
enum sotto_status tokens_save(const char *path, const int32_t *ids, int64_t count, int64_t vocab);

#endif
