/* Checks that all elements of a tensor are finite, by their exponents, at the speed of memory. */
#include <string.h>

#include "io/safetensors.h"

enum { PIECE = 4096 }; /* elements between two looks at the result */

static bool all_finite32(const uint8_t *from, size_t count)
{
    const uint32_t exponent = 0x7f800000;
    bool bad = false;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, from + 4 * i, sizeof bits);
        bad |= (bits & exponent) == exponent;
    }
    return !bad;
}

static bool all_finite16(const uint8_t *from, size_t count, uint16_t exponent)
{
    bool bad = false;
    for (size_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, from + 2 * i, sizeof bits);
        bad |= (bits & exponent) == exponent;
    }
    return !bad;
}

enum sotto_status safetensors_check_numbers(const struct safetensors_entry *entry, size_t offset,
                                            size_t count)
{
    const size_t size = safetensors_type_size(entry->type);
    bool good = true;
    for (size_t done = 0; done < count && good; done += PIECE) {
        const size_t n = count - done < PIECE ? count - done : PIECE;
        const uint8_t *from = entry->data + (offset + done) * size;
        if (entry->type == SAFETENSORS_F32)
            good = all_finite32(from, n);
        else if (entry->type == SAFETENSORS_BF16)
            good = all_finite16(from, n, 0x7f80);
        else if (entry->type == SAFETENSORS_F16)
            good = all_finite16(from, n, 0x7c00);
        else
            break;
    }
    return good ? SOTTO_OK
                : fail(SOTTO_EFORMAT, "tensor '%.200s' holds values that are no numbers",
                       entry->name);
}
