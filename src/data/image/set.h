/* A set of images in memory, all of one size, with the class of each. One byte a value; shared by
 * all workers of a process and only read once it is open. */
#ifndef SOTTO_DATA_IMAGE_SET_H
#define SOTTO_DATA_IMAGE_SET_H

#include "data/config.h"

enum { IMAGES_CHANNELS = 3, IMAGES_SIDE = 1 << 14, IMAGES_CLASSES = 1 << 20 };

/* One image: (height, width, channels), row after row, grey or red, green, blue. */
struct picture {
    int height, width, channels;
    uint8_t *pixels; /* owned by whoever made it */
};

/* By which pixels of another size are made. What shrinks is averaged by all but the last. */
enum picture_filter {
    FILTER_BILINEAR,
    FILTER_BICUBIC,
    FILTER_LANCZOS,
    FILTER_BOX,
    FILTER_HAMMING,
    FILTER_NEAREST
};

struct image_set {
    int height, width, channels; /* 0: of the first image */
    int resize;                  /* enum data_resize, where an image has another size */
    bool given;                  /* the size was asked for: others are brought to it */
    double keep; /* where that crops: the share of the shorter side that is seen, also of images
                    that have the size; 0: all */
    enum picture_filter filter;
    int64_t count, room;
    uint8_t *pixels; /* (count, height, width, channels) */
    int32_t *labels; /* (count), in [0, classes)          */
    int classes;
    char **names;    /* (classes), sorted; NULL: they have numbers only */
    int n_sources;   /* files, or classes where each has a folder       */
    int64_t *before; /* (n_sources + 1): images in the sources before   */
    char **source;   /* (n_sources): their names                        */
};

/* Room for `count` more images of the given size where the set has none yet; refused where it is
 * more than the memory that is left. */
enum sotto_status image_set_reserve(struct image_set *set, int64_t count, int height, int width,
                                    int channels);

/* Appends one for which there is room, brought to the set's size and channels; `name` for a message
 * where that is not to be done. */
enum sotto_status image_set_put(struct image_set *set, const struct picture *p, int label,
                                const char *name);

/* All images since the last call are of the source of this name, and there must be some. */
enum sotto_status image_set_end_source(struct image_set *set, const char *name);
void image_set_free(struct image_set *set);

static inline size_t image_set_bytes(const struct image_set *set) /* of an image */
{
    return (size_t)set->height * (size_t)set->width * (size_t)set->channels;
}

/* `p` into `out` (height, width, channels of p), by a filter as wide as a pixel of the larger. */
enum sotto_status picture_resize(const struct picture *p, int resize, double keep,
                                 enum picture_filter filter, struct picture *out);

/* Readers of formats: bytes of a file into the set; `name` is the file's. What they accept has been
 * checked to the last byte. */
enum sotto_status cifar_read(struct image_set *set, const uint8_t *data, size_t size,
                             const char *name, bool hundred);
enum sotto_status idx_read(struct image_set *set, const uint8_t *images, size_t images_size,
                           const char *images_name, const uint8_t *labels, size_t labels_size,
                           const char *labels_name);

/* One image; the caller frees its pixels. */
enum sotto_status ppm_read(struct picture *out, const uint8_t *data, size_t size, const char *name);
enum sotto_status png_read(struct picture *out, const uint8_t *data, size_t size, const char *name);
enum sotto_status picture_read(struct picture *out, const uint8_t *data, size_t size,
                               const char *name); /* whichever it is */

/* Whether a file begins like one; of IDX also the bytes that its header claims, 0: it is none. */
bool png_recognise(const uint8_t *data, size_t size);
bool ppm_recognise(const uint8_t *data, size_t size);
uint64_t idx_claims(const uint8_t *data, size_t size);

/* A file, uncompressed where it is gzip's: an IDX file then, of as many bytes as it claims. */
struct image_bytes {
    const uint8_t *data;
    size_t size;
    void *owned;
    struct {
        const uint8_t *data;
        size_t size;
    } map;
};
enum sotto_status image_bytes_open(struct image_bytes *b, const char *path);
void image_bytes_close(struct image_bytes *b);
enum sotto_status image_inflate(const uint8_t *data, size_t size, const char *name, uint8_t **out,
                                size_t *out_size);

#endif
