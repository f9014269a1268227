/* Loaders of images: CIFAR's binary files, IDX, or a folder of PNG, PPM and PGM files for each
 * class. A split is in memory once for all workers; which image stands in which row, how it is
 * moved and whether it is mirrored are pure functions of (seed, index, rank).
 *
 * Let W be the images that a worker shares with `members` - 1 others and g count the rows that all
 * of them ask for: g = (index * members + member) * rows + row. Row g is image pi_e(g mod W) of
 * epoch e = g / W, changed as drawn for (seed, g). In evaluation images come in order and as they
 * are. */
#ifndef SOTTO_DATA_IMAGE_IMAGES_H
#define SOTTO_DATA_IMAGE_IMAGES_H

#include "data/image/processor.h"
#include "data/loader.h"

/* When classes that are folders have the model's numbers, by its names for them, and not those of
 * their own sorted names. */
enum images_naming {
    NAMING_OWN,   /* never, it has no names */
    NAMING_SAME,  /* where both have the same ones, in whatever order */
    NAMING_KNOWN, /* where it knows all of them */
    NAMING_ONLY   /* always: others are an error */
};

/* What the model says. */
struct images_setup {
    int height, width, channels;             /* that it wants; 0: any */
    const struct image_processor *processor; /* (optional) how its images are made */
    enum images_naming naming;
    char *const *names; /* (classes), unless naming is OWN; "": one without */
    int classes;
};

/* Images of a split. DATA_VALID without data.valid is the test part of the folders that have one,
 * else what training holds out. Sizes are those that the model wants, else those of `config`, of
 * the processor, or of the images; mean and standard deviation those of `config`, of the processor,
 * or of the images of DATA_TRAIN: for others they must be said. */
enum sotto_status images_open(struct loader **out, const struct data_config *config,
                              enum data_split split, const struct images_setup *setup);

/* What validates `train`, opened with the same configuration, and read as its images are; `*out`
 * NULL: nothing. `train` must outlive it. */
enum sotto_status images_open_valid(struct loader **out, const struct loader *train,
                                    const struct data_config *config);

const struct image_set *images_set(const struct loader *loader);
const struct image_norm *images_norm(const struct loader *loader);

/* How these images were made, for whoever uses the model. */
struct image_processor images_processor(const struct loader *loader);

/* What the words of data.train hold, told by names and first bytes: a format of images, or
 * DATA_AUTO where they do not look like any. */
enum data_format images_recognise(const struct data_config *config);

#endif
