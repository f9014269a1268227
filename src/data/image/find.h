/* From the words of the configuration to files with images. */
#ifndef SOTTO_DATA_IMAGE_FIND_H
#define SOTTO_DATA_IMAGE_FIND_H

#include "data/image/set.h"

struct image_part {
    enum data_format format; /* of images */
    bool test;               /* a part for tests, not for training */
    char path[FILE_PATH_ROOM];
};

struct image_parts {
    struct image_part *part; /* with the same format */
    int count, room;
    bool has_test;
};

/* Finds all parts that the words name, in order; the parts of a folder are sorted by name. */
enum sotto_status image_parts_find(struct image_parts *parts, const char *words, int format);
void image_parts_free(struct image_parts *parts);

/* Returns the format of a file or folder by name and first bytes; DATA_AUTO: no images. */
enum data_format image_format_of(const char *path);

/* Lists the entries of a folder, sorted, without names that begin with a dot: folders only, or
 * files only. The caller frees with image_names_free. `broken` (optional): increased by the number
 * of dangling links. */
enum sotto_status image_names(const char *folder, bool folders, char ***out, int *count,
                              int64_t *broken);
void image_names_free(char **names, int count);

/* Returns the name of the class in a folder of this name: the same, except that bytes outside UTF-8
 * become \xE9, since config.json is in UTF-8. A name has at most 255 bytes. */
enum { IMAGE_CLASS_ROOM = 4 * 256 };
const char *image_class_text(const char *name, char room[IMAGE_CLASS_ROOM]);

/* Writes the path of the labels for a file of IDX images. */
enum sotto_status idx_labels_path(const char *images, char out[FILE_PATH_ROOM]);

/* Sets the classes of the set before folders are read, from `setup`; none if classes get the
 * numbers of their sorted names. */
struct images_setup;
enum sotto_status image_names_choose(struct image_set *set, const struct image_parts *parts,
                                     bool test, const struct images_setup *setup);
enum sotto_status image_names_take(struct image_set *set, char *const *names, int classes);

/* Reads a folder with a folder for each class; a set with classes must have these names. */
enum sotto_status image_folder_read(struct image_set *set, const char *folder);

#endif
