#include "data/image/find.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "data/text/token_files.h"

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool begins_with_any_case(const char *name, const char *with)
{
    return strncasecmp(name, with, strlen(with)) == 0;
}

static bool ends_with_any_case(const char *name, const char *with)
{
    const size_t n = strlen(name), m = strlen(with);
    return n >= m && strcasecmp(name + n - m, with) == 0;
}

static bool is_idx_images(const char *name)
{
    return strstr(name, "images") &&
           (ends_with_any_case(name, "idx3-ubyte") || ends_with_any_case(name, "idx3-ubyte.gz"));
}

/* Returns the format of a file with this name in a folder; DATA_AUTO: no part of a set. */
static enum data_format format_by_name(const char *name, bool *test)
{
    *test = begins_with_any_case(name, "test") || begins_with_any_case(name, "t10k") ||
            begins_with_any_case(name, "val");
    if ((begins_with_any_case(name, "data_batch_") || begins_with_any_case(name, "test_batch")) &&
        ends_with_any_case(name, ".bin"))
        return DATA_CIFAR10;
    if (strcmp(name, "train.bin") == 0 || strcmp(name, "test.bin") == 0)
        return DATA_CIFAR100;
    return is_idx_images(name) ? DATA_IDX : DATA_AUTO;
}

static int is_visible_entry(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int compare_entry_names_bytewise(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

void image_names_free(char **names, int count)
{
    for (int i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

enum sotto_status image_names(const char *folder, bool folders, char ***out, int *count,
                              int64_t *broken)
{
    struct dirent **entries;
    *out = NULL;
    *count = 0;
    const int n = scandir(folder, &entries, is_visible_entry, compare_entry_names_bytewise);
    if (n < 0)
        return fail_errno(SOTTO_EIO, "cannot read folder %s", folder);
    char **names = calloc((size_t)n + 1, sizeof *names);
    enum sotto_status st = names ? SOTTO_OK : fail(SOTTO_ENOMEM, "no memory for %d names", n);
    int kept = 0;
    for (int i = 0; i < n && st == SOTTO_OK; i++) {
        char path[FILE_PATH_ROOM];
        struct stat info;
        st = file_join(path, folder, entries[i]->d_name);
        if (st != SOTTO_OK)
            continue;
        const bool there = stat(path, &info) == 0;
        if (!there && broken)
            *broken += 1;
        if (!there || !(folders ? S_ISDIR(info.st_mode) : S_ISREG(info.st_mode)))
            continue;
        names[kept] = strdup(entries[i]->d_name);
        if (!names[kept++])
            st = fail(SOTTO_ENOMEM, "no memory for the names in %s", folder);
    }
    for (int i = 0; i < n; i++)
        free(entries[i]);
    free(entries);
    if (st != SOTTO_OK) {
        image_names_free(names, kept);
        return st;
    }
    *out = names;
    *count = kept;
    return SOTTO_OK;
}

static enum sotto_status add_part(struct image_parts *parts, enum data_format format, bool test,
                                  const char *path)
{
    if (parts->count == parts->room) {
        const int room = 2 * parts->room + 8;
        struct image_part *more = realloc(parts->part, (size_t)room * sizeof *more);
        if (!more)
            return fail(SOTTO_ENOMEM, "no memory for %d files of images", room);
        parts->part = more;
        parts->room = room;
    }
    struct image_part *p = &parts->part[parts->count];
    if (strlen(path) >= sizeof p->path)
        return fail(SOTTO_EINVAL, "path of %zu characters is too long: %.80s...", strlen(path),
                    path);
    p->format = format;
    p->test = test;
    strcpy(p->path, path);
    parts->count++;
    parts->has_test |= test;
    if (format != parts->part[0].format)
        return fail(SOTTO_EINVAL, "%s and %s do not mix: they hold images of different formats",
                    parts->part[0].path, path);
    return SOTTO_OK;
}

/* Adds the files of a folder that are sets. */
static enum sotto_status add_part_files(struct image_parts *parts, const char *folder,
                                        enum data_format format)
{
    char **names, path[FILE_PATH_ROOM];
    int n;
    TRY(image_names(folder, false, &names, &n, NULL));
    enum sotto_status st = SOTTO_OK;
    for (int i = 0; i < n && st == SOTTO_OK; i++) {
        bool test;
        const enum data_format have = format_by_name(names[i], &test);
        if (have == DATA_AUTO || (format != DATA_AUTO && have != format))
            continue;
        st = file_join(path, folder, names[i]);
        if (st == SOTTO_OK)
            st = add_part(parts, have, test, path);
    }
    image_names_free(names, n);
    return st;
}

static const char *const tests[] = {"val", "valid", "validation", "test"};
enum { TESTS = sizeof tests / sizeof *tests };

/* Sets `is` if train/ is a class: it has no folders, and the folder has others than known parts. */
static enum sotto_status is_class_folder(const char *folder, const char *train, bool *is)
{
    char **names;
    int n;
    *is = false;
    TRY(image_names(train, true, &names, &n, NULL));
    image_names_free(names, n);
    if (n > 0)
        return SOTTO_OK;
    TRY(image_names(folder, true, &names, &n, NULL));
    for (int i = 0; i < n; i++) {
        bool part = strcmp(names[i], "train") == 0;
        for (int k = 0; k < TESTS; k++)
            part |= strcmp(names[i], tests[k]) == 0;
        *is |= !part;
    }
    image_names_free(names, n);
    return SOTTO_OK;
}

/* Adds train/ and a folder for validation next to it, or the folder itself if its folders are
 * classes. */
static enum sotto_status add_class_folders(struct image_parts *parts, const char *folder)
{
    char path[FILE_PATH_ROOM];
    bool class = true;
    TRY(file_join(path, folder, "train"));
    if (file_is_directory(path))
        TRY(is_class_folder(folder, path, &class));
    if (class)
        return add_part(parts, DATA_IMAGES, false, folder);
    TRY(add_part(parts, DATA_IMAGES, false, path));
    for (int i = 0; i < TESTS; i++) {
        TRY(file_join(path, folder, tests[i]));
        if (file_is_directory(path))
            return add_part(parts, DATA_IMAGES, true, path);
    }
    return SOTTO_OK;
}

static enum sotto_status add_part_folder(struct image_parts *parts, const char *folder, int format)
{
    const int before = parts->count;
    char **classes;
    int n;
    if (format != DATA_IMAGES)
        TRY(add_part_files(parts, folder, (enum data_format)format));
    if (parts->count > before)
        return SOTTO_OK;
    TRY(image_names(folder, true, &classes, &n, NULL));
    image_names_free(classes, n);
    if (n && (format == DATA_AUTO || format == DATA_IMAGES))
        return add_class_folders(parts, folder);
    return fail(SOTTO_EFORMAT,
                "folder %s holds no images that are known: want CIFAR's *.bin, IDX "
                "(*-images-idx3-ubyte), or a folder of PNG, PPM or PGM for each class",
                folder);
}

/* Returns the format of a file by name and first bytes. Token files may be called train.bin, too.
 */
static enum data_format format_of_file(const char *path)
{
    enum { RECORD10 = 3073, RECORD100 = 3074 };
    struct file_map map;
    bool test;
    enum data_format format = format_by_name(base_name(path), &test);
    if (file_map_open(&map, path) != SOTTO_OK)
        return DATA_AUTO;
    if (idx_claims(map.data, map.size))
        format = DATA_IDX;
    else if (tokens_recognise(map.data, map.size))
        format = DATA_AUTO;
    else if (format == DATA_AUTO && ends_with_any_case(path, ".bin") && map.size &&
             map.size % RECORD10 == 0)
        format = DATA_CIFAR10;
    else if ((format == DATA_AUTO && ends_with_any_case(path, ".bin")) || format == DATA_CIFAR100)
        format = map.size && map.size % RECORD100 == 0 ? DATA_CIFAR100 : DATA_AUTO;
    file_map_close(&map);
    return format;
}

/* True for an image by the first bytes; for JPEG, too, which is not read but no text, either. */
static bool is_picture(const char *path)
{
    struct file_map map;
    if (file_map_open(&map, path) != SOTTO_OK)
        return false;
    const bool is = ppm_recognise(map.data, map.size) ||
                    (map.size > 3 && (memcmp(map.data, "\x89PNG", 4) == 0 ||
                                      memcmp(map.data, "\xff\xd8\xff", 3) == 0));
    file_map_close(&map);
    return is;
}

/* True if there is an image among the first files of the first folders: folders inside a folder
 * alone prove nothing. */
static bool holds_pictures(const char *folder)
{
    enum { FOLDERS = 64, FILES = 8 };
    char **classes, **names, class[FILE_PATH_ROOM], path[FILE_PATH_ROOM];
    int n, m;
    bool found = false;
    if (image_names(folder, true, &classes, &n, NULL) != SOTTO_OK)
        return false;
    for (int i = 0; i < n && i < FOLDERS && !found; i++) {
        if (file_join(class, folder, classes[i]) != SOTTO_OK ||
            image_names(class, false, &names, &m, NULL) != SOTTO_OK)
            continue;
        for (int k = 0; k < m && k < FILES && !found; k++)
            found = file_join(path, class, names[k]) == SOTTO_OK && is_picture(path);
        image_names_free(names, m);
    }
    image_names_free(classes, n);
    return found;
}

enum data_format image_format_of(const char *path)
{
    struct image_parts parts = {0};
    enum data_format format = DATA_AUTO;
    if (!file_is_directory(path))
        return format_of_file(path);
    if (add_part_folder(&parts, path, DATA_AUTO) == SOTTO_OK) {
        format = parts.part[0].format;
        if (format == DATA_CIFAR100)
            format = format_of_file(parts.part[0].path);
        else if (format == DATA_IMAGES && !holds_pictures(parts.part[0].path))
            format = DATA_AUTO;
    }
    image_parts_free(&parts);
    return format;
}

static enum sotto_status add_part_word(struct image_parts *parts, const char *word, int format)
{
    if (file_is_directory(word))
        return add_part_folder(parts, word, format);
    if (!file_exists(word))
        return fail(SOTTO_EIO, "cannot read %s: there is no such file", word);
    if (format == DATA_AUTO)
        format = image_format_of(word);
    if (format == DATA_AUTO || format == DATA_IMAGES)
        return fail(SOTTO_EFORMAT,
                    "%s is no set of images: want a file of CIFAR or IDX, or a folder with one for "
                    "each class",
                    word);
    return add_part(parts, (enum data_format)format, false, word);
}

enum sotto_status image_parts_find(struct image_parts *parts, const char *words, int format)
{
    enum sotto_status st = SOTTO_OK;
    *parts = (struct image_parts){0};
    while (*words && st == SOTTO_OK) {
        char word[FILE_PATH_ROOM];
        st = data_word(&words, word);
        if (st == SOTTO_OK && *word)
            st = add_part_word(parts, word, format);
    }
    if (st != SOTTO_OK)
        image_parts_free(parts);
    return st;
}

void image_parts_free(struct image_parts *parts)
{
    free(parts->part);
    *parts = (struct image_parts){0};
}

/* Replaces `old` in the last component by `new`. */
static bool replace_in_name(char path[FILE_PATH_ROOM], const char *old, const char *new)
{
    char *at = strstr(path + (base_name(path) - path), old);
    if (!at || strlen(old) != strlen(new))
        return false;
    memcpy(at, new, strlen(new));
    return true;
}

enum sotto_status idx_labels_path(const char *images, char out[FILE_PATH_ROOM])
{
    snprintf(out, FILE_PATH_ROOM, "%s", images);
    const bool known =
        replace_in_name(out, "images", "labels") && replace_in_name(out, "idx3", "idx1");
    if (!known)
        return fail(SOTTO_EFORMAT,
                    "%s: the file of its labels is not known, since its name is not of the form "
                    "*-images-idx3-ubyte",
                    images);
    const size_t n = strlen(out);
    if (file_exists(out))
        return SOTTO_OK;
    if (ends_with_any_case(out, ".gz")) /* one of the two may be unpacked */
        out[n - 3] = '\0';
    else if (n + 3 < FILE_PATH_ROOM)
        strcpy(out + n, ".gz");
    if (!file_exists(out)) {
        return fail(SOTTO_EIO, "%s: there is no file %.*s with its labels", images, (int)n, out);
    }
    return SOTTO_OK;
}
