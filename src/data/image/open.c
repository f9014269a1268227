/* Opening the images of a split: files, size, mean. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "data/image/find.h"
#include "data/image/image_impl.h"

/* Finds the images of each source that belong to the split. */
static enum sotto_status cut_image_split(struct images *l, enum data_split split)
{
    const int n = l->set.n_sources;
    l->begin = calloc((size_t)n, sizeof *l->begin);
    l->end = calloc((size_t)n, sizeof *l->end);
    l->before = calloc((size_t)n + 1, sizeof *l->before);
    if (!l->begin || !l->end || !l->before)
        return fail(SOTTO_ENOMEM, "no memory for %d sources", n);
    for (int s = 0; s < n; s++) {
        const int64_t first = l->set.before[s], last = l->set.before[s + 1];
        int64_t held = (int64_t)((double)(last - first) * l->held_out);
        if (l->held_out > 0 && held == 0)
            held = 1;
        const int64_t at = last - held;
        l->begin[s] = split == DATA_VALID && l->held_out > 0 ? at : first;
        l->end[s] = split == DATA_TRAIN ? at : last;
        if (l->begin[s] == l->end[s])
            return fail(SOTTO_EINVAL,
                        "%s has %lld images: holdout = %g of it leaves none to train on",
                        l->set.source[s], (long long)(last - first), l->held_out);
        l->before[s + 1] = l->before[s] + l->end[s] - l->begin[s];
    }
    l->base.sources = n;
    return SOTTO_OK;
}

/* Sets the size that images are brought to. */
static enum sotto_status set_size(struct image_set *set, const struct data_config *config,
                                  const struct images_setup *setup)
{
    const int asked = config->image_size;
    if (asked && setup->height && (asked != setup->height || asked != setup->width))
        return fail(SOTTO_EINVAL, "data.image_size = %d, but the model wants images of %d x %d",
                    asked, setup->height, setup->width);
    const struct image_processor *p = setup->processor;
    set->height = asked ? asked : setup->height ? setup->height : p ? p->height : 0;
    set->width = asked ? asked : setup->width ? setup->width : p ? p->width : 0;
    set->channels = setup->channels;
    set->resize = config->resize;
    if (!set->resize)
        set->resize = p && p->resize ? p->resize : DATA_CROP;
    set->keep = p && set->resize == p->resize ? p->keep : 1;
    set->filter = p ? p->filter : FILTER_BILINEAR;
    set->given = set->height > 0;
    if (set->channels != 0 && set->channels != 1 && set->channels != IMAGES_CHANNELS)
        return fail(SOTTO_EINVAL, "the model wants %d channels, images have 1 or %d", set->channels,
                    IMAGES_CHANNELS);
    return SOTTO_OK;
}

static enum sotto_status read_idx(struct image_set *set, const char *path)
{
    struct image_bytes images, labels = {0};
    char labels_path[FILE_PATH_ROOM];
    TRY(idx_labels_path(path, labels_path));
    TRY(image_bytes_open(&images, path));
    enum sotto_status st = image_bytes_open(&labels, labels_path);
    if (st == SOTTO_OK)
        st = idx_read(set, images.data, images.size, path, labels.data, labels.size, labels_path);
    image_bytes_close(&images);
    if (labels.data)
        image_bytes_close(&labels);
    return st;
}

static enum sotto_status read_image_part(struct image_set *set, const struct image_part *part)
{
    struct file_map map;
    if (part->format == DATA_IMAGES)
        return image_folder_read(set, part->path);
    if (part->format == DATA_IDX)
        return read_idx(set, part->path);
    TRY(file_map_open(&map, part->path));
    enum sotto_status st =
        cifar_read(set, map.data, map.size, part->path, part->format == DATA_CIFAR100);
    file_map_close(&map);
    return st;
}

/* Reads the parts for tests, or the other parts. */
static enum sotto_status read_parts(struct image_set *set, const struct image_parts *parts,
                                    bool test)
{
    for (int i = 0; i < parts->count; i++)
        if (parts->part[i].test == test)
            TRY(read_image_part(set, &parts->part[i]));
    return SOTTO_OK;
}

static enum sotto_status set_norm(struct images *l, const struct image_norm *norm)
{
    if (norm->channels != 1 && norm->channels != l->set.channels)
        return fail(SOTTO_EINVAL, "data.mean and data.std have %d numbers, the images %d channel%s",
                    norm->channels, l->set.channels, l->set.channels == 1 ? "" : "s");
    l->norm = *norm;
    for (int c = 0; c < l->set.channels; c++)
        norm_table(norm, c, l->value[c]);
    l->base.sample = (struct sample){.content = SAMPLE_FLOATS,
                                     .dims = {l->set.height, l->set.width, l->set.channels},
                                     .targets = 1,
                                     .positions = 1};
    return SOTTO_OK;
}

static enum sotto_status choose_norm(struct images *l, const struct data_config *config,
                                     enum data_split split, const struct images_setup *setup)
{
    struct image_norm norm;
    TRY(norm_parse(&norm, config->mean, config->std));
    if (!norm.channels && setup->processor)
        norm = setup->processor->norm;
    if (!norm.channels && split == DATA_TRAIN)
        norm = norm_of(&l->set, l->begin, l->end);
    if (!norm.channels)
        return fail(SOTTO_EINVAL, "the mean and the standard deviation of the model's training "
                                  "images are not known: set data.mean and data.std");
    return set_norm(l, &norm);
}

static enum sotto_status new_images(struct images **out, const struct data_config *config)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return fail(SOTTO_ENOMEM, "no memory for a loader");
    (*out)->base.ops = &images_ops;
    (*out)->sharding = (enum data_sharding)config->sharding;
    return SOTTO_OK;
}

/* Refuses a crop that would move some images out of sight. */
static enum sotto_status check_crop(const struct images *l)
{
    if (l->crop < l->set.height && l->crop < l->set.width)
        return SOTTO_OK;
    return fail(SOTTO_EINVAL, "data.crop = %d moves images of %d x %d out of sight", l->crop,
                l->set.height, l->set.width);
}

/* The parts of the chosen words, training or test parts, and the held-out share. */
struct image_choice {
    struct image_parts parts;
    bool test;
    double held_out;
};

static enum sotto_status choose_images(struct image_choice *c, const struct data_config *config,
                                       enum data_split split)
{
    const bool named = split == DATA_VALID && *config->valid;
    *c = (struct image_choice){0};
    if (!*(named ? config->valid : config->train))
        return fail(SOTTO_EINVAL, "no %s data is named: set --data.%s=FOLDER",
                    split == DATA_TRAIN ? "training" : "validation",
                    split == DATA_TRAIN ? "train" : "valid");
    TRY(image_parts_find(&c->parts, named ? config->valid : config->train, config->format));
    c->test = split == DATA_VALID && c->parts.has_test;
    if (!named && !*config->valid && !c->parts.has_test)
        c->held_out = config->holdout;
    else if (split == DATA_TRAIN && config->holdout > 0 && data_says_holdout(config))
        log_warn("data.holdout = %g has no effect: %s", config->holdout,
                 *config->valid ? "data.valid validates" : "the data have a part for that");
    return SOTTO_OK;
}

enum sotto_status images_open(struct loader **out, const struct data_config *config,
                              enum data_split split, const struct images_setup *setup)
{
    struct images *l;
    struct image_choice choice;
    *out = NULL;
    TRY(choose_images(&choice, config, split));
    enum sotto_status st = new_images(&l, config);
    if (st != SOTTO_OK) {
        image_parts_free(&choice.parts);
        return st;
    }
    l->held_out = choice.held_out;
    if (split == DATA_TRAIN) {
        l->crop = config->crop;
        l->flip = config->flip;
    }
    TRY_DONE(set_size(&l->set, config, setup));
    if (split == DATA_VALID && !*config->valid && !choice.test && l->held_out == 0)
        TRY_DONE(
            fail(SOTTO_EINVAL, "no validation data: name some with valid, or set holdout above 0"));
    TRY_DONE(image_names_choose(&l->set, &choice.parts, choice.test, setup));
    TRY_DONE(read_parts(&l->set, &choice.parts, choice.test));
    if (l->set.count == 0)
        TRY_DONE(fail(SOTTO_EFORMAT, "%s has no training images", choice.parts.part[0].path));
    TRY_DONE(check_crop(l));
    TRY_DONE(cut_image_split(l, split));
    TRY_DONE(choose_norm(l, config, split, setup));
    *out = &l->base;
done:
    image_parts_free(&choice.parts);
    if (st != SOTTO_OK)
        images_close(&l->base);
    return st;
}

static enum sotto_status read_valid(struct images *l, const struct images *train,
                                    const struct image_choice *choice)
{
    l->set = (struct image_set){.height = train->set.height,
                                .width = train->set.width,
                                .channels = train->set.channels,
                                .resize = train->set.resize,
                                .keep = train->set.keep,
                                .filter = train->set.filter,
                                .given = train->set.given};
    if (train->set.names)
        TRY(image_names_take(&l->set, train->set.names, train->set.classes));
    TRY(read_parts(&l->set, &choice->parts, choice->test));
    if (l->set.count == 0)
        return fail(SOTTO_EFORMAT, "%s has no images", choice->parts.part[0].path);
    if (l->set.classes > train->set.classes)
        return fail(SOTTO_EFORMAT, "%s has %d classes, the training images %d",
                    choice->parts.part[0].path, l->set.classes, train->set.classes);
    return SOTTO_OK;
}

enum sotto_status images_open_valid(struct loader **out, const struct loader *base,
                                    const struct data_config *config)
{
    const struct images *train = images_of(base);
    struct image_choice choice;
    struct images *l;
    *out = NULL;
    TRY(choose_images(&choice, config, DATA_VALID));
    if (!*config->valid && !choice.test && choice.held_out == 0) {
        image_parts_free(&choice.parts);
        return SOTTO_OK;
    }
    enum sotto_status st = new_images(&l, config);
    if (st != SOTTO_OK) {
        image_parts_free(&choice.parts);
        return st;
    }
    l->held_out = choice.held_out;
    if (l->held_out > 0) {
        l->set = train->set;
        l->borrowed = true;
    } else {
        TRY_DONE(read_valid(l, train, &choice));
    }
    TRY_DONE(cut_image_split(l, DATA_VALID));
    TRY_DONE(set_norm(l, &train->norm));
    *out = &l->base;
done:
    image_parts_free(&choice.parts);
    if (st != SOTTO_OK)
        images_close(&l->base);
    return st;
}

enum data_format images_recognise(const struct data_config *config)
{
    const char *words = config->train;
    char word[FILE_PATH_ROOM];
    if (config->format != DATA_AUTO)
        return data_format_content(config->format) == SAMPLE_FLOATS
                   ? (enum data_format)config->format
                   : DATA_AUTO;
    if (data_word(&words, word) != SOTTO_OK || !*word)
        return DATA_AUTO;
    return image_format_of(word);
}
