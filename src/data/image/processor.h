/* preprocessor_config.json of a Hugging Face folder: the preparation of images as a model's input.
 */
#ifndef SOTTO_DATA_IMAGE_PROCESSOR_H
#define SOTTO_DATA_IMAGE_PROCESSOR_H

#include "base/json.h"
#include "data/image/norm.h"

#define PROCESSOR_FILE "preprocessor_config.json"

struct image_processor {
    int height, width; /* 0: not known */
    int resize;        /* enum data_resize */
    double keep;       /* share of the shorter side that is visible; 1: all */
    enum picture_filter filter;
    struct image_norm norm;
};

/* Reads the folder's file, with the defaults of transformers for absent members; nothing without a
 * file, or without a folder (""). `model_type`: from config.json, or NULL. */
enum sotto_status processor_read(struct image_processor *p, const char *folder);
enum sotto_status processor_from_json(struct image_processor *p, const json_t *json,
                                      const char *model_type);

/* Returns a new reference in transformers' format, NULL without memory. */
json_t *processor_to_json(const struct image_processor *p);

#endif
