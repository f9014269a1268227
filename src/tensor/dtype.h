/* Element types, and views of elements. bf16 is the upper half of an fp32; rounding is to
 * nearest, ties to even. Arithmetic is in fp32 and bf16; int32 and uint8 hold tokens, targets
 * and marks. */
#ifndef SOTTO_TENSOR_DTYPE_H
#define SOTTO_TENSOR_DTYPE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum dtype { DTYPE_F32, DTYPE_BF16, DTYPE_I32, DTYPE_U8 };

static inline size_t dtype_size(enum dtype type)
{
    return type == DTYPE_BF16 ? 2 : type == DTYPE_U8 ? 1 : 4;
}

static inline float bf16_widen(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline uint16_t bf16_round(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if ((bits & 0x7fffffffu) > 0x7f800000u) /* NaN stays NaN */
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Owner of memory: the host, where any code may read and write, or a device, where only its ops
 * may. */
enum place { PLACE_HOST, PLACE_DEVICE };

/* Elements in a buffer, passed by value. `data` NULL: absent (but see view_there). */
struct view {
    void *data;
    enum dtype type;
    enum place place;
};

/* Returns a view of host memory. */
static inline struct view view_of(void *data, enum dtype type)
{
    return (struct view){data, type, PLACE_HOST};
}

static inline struct view view_at(struct view v, size_t element)
{
    if (v.data)
        v.data = (char *)v.data + element * dtype_size(v.type);
    return v;
}

static const struct view view_none = {NULL, DTYPE_F32, PLACE_HOST};

/* True if the view is present. Views of a counting device for a GPU are present and have no
 * data. */
static inline bool view_there(struct view v)
{
    return v.data || v.place != PLACE_HOST;
}

/* Returns the elements of a view of host memory, for access on the host. */
static inline void *view_host(struct view v)
{
    assert(!v.data || v.place == PLACE_HOST);
    return v.data;
}

#endif
