/* Whether a checkpoint can be read: what a full disk, a copy that was cut short or a file system
 * after a power failure may have done to it. */
#include <stdlib.h>

#include "base/json.h"
#include "io/rundir.h"
#include "io/safetensors.h"

/* The header must parse and the file have the size that it declares; tensors are not read. */
static enum sotto_status check_tensors(const char *path, bool *rounded)
{
    struct safetensors set;
    TRY(safetensors_open(&set, path));
    *rounded = false;
    for (size_t i = 0; i < set.count; i++)
        *rounded |= set.entry[i].type != SAFETENSORS_F32;
    safetensors_close(&set);
    return SOTTO_OK;
}

enum sotto_status checkpoint_check(const char *folder)
{
    char path[FILE_PATH_ROOM], *text;
    size_t size;
    json_t *json;
    bool rounded, ignored;
    TRY(file_join(path, folder, "config.json"));
    TRY(json_open(&json, path, 1 << 24));
    json_decref(json);
    TRY(check_tensors(folder, &rounded));
    TRY(file_join(path, folder, CHECKPOINT_PARAMETERS));
    if (rounded)
        TRY(check_tensors(path, &ignored));
    TRY(file_join(path, folder, "state.safetensors"));
    TRY(check_tensors(path, &ignored));
    TRY(file_join(path, folder, "sotto.ini"));
    TRY(file_read(path, 1 << 24, &text, &size));
    free(text);
    return size ? SOTTO_OK : fail(SOTTO_EFORMAT, "%s is empty", path);
}
