/* CIFAR's binary files: records of a label (CIFAR-100: a coarse and a fine one) and 32 x 32 values
 * of red, then of green, then of blue. */
#include "data/image/set.h"

enum { SIDE = 32, PLANE = SIDE * SIDE, COLOURS = 3 };

enum sotto_status cifar_read(struct image_set *set, const uint8_t *data, size_t size,
                             const char *name, bool hundred)
{
    const size_t labels = hundred ? 2 : 1, record = labels + COLOURS * PLANE;
    const int classes = hundred ? 100 : 10;
    uint8_t pixels[COLOURS * PLANE];
    const struct picture p = {SIDE, SIDE, COLOURS, pixels};
    if (size == 0 || size % record)
        return fail(SOTTO_EFORMAT,
                    "%s has %zu bytes: %s has records of %zu, of which that is no multiple", name,
                    size, hundred ? "CIFAR-100" : "CIFAR-10", record);
    TRY(image_set_reserve(set, (int64_t)(size / record), SIDE, SIDE, COLOURS));
    set->classes = classes;
    for (size_t i = 0; i < size / record; i++) {
        const uint8_t *from = data + i * record;
        const int label = from[labels - 1];
        if (label >= classes)
            return fail(SOTTO_EFORMAT, "%s: image %zu has label %d, %s has %d classes", name, i,
                        label, hundred ? "CIFAR-100" : "CIFAR-10", classes);
        for (int k = 0; k < PLANE; k++)
            for (int c = 0; c < COLOURS; c++)
                pixels[k * COLOURS + c] = from[labels + (size_t)(c * PLANE + k)];
        TRY(image_set_put(set, &p, label, name));
    }
    return image_set_end_source(set, name);
}
