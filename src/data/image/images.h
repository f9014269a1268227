/* Loaders of images: CIFAR's binary files, IDX, or a folder of PNG, PPM and PGM files for each
 * class. A split is in memory once for all workers; the order of images, their shifts and mirroring
 * are pure functions of (seed, index, rank).
 *
 * Let W be the images that a worker shares with `members` - 1 other workers and g count the rows of
 * all these workers: g = (index * members + member) * rows + row. Row g is image pi_e(g mod W) of
 * epoch e = g / W, changed as drawn for (seed, g). Evaluation reads images in order and unchanged.
 */
#ifndef SOTTO_DATA_IMAGE_IMAGES_H
#define SOTTO_DATA_IMAGE_IMAGES_H

#include "data/image/processor.h"
#include "data/loader.h"

/* Conditions under which folders of classes get the model's numbers for their names, instead of the
 * numbers of their own sorted names. */
enum images_naming {
    NAMING_OWN,   /* never: the model has no names */
    NAMING_SAME,  /* if both have the same names, in any order */
    NAMING_KNOWN, /* if the model has all the names */
    NAMING_ONLY   /* always; another name is an error */
};

/* Requirements of the model. */
struct images_setup {
    int height, width, channels;             /* required sizes; 0: any */
    const struct image_processor *processor; /* (optional) the model's preprocessing */
    enum images_naming naming;
    char *const *names; /* (classes), unless naming is OWN; "": a class without a name */
    int classes;
};

/* Opens the images of a split. DATA_VALID without data.valid is the test part of folders with such
 * a part, else the held-out part of the training data. Sizes are those of the model, else of
 * `config`, of the processor, or of the images; mean and standard deviation are those of `config`,
 * of the processor, or of the images of DATA_TRAIN; an error if none of these has them. */
enum sotto_status images_open(struct loader **out, const struct data_config *config,
                              enum data_split split, const struct images_setup *setup);

/* Opens the images that validate `train`, opened with the same configuration, and reads them in the
 * same way; `*out` NULL: there are none. `train` must outlive it. */
enum sotto_status images_open_valid(struct loader **out, const struct loader *train,
                                    const struct data_config *config);

const struct image_set *images_set(const struct loader *loader);
const struct image_norm *images_norm(const struct loader *loader);

/* Returns the preprocessing of these images, for users of the model. */
struct image_processor images_processor(const struct loader *loader);

/* Returns the format of the words of data.train, by names and first bytes: a format of images, or
 * DATA_AUTO if they do not look like images. */
enum data_format images_recognise(const struct data_config *config);

#endif
