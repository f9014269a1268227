#include "data/image/processor.h"

#include <math.h>
#include <string.h>

enum { LARGE = 384 }; /* from this side on, ConvNext's processor stretches and does not crop */

/* Defaults of a class of transformers. */
struct processor_kind {
    const char *type; /* beginning of "image_processor_type" */
    int side;         /* "size" */
    bool shorter;     /* "size" is the shorter side */
    int crop;         /* "crop_size"; 0: no crop */
    double keep;      /* "crop_pct" */
    enum picture_filter filter;
    struct image_norm norm;
};

static const struct processor_kind kind_vit = {
    "ViT", 224, false, 0, 1, FILTER_BILINEAR, {1, {0.5f}, {0.5f}}};
static const struct processor_kind kind_convnext = {
    "ConvNext", LARGE, true, 0, 224.0 / 256, FILTER_BICUBIC, {1, {0.5f}, {0.5f}}};
static const struct processor_kind kind_clip = {
    "CLIP",
    224,
    true,
    224,
    1,
    FILTER_BICUBIC,
    {3, {0.48145466f, 0.4578275f, 0.40821073f}, {0.26862954f, 0.26130258f, 0.27577711f}}};
static const struct processor_kind *const kinds[] = {&kind_vit, &kind_convnext, &kind_clip};

/* Returns the type in the file, under the new or the old key; NULL: none. */
static const char *processor_type(const json_t *json)
{
    const char *type = json_string_value(json_object_get(json, "image_processor_type"));
    return type ? type : json_string_value(json_object_get(json, "feature_extractor_type"));
}

/* Chooses the class as transformers does; NULL: a class without support here. */
static const struct processor_kind *find_processor_kind(const json_t *json, const char *model_type)
{
    const char *type = processor_type(json);
    for (size_t i = 0; type && i < sizeof kinds / sizeof *kinds; i++)
        if (strncmp(type, kinds[i]->type, strlen(kinds[i]->type)) == 0)
            return kinds[i];
    if (type)
        return NULL;
    const bool convnext = json_is_number(json_object_get(json, "crop_pct")) ||
                          (model_type && strcmp(model_type, "resnet") == 0);
    return convnext ? &kind_convnext : &kind_vit;
}

static bool is_member_on(const json_t *json, const char *key, bool otherwise)
{
    const json_t *value = json_object_get(json, key);
    return value && !json_is_null(value) ? json_is_true(value) : otherwise;
}

static enum sotto_status get_side(const json_t *value, const char *key, int *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 1 ||
        json_integer_value(value) > IMAGES_SIDE)
        return fail(SOTTO_EFORMAT, "\"%s\" must be an integer from 1 to %d", key, IMAGES_SIDE);
    *out = (int)json_integer_value(value);
    return SOTTO_OK;
}

/* Reads a side, height and width, or the shorter side. */
static enum sotto_status get_size(const json_t *json, const char *key, int *height, int *width,
                                  bool *shorter)
{
    const json_t *value = json_object_get(json, key);
    *height = *width = 0;
    *shorter = false;
    if (!value || json_is_null(value))
        return SOTTO_OK;
    const json_t *edge = json_object_get(value, "shortest_edge");
    if (json_is_integer(value) || edge) {
        TRY(get_side(edge ? edge : value, key, height));
        *width = *height;
        *shorter = edge != NULL;
        return SOTTO_OK;
    }
    TRY(get_side(json_object_get(value, "height"), key, height));
    return get_side(json_object_get(value, "width"), key, width);
}

/* Reads a number, or a number for each channel. */
static enum sotto_status get_values(const json_t *json, const char *key, bool positive, float *out,
                                    int *count)
{
    const json_t *value = json_object_get(json, key);
    const size_t n = json_is_array(value) ? json_array_size(value) : json_is_number(value);
    bool good = n >= 1 && n <= IMAGES_CHANNELS;
    for (size_t i = 0; good && i < n; i++) {
        const json_t *each = json_is_array(value) ? json_array_get(value, i) : value;
        const double x = json_number_value(each);
        good = json_is_number(each) && fabs(x) < 1e6 && (!positive || x > 1e-6);
        out[i] = (float)x;
    }
    *count = (int)n;
    return good ? SOTTO_OK
                : fail(SOTTO_EFORMAT, "\"%s\" must be one to %d numbers%s", key, IMAGES_CHANNELS,
                       positive ? " above 0" : "");
}

/* Reads values with defaults of the class, for `like` channels if that is not 0. `like` may be
 * larger than IMAGES_CHANNELS: the other values are then refused. */
static enum sotto_status get_values_or(const json_t *json, const char *key, bool positive,
                                       const float *kind, int channels, int like, float *out,
                                       int *count)
{
    const json_t *value = json_object_get(json, key);
    if (value && !json_is_null(value))
        return get_values(json, key, positive, out, count);
    *count = channels != 1 || !like ? channels : like < IMAGES_CHANNELS ? like : IMAGES_CHANNELS;
    for (int c = 0; c < *count; c++)
        out[c] = kind[channels == 1 ? 0 : c];
    return SOTTO_OK;
}

static enum sotto_status get_norm(const json_t *json, const struct processor_kind *kind,
                                  struct image_norm *norm)
{
    int n;
    const double factor = json_number_value(json_object_get(json, "rescale_factor"));
    if (!is_member_on(json, "do_rescale", true) || (factor != 0 && fabs(factor * 255 - 1) > 1e-3))
        return fail(SOTTO_EFORMAT, "\"rescale_factor\" other than 1/255 is not supported");
    if (!is_member_on(json, "do_normalize", true)) {
        *norm = (struct image_norm){1, {0}, {1}};
        return SOTTO_OK;
    }
    const json_t *mean = json_object_get(json, "image_mean"),
                 *std = json_object_get(json, "image_std");
    if (!kind && (!mean || json_is_null(mean) || !std || json_is_null(std)))
        return fail(
            SOTTO_EFORMAT,
            "\"image_mean\" or \"image_std\" is missing, and the default of \"%s\" is not known",
            processor_type(json));
    const struct image_norm none = {0}, *other = kind ? &kind->norm : &none;
    const int like = json_is_array(std) ? (int)json_array_size(std) : 0;
    TRY(get_values_or(json, "image_mean", false, other->mean, other->channels, like, norm->mean,
                      &norm->channels));
    TRY(get_values_or(json, "image_std", true, other->std, other->channels, norm->channels,
                      norm->std, &n));
    return n == norm->channels
               ? SOTTO_OK
               : fail(SOTTO_EFORMAT, "\"image_mean\" has %d numbers, \"image_std\" %d",
                      norm->channels, n);
}

/* By Pillow's numbers. */
static const enum picture_filter filters[] = {FILTER_NEAREST, FILTER_LANCZOS, FILTER_BILINEAR,
                                              FILTER_BICUBIC, FILTER_BOX,     FILTER_HAMMING};

static enum sotto_status get_filter(const json_t *json, enum picture_filter *filter)
{
    const json_t *value = json_object_get(json, "resample");
    const json_int_t last = sizeof filters / sizeof *filters - 1;
    if (!value || json_is_null(value))
        return SOTTO_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) > last)
        return fail(SOTTO_EFORMAT, "\"resample\" must be an integer from 0 to %d", (int)last);
    *filter = filters[json_integer_value(value)];
    return SOTTO_OK;
}

static int filter_number(enum picture_filter filter)
{
    int i = 0;
    while (filters[i] != filter)
        i++;
    return i;
}

/* Sets ConvNext's resizing: the shorter side becomes more than `size`, followed by a crop; large
 * images are stretched. */
static void set_convnext(struct image_processor *p, const json_t *json)
{
    const json_t *share = json_object_get(json, "crop_pct");
    p->resize = p->height < LARGE ? DATA_CROP : DATA_STRETCH;
    if (p->height < LARGE)
        p->keep = json_is_number(share) ? json_number_value(share) : kind_convnext.keep;
}

/* Reads the size; with a crop in the middle, `size` is the shorter side before the crop. */
static enum sotto_status get_sides(const json_t *json, const struct processor_kind *kind,
                                   struct image_processor *p, bool *crops)
{
    int height, width, crop_height, crop_width;
    bool shorter, unused;
    TRY(get_size(json, "size", &height, &width, &shorter));
    TRY(get_size(json, "crop_size", &crop_height, &crop_width, &unused));
    if (!height && kind) {
        height = width = kind->side;
        shorter = kind->shorter;
    }
    if (!crop_height && kind)
        crop_height = crop_width = kind->crop;
    *crops = is_member_on(json, "do_center_crop", kind && kind->crop) && crop_height > 0;
    p->resize = shorter || *crops ? DATA_CROP : DATA_STRETCH;
    p->height = *crops ? crop_height : height;
    p->width = *crops ? crop_width : width;
    if (*crops && height > 0)
        p->keep = fmin(1, fmin(crop_height, crop_width) / fmin(height, width));
    else if (!*crops && height == width && kind == &kind_convnext)
        set_convnext(p, json);
    return p->keep > 0.01 && p->keep <= 1
               ? SOTTO_OK
               : fail(SOTTO_EFORMAT, "\"crop_pct\" must be between 0 and 1");
}

enum sotto_status processor_from_json(struct image_processor *p, const json_t *json,
                                      const char *model_type)
{
    bool crops;
    *p = (struct image_processor){.keep = 1};
    if (!json_is_object(json))
        return fail(SOTTO_EFORMAT, "want an object, got %s", json_kind(json));
    const struct processor_kind *kind = find_processor_kind(json, model_type);
    TRY(get_sides(json, kind, p, &crops));
    p->filter = kind ? kind->filter : crops ? FILTER_BICUBIC : FILTER_BILINEAR;
    TRY(get_filter(json, &p->filter));
    return get_norm(json, kind, &p->norm);
}

/* Reads the file with the model's type, which chooses the class if the file has no type. */
static enum sotto_status read_described(struct image_processor *p, const char *folder,
                                        const json_t *json)
{
    char path[FILE_PATH_ROOM];
    json_t *config = NULL;
    TRY(file_join(path, folder, "config.json"));
    if (file_exists(path))
        TRY(json_open(&config, path, 1 << 24));
    const enum sotto_status st =
        processor_from_json(p, json, json_string_value(json_object_get(config, "model_type")));
    json_decref(config);
    return st;
}

enum sotto_status processor_read(struct image_processor *p, const char *folder)
{
    char path[FILE_PATH_ROOM];
    json_t *json;
    *p = (struct image_processor){.keep = 1};
    if (!*folder)
        return SOTTO_OK;
    TRY(file_join(path, folder, PROCESSOR_FILE));
    if (!file_exists(path))
        return SOTTO_OK;
    TRY(json_open(&json, path, 1 << 20));
    enum sotto_status st = read_described(p, folder, json);
    json_decref(json);
    return fail_in(st, "%s: ", path);
}

static json_t *json_numbers(const float *values, int n)
{
    json_t *list = json_array();
    for (int c = 0; c < n; c++)
        json_array_append_new(list, json_real((double)values[c]));
    return list;
}

/* Writes a crop. Large images and images that are not square are written for CLIP's class, since
 * ConvNext's would stretch them. */
static json_t *crop_to_json(const struct image_processor *p)
{
    const int shorter = p->height < p->width ? p->height : p->width;
    const int edge = (int)lround(shorter / p->keep);
    if (p->height < LARGE && p->height == p->width)
        return json_pack("{s:s, s:{s:i}, s:f}", "image_processor_type", "ConvNextImageProcessor",
                         "size", "shortest_edge", p->height, "crop_pct", p->keep);
    return json_pack("{s:s, s:{s:i}, s:b, s:{s:i, s:i}}", "image_processor_type",
                     "CLIPImageProcessor", "size", "shortest_edge", edge, "do_center_crop", 1,
                     "crop_size", "height", p->height, "width", p->width);
}

json_t *processor_to_json(const struct image_processor *p)
{
    json_t *json =
        p->resize == DATA_CROP && (p->height == p->width || p->keep < 1)
            ? crop_to_json(p)
            : json_pack("{s:s, s:{s:i, s:i}}", "image_processor_type", "ViTImageProcessor", "size",
                        "height", p->height, "width", p->width);
    json_t *rest =
        json_pack("{s:b, s:i, s:b, s:f, s:b, s:o, s:o}", "do_resize", 1, "resample",
                  filter_number(p->filter), "do_rescale", 1, "rescale_factor", 1.0 / 255,
                  "do_normalize", 1, "image_mean", json_numbers(p->norm.mean, p->norm.channels),
                  "image_std", json_numbers(p->norm.std, p->norm.channels));
    if (json && rest && json_object_update(json, rest) == 0) {
        json_decref(rest);
        return json;
    }
    json_decref(rest);
    json_decref(json);
    return NULL;
}
