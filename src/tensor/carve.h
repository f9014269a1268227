/* Memory that one taker divides into pieces, front to back, each starting on a cache line.
 *
 * Under AddressSanitizer nobody may touch what lies between two pieces, nor what a taker did not
 * ask for, so that an op that leaves its piece is caught where it does, not where it is noticed. */
#ifndef SOTTO_TENSOR_CARVE_H
#define SOTTO_TENSOR_CARVE_H

#include <assert.h>

#include "base/sanitized.h"
#include "tensor/dtype.h"

#ifdef SANITIZED_ADDRESS
#include <sanitizer/asan_interface.h>
enum { CARVE_GUARD = 64 }; /* bytes behind a piece */
#else
enum { CARVE_GUARD = 0 };
#endif

/* Of `all` bytes of memory the first `used` may be touched from now on. Nobody touches a device's
 * from here, and its ops may still be busy with what is limited now. */
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
    char *data;        /* 64-byte aligned; NULL: pieces are only counted */
    size_t used, size; /* bytes */
    enum place place;
};

/* Bytes that a piece takes. */
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
