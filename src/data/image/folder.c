/* A folder of images for each class. Each class is a source: its images in the order of their
 * names. */
#include <stdlib.h>
#include <string.h>

#include "data/image/find.h"

static int class_of(const struct image_set *set, const char *name)
{
    for (int k = 0; k < set->classes; k++)
        if (strcmp(set->names[k], name) == 0)
            return k;
    return -1;
}

static enum sotto_status take_classes(struct image_set *set, const char *folder)
{
    int n;
    char **names;
    TRY(image_names(folder, true, &names, &n));
    if (n == 0 || n > IMAGES_CLASSES) {
        image_names_free(names, n);
        return fail(SOTTO_EFORMAT, "folder %s has %d folders: want one for each class", folder, n);
    }
    set->names = names;
    set->classes = n;
    return SOTTO_OK;
}

static enum sotto_status read_file(struct image_set *set, const char *path, int label,
                                   int64_t files)
{
    struct file_map map;
    struct picture p;
    TRY(file_map_open(&map, path));
    enum sotto_status st = picture_read(&p, map.data, map.size, path);
    file_map_close(&map);
    if (st == SOTTO_OK) /* grey ones may come before the first in colours */
        st = image_set_reserve(set, files, p.height, p.width, IMAGES_CHANNELS);
    if (st == SOTTO_OK)
        st = image_set_put(set, &p, label, path);
    free(p.pixels);
    return st;
}

static enum sotto_status read_class(struct image_set *set, const char *folder, int label)
{
    char **names, path[FILE_PATH_ROOM];
    int n;
    TRY(image_names(folder, false, &names, &n));
    enum sotto_status st = SOTTO_OK;
    for (int i = 0; i < n && st == SOTTO_OK; i++) {
        st = file_join(path, folder, names[i]);
        if (st == SOTTO_OK)
            st = read_file(set, path, label, n - i);
    }
    image_names_free(names, n);
    return st == SOTTO_OK ? image_set_end_source(set, folder) : st;
}

enum sotto_status image_folder_read(struct image_set *set, const char *folder)
{
    char **classes, path[FILE_PATH_ROOM];
    int n;
    if (!set->names)
        TRY(take_classes(set, folder));
    TRY(image_names(folder, true, &classes, &n));
    enum sotto_status st = SOTTO_OK;
    for (int i = 0; i < n && st == SOTTO_OK; i++) {
        const int label = class_of(set, classes[i]);
        if (label < 0)
            st = fail(SOTTO_EFORMAT, "%s has a class '%.80s' that the training images have not",
                      folder, classes[i]);
        if (st == SOTTO_OK)
            st = file_join(path, folder, classes[i]);
        if (st == SOTTO_OK)
            st = read_class(set, path, label);
    }
    image_names_free(classes, n);
    return st;
}
