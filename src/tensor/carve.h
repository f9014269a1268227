/* Memory that is divided into pieces, front to back, each starting on a cache line.
 *
 * AddressSanitizer reports an access between two pieces or to memory not taken, so an op that
 * leaves its piece fails at the access and not at a later symptom. */
#ifndef SOTTO_TENSOR_CARVE_H
#define SOTTO_TENSOR_CARVE_H

#include <assert.h>

#include "base/sanitized.h"
#include "tensor/dtype.h"

#ifdef SANITIZED_ADDRESS
#include <sanitizer/asan_interface.h>
enum { CARVE_GUARD = 64 }; /* bytes after a piece */
#else
enum { CARVE_GUARD = 0 };
#endif

/* Makes only the first `used` of `all` bytes accessible to AddressSanitizer. Does nothing for
 * device memory, whose pending ops may still use the rest. */
static inline void carve_limit(struct view memory, size_t used, size_t all)
{
#ifdef SANITIZED_ADDRESS
    if (memory.data && memory.place == PLACE_HOST) {
        __asan_unpoison_memory_region(memory.data, used);
        __asan_poison_memory_region((char *)memory.data + used, all - used);
    }
#else
    (void)memory, (void)used, (void)all;
#endif
}

struct room {
    char *data;        /* 64-byte aligned, not owned; NULL: pieces are only counted */
    size_t used, size; /* bytes */
    enum place place;
};

/* Returns the bytes that a piece takes. */
static inline size_t carve_bytes(size_t count, enum dtype type)
{
    return (count * dtype_size(type) + 63) / 64 * 64 + CARVE_GUARD;
}

static inline struct view carve_piece(struct room *room, size_t count, enum dtype type)
{
    const size_t bytes = carve_bytes(count, type);
    struct view piece = {room->data ? room->data + room->used : NULL, type, room->place};
    room->used += bytes;
    assert(!room->data || room->used <= room->size);
    carve_limit(piece, count * dtype_size(type), bytes);
    return piece;
}

#endif
