/* A set of images in memory, all of one size, with the class of each. One byte a value; shared by
 * all workers of a process, and read-only once open. */
#ifndef SOTTO_DATA_IMAGE_SET_H
#define SOTTO_DATA_IMAGE_SET_H

#include "data/config.h"

enum { IMAGES_CHANNELS = 3, IMAGES_SIDE = 1 << 14, IMAGES_CLASSES = 1 << 20 };

/* One image: (height, width, channels), row after row, grey or red, green, blue. */
struct picture {
    int height, width, channels;
    uint8_t *pixels; /* owned by the maker */
};

/* Filters for other sizes. All but the last average the pixels that they shrink. */
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
    int resize;                  /* enum data_resize, for images of another size */
    bool given;                  /* the size is fixed: other images are resized */
    double keep; /* DATA_CROP: visible share of the shorter side, for every image; 0: all */
    enum picture_filter filter;
    int64_t count, room;
    uint8_t *pixels; /* (count, height, width, channels) */
    int32_t *labels; /* (count), in [0, classes) */
    int classes;
    char **names;    /* (classes), sorted; NULL: classes have numbers only */
    int n_sources;   /* files, or folders of classes */
    int64_t *before; /* (n_sources + 1): images in earlier sources */
    char **source;   /* (n_sources): their names */
};

/* Makes room for `count` more images, of the given size if the set has none yet; refused if the
 * memory left is not enough. */
enum sotto_status image_set_reserve(struct image_set *set, int64_t count, int height, int width,
                                    int channels);

/* Appends an image into reserved room, converted to the set's size and channels; `name` is for the
 * message if it cannot be converted. */
enum sotto_status image_set_put(struct image_set *set, const struct picture *p, int label,
                                const char *name);

/* Ends the source of this name, with the images since the last call, of which there must be some.
 */
enum sotto_status image_set_end_source(struct image_set *set, const char *name);
void image_set_free(struct image_set *set);

static inline size_t image_set_bytes(const struct image_set *set) /* of an image */
{
    return (size_t)set->height * (size_t)set->width * (size_t)set->channels;
}

/* Resizes `p` into `out` (height, width, channels of p), by a filter as wide as a pixel of the
 * larger image. */
enum sotto_status picture_resize(const struct picture *p, int resize, double keep,
                                 enum picture_filter filter, struct picture *out);

/* Readers of formats: bytes of a file into the set; `name` is the file's. Accepted files are
 * checked to the last byte. */
enum sotto_status cifar_read(struct image_set *set, const uint8_t *data, size_t size,
                             const char *name, bool hundred);
enum sotto_status idx_read(struct image_set *set, const uint8_t *images, size_t images_size,
                           const char *images_name, const uint8_t *labels, size_t labels_size,
                           const char *labels_name);

/* Reads one image; the caller frees the pixels. */
enum sotto_status ppm_read(struct picture *out, const uint8_t *data, size_t size, const char *name);
enum sotto_status png_read(struct picture *out, const uint8_t *data, size_t size, const char *name);
enum sotto_status picture_read(struct picture *out, const uint8_t *data, size_t size,
                               const char *name); /* any of the two formats */

/* True if a file begins like this format; for IDX the bytes that the header claims, 0 for another
 * format. */
bool png_recognise(const uint8_t *data, size_t size);
bool ppm_recognise(const uint8_t *data, size_t size);
uint64_t idx_claims(const uint8_t *data, size_t size);

/* A file, decompressed if compressed with gzip: an IDX file then, of the claimed length. */
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
