/* The inside of an open loader of images; for fill.c and open.c only. */
#ifndef SOTTO_DATA_IMAGE_IMAGE_IMPL_H
#define SOTTO_DATA_IMAGE_IMAGE_IMPL_H

#include "data/image/images.h"

struct images {
    struct loader base;
    struct image_set set; /* all images read */
    bool borrowed;        /* the set is another loader's */
    int64_t *begin, *end; /* (n_sources): images of the set that belong to the split */
    int64_t *before;      /* (n_sources + 1): images of the split in sources before */
    enum data_sharding sharding;
    double held_out; /* fraction of each source for validation; 0: none */
    int crop;
    bool flip;
    struct image_norm norm;
    float value[IMAGES_CHANNELS][256]; /* normalised value of each byte */
};

extern const struct loader_ops images_ops;
void images_close(struct loader *loader);
const struct images *images_of(const struct loader *loader);

#endif
