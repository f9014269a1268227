/* A folder of images for each class. Each class is a source, with its images sorted by name. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "data/image/find.h"

static int class_of_folder(const struct image_set *set, const char *folder)
{
    char room[IMAGE_CLASS_ROOM];
    const char *name = image_class_text(folder, room);
    for (int k = 0; k < set->classes; k++)
        if (strcmp(set->names[k], name) == 0)
            return k;
    return -1;
}

/* Replaces a class's name that is not UTF-8; fails if another class has the new name and would get
 * the images of this class. */
static enum sotto_status call_by_text(struct image_set *set, int class, const char *folder)
{
    char room[IMAGE_CLASS_ROOM];
    if (strcmp(image_class_text(set->names[class], room), set->names[class]) == 0)
        return SOTTO_OK;
    if (class_of_folder(set, set->names[class]) >= 0)
        return fail(SOTTO_EFORMAT, "folder %s has two classes called %s, one not in UTF-8", folder,
                    room);
    char *text = strdup(room);
    if (!text)
        return fail(SOTTO_ENOMEM, "no memory for the names in %s", folder);
    free(set->names[class]);
    set->names[class] = text;
    return SOTTO_OK;
}

static enum sotto_status take_classes(struct image_set *set, const char *folder)
{
    int n;
    char **names;
    TRY(image_names(folder, true, &names, &n, NULL));
    if (n == 0 || n > IMAGES_CLASSES) {
        image_names_free(names, n);
        return fail(SOTTO_EFORMAT, "folder %s has %d folders: want one for each class", folder, n);
    }
    set->names = names;
    set->classes = n;
    for (int k = 0; k < n; k++)
        TRY(call_by_text(set, k, folder));
    return SOTTO_OK;
}

static enum sotto_status read_image_file(struct image_set *set, const char *path, int label,
                                         int64_t files)
{
    struct file_map map;
    struct picture p;
    TRY(file_map_open(&map, path));
    enum sotto_status st = picture_read(&p, map.data, map.size, path);
    file_map_close(&map);
    if (st == SOTTO_OK) /* grey images may precede the first in colours */
        st = image_set_reserve(set, files, p.height, p.width, IMAGES_CHANNELS);
    if (st == SOTTO_OK)
        st = image_set_put(set, &p, label, path);
    free(p.pixels);
    return st;
}

/* Entries in the folders of classes that are no images. */
struct left_out {
    int64_t nested, broken; /* files of folders inside, dangling links */
};

static enum sotto_status count_nested(const char *folder, struct left_out *left_out)
{
    char **names, **files, path[FILE_PATH_ROOM];
    int n, n_files;
    TRY(image_names(folder, true, &names, &n, NULL));
    enum sotto_status st = SOTTO_OK;
    for (int i = 0; i < n && st == SOTTO_OK; i++) {
        st = file_join(path, folder, names[i]);
        if (st == SOTTO_OK)
            st = image_names(path, false, &files, &n_files, NULL);
        if (st != SOTTO_OK)
            break;
        image_names_free(files, n_files);
        left_out->nested += n_files;
    }
    image_names_free(names, n);
    return st;
}

static void tell_left_out(const char *folder, const struct left_out *l)
{
    if (l->nested)
        log_warn("%s: files in folders inside the folders of classes are not read: %lld", folder,
                 (long long)l->nested);
    if (l->broken)
        log_warn("%s: dangling links are left out: %lld", folder, (long long)l->broken);
}

static enum sotto_status read_class(struct image_set *set, const char *folder, int label,
                                    struct left_out *left_out)
{
    char **names, path[FILE_PATH_ROOM];
    int n;
    TRY(count_nested(folder, left_out));
    TRY(image_names(folder, false, &names, &n, &left_out->broken));
    enum sotto_status st = SOTTO_OK;
    for (int i = 0; i < n && st == SOTTO_OK; i++) {
        st = file_join(path, folder, names[i]);
        if (st == SOTTO_OK)
            st = read_image_file(set, path, label, n - i);
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
    struct left_out left_out = {0};
    TRY(image_names(folder, true, &classes, &n, &left_out.broken));
    enum sotto_status st = SOTTO_OK;
    for (int i = 0; i < n && st == SOTTO_OK; i++) {
        const int label = class_of_folder(set, classes[i]);
        if (label < 0)
            st = fail(SOTTO_EFORMAT, "%s has a class '%.80s' that the training images have not",
                      folder, classes[i]);
        if (st == SOTTO_OK)
            st = file_join(path, folder, classes[i]);
        if (st == SOTTO_OK)
            st = read_class(set, path, label, &left_out);
    }
    image_names_free(classes, n);
    tell_left_out(folder, &left_out);
    return st;
}
