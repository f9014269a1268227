/* Parts that models over images share: sizes in config.json and in checks. */
#ifndef SOTTO_NN_ARCH_IMAGE_H
#define SOTTO_NN_ARCH_IMAGE_H

#include "nn/arch/build.h"

enum sotto_status image_check(const struct image_sizes *s, const char *arch);

/* Reads num_channels, image_size (optional) and the classes, by name or number; image_write writes
 * them. */
enum sotto_status image_read(struct image_sizes *s, const json_t *json);
void image_write(const struct image_sizes *s, json_t *json);

/* Writes id2label and label2id. `names` (optional): (classes), NULL for a class without a name. */
void image_write_classes(json_t *json, char *const *names, int classes);
/* Returns config.json's name for class i; NULL if the class has only a number. */
const char *image_class_name(const json_t *json, int i);

/* Returns a sample of one image. `positions`: of a sequence that the model makes of an image; 1:
 * none. */
struct sample image_sample(const struct image_sizes *s, int positions);

/* Reads an integer if the member is there. */
enum sotto_status image_integer(const json_t *json, const char *key, int *out);

#endif
