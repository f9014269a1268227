/* The oracle of elements that are picked out of vectors, and of packed signs. */
#include <math.h>

#include "tensor/cpu/cpu.h"
#include "tensor/reference/reference.h"

static size_t element(const struct picks *p, struct view index, size_t i)
{
    return index.data ? (size_t)((const int32_t *)index.data)[i] : p->first + i * p->stride;
}

void reference_choose(struct device *dev, const struct shuffle *p, struct view index, size_t count)
{
    (void)dev;
    for (size_t i = 0; i < count; i++)
        ((int32_t *)index.data)[i] = (int32_t)shuffle_at(p, (uint32_t)i);
}

void reference_pick(struct device *dev, const struct picks *p, struct view value, struct view m,
                    struct view index)
{
    (void)dev;
    for (size_t i = 0; i < p->count; i++) {
        const size_t e = element(p, index, i);
        put(value, i, get(m, e));
        put(m, e, get(m, e) - get(value, i));
    }
}

void reference_put(struct device *dev, const struct picks *p, struct view y, float a,
                   struct view value, struct view index)
{
    (void)dev;
    for (size_t i = 0; i < p->count; i++)
        put(y, element(p, index, i), a * get(value, i));
}

void reference_signs_pack(struct device *dev, struct view y, struct view x, size_t count)
{
    uint8_t *to = y.data;
    (void)dev;
    for (size_t i = 0; i < count; i++) {
        const int bits = isnan(get(x, i)) ? 2 : get(x, i) > 0 ? 1 : get(x, i) < 0 ? 3 : 0;
        to[i / 4] = (uint8_t)((i % 4 ? to[i / 4] : 0) | bits << 2 * (i % 4));
    }
}

void reference_signs_unpack(struct device *dev, struct view y, struct view x, size_t count,
                            bool add)
{
    (void)dev;
    for (size_t i = 0; i < count; i++) {
        const int bits = ((const uint8_t *)x.data)[i / 4] >> 2 * (i % 4) & 3;
        put_add(y, i, bits == 3 ? -1 : bits == 2 ? NAN : bits, add);
    }
}
