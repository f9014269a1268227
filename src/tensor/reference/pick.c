/* Reference ops on selected elements of vectors, and on packed signs. */
#include <math.h>

#include "tensor/cpu/cpu.h"
#include "tensor/reference/reference.h"

static size_t selected_element(const struct picks *p, struct view index, size_t i)
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
        const size_t e = selected_element(p, index, i);
        set_value(value, i, get_value(m, e));
        set_value(m, e, get_value(m, e) - get_value(value, i));
    }
}

void reference_put(struct device *dev, const struct picks *p, struct view y, float a,
                   struct view value, struct view index)
{
    (void)dev;
    for (size_t i = 0; i < p->count; i++)
        set_value(y, selected_element(p, index, i), a * get_value(value, i));
}

void reference_signs_pack(struct device *dev, struct view y, struct view x, size_t count)
{
    uint8_t *to = y.data;
    (void)dev;
    for (size_t i = 0; i < count; i++) {
        const int bits = isnan(get_value(x, i)) ? 2
                         : get_value(x, i) > 0  ? 1
                         : get_value(x, i) < 0  ? 3
                                                : 0;
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
