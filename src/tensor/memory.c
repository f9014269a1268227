#include "tensor/memory.h"

#include <assert.h>
#include <stdlib.h>

const char *memory_category_name(enum memory_category category)
{
    static const char *const name[MEMORY_CATEGORIES] = {
        "parameters", "gradients",   "optimizer", "communication",
        "outer",      "activations", "scratch",   "checkpoint",
    };
    return name[category];
}

static void raise_peak(atomic_size_t *peak, size_t value)
{
    size_t seen = atomic_load(peak);
    while (seen < value && !atomic_compare_exchange_weak(peak, &seen, value))
        ;
}

void memory_add(struct memory *memory, enum memory_category category, size_t bytes)
{
    raise_peak(&memory->peak[category], atomic_fetch_add(&memory->now[category], bytes) + bytes);
    raise_peak(&memory->total_peak, atomic_fetch_add(&memory->total, bytes) + bytes);
}

void memory_remove(struct memory *memory, enum memory_category category, size_t bytes)
{
    size_t before = atomic_fetch_sub(&memory->now[category], bytes);
    assert(before >= bytes);
    (void)before;
    atomic_fetch_sub(&memory->total, bytes);
}

void *memory_resize(struct memory *memory, enum memory_category category, void *data, size_t before,
                    size_t after)
{
    void *more = realloc(data, after ? after : 1);
    if (!more)
        return NULL;
    memory_add(memory, category, after);
    memory_remove(memory, category, before);
    return more;
}

void memory_give(struct memory *memory, enum memory_category category, void *data, size_t bytes)
{
    if (!data)
        return;
    free(data);
    memory_remove(memory, category, bytes);
}
