/* Mean and standard deviation of the values from 0 to 1, for bringing images to about the same
 * range. */
#ifndef SOTTO_DATA_IMAGE_NORM_H
#define SOTTO_DATA_IMAGE_NORM_H

#include "data/image/set.h"

struct image_norm {
    int channels; /* 0: not known; 1: the same for all channels */
    float mean[IMAGES_CHANNELS], std[IMAGES_CHANNELS];
};

/* Reads "0.5" or "0.49,0.48,0.45"; norm_print writes text that is read as the same numbers. */
enum sotto_status norm_parse(struct image_norm *norm, const char *mean, const char *std);
void norm_print(const float *values, int channels, char out[OPTION_ROOM]);

/* Returns the norm of images [begin, end) of each source, rounded as by norm_print. */
struct image_norm norm_of(const struct image_set *set, const int64_t *begin, const int64_t *end);

/* Repeats a norm of one channel for all channels. */
struct image_norm norm_spread(struct image_norm norm, int channels);

/* Fills the table of normalised values of each byte in a channel. */
void norm_table(const struct image_norm *norm, int channel, float table[256]);

#endif
