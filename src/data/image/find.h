/* From the words of the configuration to files of images. */
#ifndef SOTTO_DATA_IMAGE_FIND_H
#define SOTTO_DATA_IMAGE_FIND_H

#include "data/image/set.h"

struct image_part {
    enum data_format format; /* of images */
    bool test;               /* the part of a folder that is not trained on */
    char path[FILE_PATH_ROOM];
};

struct image_parts {
    struct image_part *part; /* all of one format */
    int count, room;
    bool has_test;
};

/* All parts that the words name, in their order, those of a folder sorted by name. */
enum sotto_status image_parts_find(struct image_parts *parts, const char *words, int format);
void image_parts_free(struct image_parts *parts);

/* What a file or folder holds by its name and first bytes; DATA_AUTO: no images. */
enum data_format image_format_of(const char *path);

/* The names of a folder's entries, sorted, but for those that begin with a dot: folders only, or
 * files only. The caller frees with image_names_free. `broken` (optional): links to nothing are
 * added to it. */
enum sotto_status image_names(const char *folder, bool folders, char ***out, int *count,
                              int64_t *broken);
void image_names_free(char **names, int count);

/* What a class is called whose folder has this name: the same, but config.json is in UTF-8, so
 * bytes that are none become \xE9. A name has at most 255 of them. */
enum { IMAGE_CLASS_ROOM = 4 * 256 };
const char *image_class_text(const char *name, char room[IMAGE_CLASS_ROOM]);

/* The labels that go with a file of IDX images. */
enum sotto_status idx_labels_path(const char *images, char out[FILE_PATH_ROOM]);

/* The set's classes before its folders are read, as `setup` wants it: none where they number
 * themselves. */
struct images_setup;
enum sotto_status image_names_choose(struct image_set *set, const struct image_parts *parts,
                                     bool test, const struct images_setup *setup);
enum sotto_status image_names_take(struct image_set *set, char *const *names, int classes);

/* Reads a folder with one for each class; the set's own classes, where it has some, must have the
 * names. */
enum sotto_status image_folder_read(struct image_set *set, const char *folder);

#endif
