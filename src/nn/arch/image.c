#include "nn/arch/image.h"

#include <stdio.h>
#include <string.h>

#define IMAGE_UNNAMED "LABEL_%d" /* as transformers calls a class without a name */

enum sotto_status image_check(const struct image_sizes *s, const char *arch)
{
    if (s->height < 1 || s->width < 1 || s->channels < 1 || s->classes < 1)
        return fail(SOTTO_EINVAL,
                    "%s needs height, width, channels and classes of at least 1: got %d, %d, %d, "
                    "%d",
                    arch, s->height, s->width, s->channels, s->classes);
    if (s->height > IMAGE_SIDE || s->width > IMAGE_SIDE || s->channels > IMAGE_CHANNELS ||
        s->classes > IMAGE_CLASSES)
        return fail(SOTTO_EINVAL, "sizes of %s are out of range: %d x %d x %d, %d classes", arch,
                    s->height, s->width, s->channels, s->classes);
    return SOTTO_OK;
}

enum sotto_status image_integer(const json_t *json, const char *key, int *out)
{
    const json_t *value = json_object_get(json, key);
    if (!value || json_is_null(value))
        return SOTTO_OK;
    if (!json_is_integer(value))
        return fail(SOTTO_EFORMAT, "\"%s\" must be an integer, got %s", key, json_kind(value));
    const json_int_t number = json_integer_value(value);
    if (number < 0 || number > 1 << 24)
        return fail(SOTTO_EFORMAT, "\"%s\" = %lld is out of range", key, (long long)number);
    *out = (int)number;
    return SOTTO_OK;
}

/* Reads one number, or height and width. */
static enum sotto_status read_sides(struct image_sizes *s, const json_t *json)
{
    const json_t *value = json_object_get(json, "image_size");
    const json_t *h = json_array_get(value, 0), *w = json_array_get(value, 1);
    if (!json_is_array(value)) {
        TRY(image_integer(json, "image_size", &s->height));
        s->width = s->height;
        return SOTTO_OK;
    }
    if (json_array_size(value) != 2 || !json_is_integer(h) || !json_is_integer(w) ||
        json_integer_value(h) < 1 || json_integer_value(h) > IMAGE_SIDE ||
        json_integer_value(w) < 1 || json_integer_value(w) > IMAGE_SIDE)
        return fail(SOTTO_EFORMAT, "\"image_size\" must be height and width, from 1 to %d",
                    IMAGE_SIDE);
    s->height = (int)json_integer_value(h);
    s->width = (int)json_integer_value(w);
    return SOTTO_OK;
}

enum sotto_status image_read(struct image_sizes *s, const json_t *json)
{
    const json_t *labels = json_object_get(json, "id2label");
    s->channels = 3;
    s->classes = 2; /* the default of transformers */
    TRY(image_integer(json, "num_channels", &s->channels));
    TRY(image_integer(json, "num_labels", &s->classes));
    TRY(read_sides(s, json));
    if (json_is_object(labels) && json_object_size(labels) <= IMAGE_CLASSES)
        s->classes = (int)json_object_size(labels);
    return SOTTO_OK;
}

void image_write_classes(json_t *json, char *const *names, int classes)
{
    json_t *by_number = json_object(), *by_name = json_object();
    for (int i = 0; i < classes; i++) {
        char number[16], unnamed[32];
        snprintf(number, sizeof number, "%d", i);
        snprintf(unnamed, sizeof unnamed, IMAGE_UNNAMED, i);
        json_t *name = names && names[i] ? json_string(names[i]) : NULL;
        if (!name) /* no name, or a name that is not UTF-8 */
            name = json_string(unnamed);
        json_object_set_new(by_name, json_string_value(name), json_integer(i));
        json_object_set_new(by_number, number, name);
    }
    json_object_set_new(json, "id2label", by_number);
    json_object_set_new(json, "label2id", by_name);
}

const char *image_class_name(const json_t *json, int i)
{
    char number[16], unnamed[32];
    snprintf(number, sizeof number, "%d", i);
    snprintf(unnamed, sizeof unnamed, IMAGE_UNNAMED, i);
    const char *name =
        json_string_value(json_object_get(json_object_get(json, "id2label"), number));
    return name && strcmp(name, unnamed) != 0 ? name : NULL;
}

void image_write(const struct image_sizes *s, json_t *json)
{
    image_write_classes(json, NULL, s->classes);
    json_object_set_new(json, "num_channels", json_integer(s->channels));
    json_object_set_new(json, "image_size",
                        s->height == s->width ? json_integer(s->height)
                                              : json_pack("[i, i]", s->height, s->width));
}

struct sample image_sample(const struct image_sizes *s, int positions)
{
    return (struct sample){.content = SAMPLE_FLOATS,
                           .dims = {s->height, s->width, s->channels},
                           .targets = 1,
                           .positions = positions};
}
