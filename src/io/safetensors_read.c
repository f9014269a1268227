/* Opening safetensors files and model folders, finding tensors in them, and reading numbers. */
#define _GNU_SOURCE /* strdup */
#include "io/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "io/half.h"
#include "io/safetensors_header.h"

#define INDEX_LIMIT ((size_t)100 << 20)

static void close_shard(struct safetensors_file *file)
{
    if (!file->borrowed)
        file_map_close(&file->map);
    json_decref(file->header);
    free(file->path);
}

void safetensors_close(struct safetensors *set)
{
    for (int i = 0; i < set->n_file; i++)
        close_shard(&set->file[i]);
    free(set->file);
    free(set->entry);
    *set = (struct safetensors){0};
}

/* Checks the file and adds its entries, unsorted. Takes over the file, also on failure. */
static enum sotto_status add_opened_file(struct safetensors *set, struct safetensors_file file)
{
    struct safetensors_entry *list = NULL, *more = NULL;
    size_t count = 0;
    struct safetensors_file *files = realloc(set->file, (size_t)(set->n_file + 1) * sizeof *files);
    if (!files) {
        close_shard(&file);
        return fail(SOTTO_ENOMEM, "no memory to open another file");
    }
    set->file = files;
    set->file[set->n_file++] = file;
    TRY(fail_in(safetensors_header_check(&files[set->n_file - 1], &list, &count),
                "%s: ", file.path));
    if (count) {
        more = realloc(set->entry, (set->count + count) * sizeof *more);
        if (more) {
            set->entry = more;
            memcpy(set->entry + set->count, list, count * sizeof *list);
            set->count += count;
        }
    }
    free(list);
    return more || !count ? SOTTO_OK
                          : fail(SOTTO_ENOMEM, "%s: no memory for %zu tensors", file.path, count);
}

static enum sotto_status add_file_at(struct safetensors *set, const char *path)
{
    struct safetensors_file file = {.path = strdup(path)};
    if (!file.path)
        return fail(SOTTO_ENOMEM, "no memory to open %s", path);
    enum sotto_status st = file_map_open(&file.map, path);
    if (st != SOTTO_OK) {
        close_shard(&file);
        return st;
    }
    return add_opened_file(set, file);
}

static int compare_entry_names(const void *a, const void *b)
{
    const struct safetensors_entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static enum sotto_status sort_entries(struct safetensors *set)
{
    if (set->count)
        qsort(set->entry, set->count, sizeof *set->entry, compare_entry_names);
    for (size_t i = 1; i < set->count; i++)
        if (strcmp(set->entry[i - 1].name, set->entry[i].name) == 0)
            return fail(SOTTO_EFORMAT, "tensor '%.200s' is in two of the files",
                        set->entry[i].name);
    return SOTTO_OK;
}

/* Checks a name in an index, which may have any origin: its files must be in the same folder. */
static enum sotto_status check_shard_name(const char *name)
{
    if (*name == '\0' || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return fail(SOTTO_EFORMAT, "'%.200s' is not the name of a file in this folder", name);
    return SOTTO_OK;
}

static enum sotto_status open_shards(struct safetensors *set, const char *folder,
                                     const json_t *index)
{
    json_t *map, *file, *opened = json_object();
    const char *tensor;
    TRY(opened ? SOTTO_OK : fail(SOTTO_ENOMEM, "no memory for an index"));
    enum sotto_status st;
    TRY_DONE(json_get_object(index, "weight_map", &map));
    json_object_foreach(map, tensor, file)
    {
        const char *name = json_string_value(file);
        char path[FILE_PATH_ROOM];
        if (!name) {
            st = fail(SOTTO_EFORMAT, "weight_map '%.200s' must be a string, got %s", tensor,
                      json_kind(file));
            goto done;
        }
        if (json_object_get(opened, name))
            continue;
        TRY_DONE(check_shard_name(name));
        TRY_DONE(file_join(path, folder, name));
        TRY_DONE(add_file_at(set, path));
        json_object_set_new(opened, name, json_true());
    }
    TRY_DONE(sort_entries(set));
    json_object_foreach(map, tensor, file)
    {
        if (!safetensors_find(set, tensor)) {
            st = fail(SOTTO_EFORMAT, "tensor '%.200s' is not in its file %.200s", tensor,
                      json_string_value(file));
            goto done;
        }
    }
done:
    json_decref(opened);
    return st;
}

static enum sotto_status open_model_folder(struct safetensors *set, const char *folder)
{
    char path[FILE_PATH_ROOM];
    TRY(file_join(path, folder, "model.safetensors"));
    if (file_exists(path)) {
        TRY(add_file_at(set, path));
        return fail_in(sort_entries(set), "%s: ", path);
    }
    TRY(file_join(path, folder, "pytorch_model.bin"));
    const bool pickled = file_exists(path);
    TRY(file_join(path, folder, "model.safetensors.index.json"));
    if (!file_exists(path) && pickled)
        return fail(SOTTO_EIO,
                    "%s has its weights in pytorch_model.bin, a format that only Python reads: "
                    "load the model in transformers and save it with save_pretrained",
                    folder);
    if (!file_exists(path))
        return fail(SOTTO_EIO, "%s has neither model.safetensors nor model.safetensors.index.json",
                    folder);
    json_t *index;
    TRY(json_open(&index, path, INDEX_LIMIT));
    enum sotto_status st = fail_in(open_shards(set, folder, index), "%s: ", path);
    json_decref(index);
    return st;
}

enum sotto_status safetensors_open(struct safetensors *set, const char *path)
{
    *set = (struct safetensors){0};
    enum sotto_status st;
    if (file_is_directory(path)) {
        st = open_model_folder(set, path);
    } else {
        st = add_file_at(set, path);
        if (st == SOTTO_OK)
            st = fail_in(sort_entries(set), "%s: ", path);
    }
    if (st != SOTTO_OK)
        safetensors_close(set);
    return st;
}

enum sotto_status safetensors_open_memory(struct safetensors *set, const void *data, size_t size,
                                          const char *name)
{
    *set = (struct safetensors){0};
    struct safetensors_file file = {.map = {data, size}, .borrowed = true, .path = strdup(name)};
    if (!file.path)
        return fail(SOTTO_ENOMEM, "no memory to open %s", name);
    enum sotto_status st = add_opened_file(set, file);
    if (st == SOTTO_OK)
        st = fail_in(sort_entries(set), "%s: ", name);
    if (st != SOTTO_OK)
        safetensors_close(set);
    return st;
}

enum sotto_status safetensors_open_head(struct safetensors *set, const void *head, size_t bytes,
                                        size_t size, const char *name)
{
    *set = (struct safetensors){0};
    struct safetensors_file file = {.path = strdup(name)};
    if (!file.path)
        return fail(SOTTO_ENOMEM, "no memory to open %s", name);
    enum sotto_status st = file_map_head(&file.map, head, bytes, size);
    if (st != SOTTO_OK) {
        close_shard(&file);
        return fail_in(st, "%s: ", name);
    }
    st = add_opened_file(set, file);
    if (st == SOTTO_OK)
        st = fail_in(sort_entries(set), "%s: ", name);
    if (st != SOTTO_OK)
        safetensors_close(set);
    return st;
}

const struct safetensors_entry *safetensors_find(const struct safetensors *set, const char *name)
{
    struct safetensors_entry key = {.name = name};
    return set->count ? bsearch(&key, set->entry, set->count, sizeof key, compare_entry_names)
                      : NULL;
}

enum sotto_status safetensors_get(const struct safetensors *set, const char *name, int ndim,
                                  const int64_t *shape, const struct safetensors_entry **out)
{
    const struct safetensors_entry *e = safetensors_find(set, name);
    if (!e)
        return fail(SOTTO_EFORMAT, "%s has no tensor '%s'", set->file[0].path, name);
    if (e->ndim != ndim || memcmp(e->shape, shape, (size_t)ndim * sizeof *shape) != 0) {
        char have[SAFETENSORS_SHAPE_ROOM], want[SAFETENSORS_SHAPE_ROOM];
        safetensors_shape_text(e->ndim, e->shape, have);
        safetensors_shape_text(ndim, shape, want);
        return fail(SOTTO_EFORMAT, "%s: tensor '%s' is %s, want %s", set->file[0].path, name, have,
                    want);
    }
    *out = e;
    return SOTTO_OK;
}

const char *safetensors_metadata(const struct safetensors *set, const char *key)
{
    if (set->n_file == 0)
        return NULL;
    const json_t *metadata = json_object_get(set->file[0].header, "__metadata__");
    return json_string_value(json_object_get(metadata, key));
}

static uint16_t read_little16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint64_t read_little_endian(const uint8_t *p, size_t size)
{
    uint64_t bits = 0;
    while (size--)
        bits = bits << 8 | p[size];
    return bits;
}

enum sotto_status safetensors_read_f32_range(const struct safetensors_entry *entry, size_t offset,
                                             size_t count, float *out)
{
    if (offset > entry->count || count > entry->count - offset)
        return fail(SOTTO_EINVAL, "tensor '%.200s' has %zu elements, not %zu from %zu on",
                    entry->name, entry->count, count, offset);
    const uint8_t *from = entry->data + offset * safetensors_type_size(entry->type);
    switch (entry->type) {
    case SAFETENSORS_F32:
        if (count)
            memcpy(out, from, count * 4);
        return SOTTO_OK;
    case SAFETENSORS_BF16:
        for (size_t i = 0; i < count; i++)
            out[i] = bf16_widen(read_little16(from + 2 * i));
        return SOTTO_OK;
    case SAFETENSORS_F16:
        for (size_t i = 0; i < count; i++)
            out[i] = f16_widen(read_little16(from + 2 * i));
        return SOTTO_OK;
    case SAFETENSORS_F64:
        for (size_t i = 0; i < count; i++) {
            double value;
            memcpy(&value, from + 8 * i, 8);
            out[i] = (float)value;
        }
        return SOTTO_OK;
    default:
        return fail(SOTTO_EFORMAT, "tensor '%.200s' is of type %.40s, want F32, BF16, F16 or F64",
                    entry->name, entry->type_name);
    }
}

enum sotto_status safetensors_read_f32(const struct safetensors_entry *entry, float *out)
{
    return safetensors_read_f32_range(entry, 0, entry->count, out);
}

enum sotto_status safetensors_read_i64(const struct safetensors_entry *entry, int64_t *out)
{
    size_t size = safetensors_type_size(entry->type);
    for (size_t i = 0; i < entry->count; i++) {
        uint64_t bits = read_little_endian(entry->data + i * size, size);
        switch (entry->type) {
        case SAFETENSORS_I64:
            out[i] = (int64_t)bits;
            break;
        case SAFETENSORS_I32:
            out[i] = (int32_t)(uint32_t)bits;
            break;
        case SAFETENSORS_I16:
            out[i] = (int16_t)(uint16_t)bits;
            break;
        case SAFETENSORS_I8:
            out[i] = (int8_t)(uint8_t)bits;
            break;
        case SAFETENSORS_U8:
        case SAFETENSORS_BOOL:
            out[i] = (int64_t)bits;
            break;
        default:
            return fail(SOTTO_EFORMAT, "tensor '%.200s' is of type %.40s, want integers",
                        entry->name, entry->type_name);
        }
    }
    return SOTTO_OK;
}
