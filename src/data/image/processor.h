/* preprocessor_config.json: how images are made the input of a model, in a Hugging Face folder. */
#ifndef SOTTO_DATA_IMAGE_PROCESSOR_H
#define SOTTO_DATA_IMAGE_PROCESSOR_H

#include "base/json.h"
#include "data/image/norm.h"

#define PROCESSOR_FILE "preprocessor_config.json"

struct image_processor {
    int height, width; /* 0: not said */
    int resize;        /* enum data_resize */
    double keep;       /* the shorter side of what is seen, of the whole image's; 1: all */
    enum picture_filter filter;
    struct image_norm norm;
};

/* What the folder's file says, and for what it does not say what transformers takes there; nothing
 * where there is no file, or "" for no folder. `model_type`: of its config.json, or NULL. */
enum sotto_status processor_read(struct image_processor *p, const char *folder);
enum sotto_status processor_from_json(struct image_processor *p, const json_t *json,
                                      const char *model_type);

/* A new reference, NULL without memory: one that transformers reads. */
json_t *processor_to_json(const struct image_processor *p);

#endif
