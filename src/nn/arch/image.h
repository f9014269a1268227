/* What models over images share: their sizes in config.json and in checks. */
#ifndef SOTTO_NN_ARCH_IMAGE_H
#define SOTTO_NN_ARCH_IMAGE_H

#include "nn/arch/build.h"

enum sotto_status image_check(const struct image_sizes *s, const char *arch);

/* num_channels, image_size (optional) and the classes, by their names or their number. */
enum sotto_status image_read(struct image_sizes *s, const json_t *json);
void image_write(const struct image_sizes *s, json_t *json);

/* id2label and label2id. `names` (optional): (classes), NULL: one without. */
void image_write_classes(json_t *json, char *const *names, int classes);
/* ... and what config.json calls class i; NULL: it has a number only. */
const char *image_class_name(const json_t *json, int i);

/* `positions`: that the model cuts an image into. */
struct sample image_sample(const struct image_sizes *s, int positions);

/* An integer, where there is one. */
enum sotto_status image_integer(const json_t *json, const char *key, int *out);

#endif
