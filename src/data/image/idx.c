/* IDX, the format of MNIST and Fashion-MNIST: a magic number with the type of the elements and the
 * number of dimensions, the dimensions, and the elements; numbers are big-endian. Images and
 * labels, of bytes, are in two files. */
#include "data/image/set.h"

enum { IMAGES = 0x803, LABELS = 0x801, IMAGES_HEAD = 16, LABELS_HEAD = 8 };

static uint32_t idx_number(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

uint64_t idx_claims(const uint8_t *data, size_t size)
{
    if (size >= LABELS_HEAD && idx_number(data) == LABELS)
        return LABELS_HEAD + (uint64_t)idx_number(data + 4);
    if (size < IMAGES_HEAD || idx_number(data) != IMAGES || idx_number(data + 8) > IMAGES_SIDE ||
        idx_number(data + 12) > IMAGES_SIDE)
        return 0;
    return IMAGES_HEAD + (uint64_t)idx_number(data + 4) *
                             ((uint64_t)idx_number(data + 8) * idx_number(data + 12));
}

static enum sotto_status check_idx_head(const uint8_t *data, size_t size, const char *name,
                                        uint32_t magic)
{
    const char *what = magic == IMAGES ? "images" : "labels";
    const size_t head = magic == IMAGES ? IMAGES_HEAD : LABELS_HEAD;
    if (size < head)
        return fail(SOTTO_EFORMAT, "%s has %zu bytes: IDX %s begin with a header of %zu", name,
                    size, what, head);
    if (idx_number(data) != magic)
        return fail(SOTTO_EFORMAT, "%s begins with 0x%08x: IDX %s of bytes begin with 0x%08x", name,
                    idx_number(data), what, magic);
    if (idx_number(data + 4) == 0)
        return fail(SOTTO_EFORMAT, "%s holds no %s", name, what);
    if (magic == IMAGES) {
        const uint32_t height = idx_number(data + 8), width = idx_number(data + 12);
        if (height < 1 || height > IMAGES_SIDE || width < 1 || width > IMAGES_SIDE)
            return fail(SOTTO_EFORMAT, "%s claims images of %u x %u: want 1 to %d", name, height,
                        width, IMAGES_SIDE);
    }
    if (idx_claims(data, size) != size)
        return fail(SOTTO_EFORMAT, "%s has %zu bytes, but its header claims %u %s, %llu bytes",
                    name, size, idx_number(data + 4), what,
                    (unsigned long long)idx_claims(data, size));
    return SOTTO_OK;
}

enum sotto_status idx_read(struct image_set *set, const uint8_t *images, size_t images_size,
                           const char *images_name, const uint8_t *labels, size_t labels_size,
                           const char *labels_name)
{
    TRY(check_idx_head(images, images_size, images_name, IMAGES));
    TRY(check_idx_head(labels, labels_size, labels_name, LABELS));
    const uint32_t count = idx_number(images + 4);
    const int height = (int)idx_number(images + 8), width = (int)idx_number(images + 12);
    if (idx_number(labels + 4) != count)
        return fail(SOTTO_EFORMAT, "%s has %u images, %s %u labels", images_name, count,
                    labels_name, idx_number(labels + 4));
    TRY(image_set_reserve(set, count, height, width, 1));
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *from = images + IMAGES_HEAD + (size_t)i * (size_t)height * (size_t)width;
        const struct picture p = {height, width, 1, (uint8_t *)from}; /* only read */
        const int label = labels[LABELS_HEAD + i];
        if (label >= set->classes)
            set->classes = label + 1;
        TRY(image_set_put(set, &p, label, images_name));
    }
    return image_set_end_source(set, images_name);
}
