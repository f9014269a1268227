/* Checks that a checkpoint can be read, after a full disk, an incomplete copy, or a power failure.
 */
#define _GNU_SOURCE /* fstatat, open_memstream */
#include "io/checkpoint_check.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/json.h"
#include "base/option/option.h"
#include "io/safetensors.h"

/* Checks that the header parses, the file has the declared size, and the numbers are finite. */
static enum sotto_status check_tensor_file(const char *path, bool *rounded)
{
    struct safetensors set;
    TRY(safetensors_open(&set, path));
    enum sotto_status st = SOTTO_OK;
    *rounded = false;
    for (size_t i = 0; i < set.count && st == SOTTO_OK; i++) {
        *rounded |= set.entry[i].type == SAFETENSORS_BF16 || set.entry[i].type == SAFETENSORS_F16;
        st = safetensors_check_numbers(&set.entry[i], 0, set.entry[i].count);
    }
    st = fail_in(st, "%s: ", set.file[0].path);
    safetensors_close(&set);
    return st;
}

static enum sotto_status check_listed_file(const char *folder, const char *name, long long bytes)
{
    char path[FILE_PATH_ROOM];
    struct stat info;
    TRY(file_join(path, folder, name));
    if (stat(path, &info) != 0)
        return fail_errno(SOTTO_EFORMAT, "cannot read %s", path);
    if (info.st_size < bytes) /* what somebody has added to is not cut short */
        return fail(SOTTO_EFORMAT, "%s has %lld bytes, and had %lld when it was written", path,
                    (long long)info.st_size, bytes);
    return SOTTO_OK;
}

/* Checks the files of the checkpoint's list, if there is a list. */
static enum sotto_status check_file_list(const char *folder)
{
    char path[FILE_PATH_ROOM], *text;
    TRY(file_join(path, folder, CHECKPOINT_LIST));
    if (!file_exists(path))
        return SOTTO_OK;
    TRY(file_read_text(path, 1 << 20, &text));
    enum sotto_status st = SOTTO_OK;
    for (char *line = text, *end; *line && st == SOTTO_OK; line = end + 1) {
        char *name;
        const long long bytes = strtoll(line, &name, 10);
        end = strchr(line, '\n');
        if (!end || *name != ' ' || name > end) {
            st = fail(SOTTO_EFORMAT, "%s is cut short", path);
            break;
        }
        *end = '\0';
        st = check_listed_file(folder, name + 1, bytes);
    }
    free(text);
    return st;
}

enum sotto_status checkpoint_list(const char *folder)
{
    char path[FILE_PATH_ROOM], *text = NULL;
    size_t size;
    TRY(file_join(path, folder, CHECKPOINT_LIST));
    DIR *dir = opendir(folder);
    if (!dir)
        return fail_errno(SOTTO_EIO, "cannot read folder %s", folder);
    FILE *out = open_memstream(&text, &size);
    for (struct dirent *d; out && (d = readdir(dir));) {
        struct stat info;
        if (fstatat(dirfd(dir), d->d_name, &info, 0) == 0 && S_ISREG(info.st_mode))
            fprintf(out, "%lld %s\n", (long long)info.st_size, d->d_name);
    }
    closedir(dir);
    enum sotto_status st = !out || fclose(out) != 0
                               ? fail(SOTTO_ENOMEM, "no memory for the list of files in %s", folder)
                               : file_write(path, text, size);
    free(text);
    return st;
}

static enum sotto_status ignore_key(void *arg, const char *section, const char *key,
                                    const char *value)
{
    (void)arg, (void)section, (void)key, (void)value;
    return SOTTO_OK;
}

/* Checks only that the file parses as INI; the keys belong to higher layers. */
static enum sotto_status check_configuration(const char *path)
{
    char *text;
    TRY(file_read_text(path, 1 << 24, &text));
    enum sotto_status st = *text ? option_read_text(text, path, NULL, ignore_key, NULL)
                                 : fail(SOTTO_EFORMAT, "%s is empty", path);
    free(text);
    return st;
}

enum sotto_status checkpoint_check(const char *folder)
{
    char path[FILE_PATH_ROOM];
    json_t *json;
    bool rounded, ignored;
    TRY(check_file_list(folder));
    TRY(file_join(path, folder, "config.json"));
    TRY(json_open(&json, path, 1 << 24));
    json_decref(json);
    TRY(check_tensor_file(folder, &rounded));
    TRY(file_join(path, folder, CHECKPOINT_PARAMETERS));
    if (rounded)
        TRY(check_tensor_file(path, &ignored));
    TRY(file_join(path, folder, "state.safetensors"));
    TRY(check_tensor_file(path, &ignored));
    TRY(file_join(path, folder, "sotto.ini"));
    return check_configuration(path);
}
