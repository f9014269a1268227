#include "train/weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "io/safetensors.h"

enum sotto_status weights_config(struct model_config *config, const char *folder)
{
    char path[FILE_PATH_ROOM];
    json_t *json;
    if (!file_is_directory(folder))
        return fail(SOTTO_EIO, "%s is not a folder with a model", folder);
    TRY(file_join(path, folder, "config.json"));
    TRY(json_open(&json, path, 1 << 24));
    enum sotto_status st = fail_in(model_config_from_json(config, json), "%s: ", path);
    json_decref(json);
    return st;
}

/* Files saved from a bare model lack the outer module's name ("h.0..." for "transformer.h.0...").
 */
static const char *without_prefix(const char *name)
{
    static const char *const prefix[] = {"transformer.", "model."};
    for (int i = 0; i < 2; i++)
        if (strncmp(name, prefix[i], strlen(prefix[i])) == 0)
            return name + strlen(prefix[i]);
    return name;
}

static enum sotto_status load_tensor(const struct safetensors *set, const struct table_entry *e,
                                     float *out)
{
    const char *name = safetensors_find(set, e->name) ? e->name : without_prefix(e->name);
    if (!safetensors_find(set, name))
        return fail(SOTTO_EFORMAT, "tensor '%s' is missing", e->name);
    const struct safetensors_entry *entry;
    TRY(safetensors_get(set, name, e->ndim, e->shape, &entry));
    return safetensors_read_f32(entry, out);
}

enum sotto_status weights_load(const struct model *model, const char *folder, float *flat)
{
    struct safetensors set;
    TRY(safetensors_open(&set, folder));
    const struct table *table = &model->table;
    enum sotto_status st = SOTTO_OK;
    memset(flat, 0, table_count(table) * sizeof *flat);
    for (int i = 0; i < table->n && st == SOTTO_OK; i++) {
        const struct table_entry *e = &table->entry[i];
        st = load_tensor(&set, e, flat + table->stage_start[e->stage] + e->offset);
    }
    safetensors_close(&set);
    return fail_in(st, "%s: ", folder);
}

static enum sotto_status save_config(const struct model *model, const char *folder, int end)
{
    char path[FILE_PATH_ROOM];
    json_t *json;
    TRY(file_join(path, folder, "config.json"));
    TRY(model_config_to_json(&model->config, &json));
    json_t *id = end >= 0 ? json_integer(end) : json_null();
    json_object_set(json, "bos_token_id", id);
    json_object_set(json, "eos_token_id", id);
    json_decref(id);
    json_object_set_new(json, "pad_token_id", json_null());
    enum sotto_status st = json_save(json, path, 2);
    json_decref(json);
    return st;
}

static enum sotto_status put_tensors(const struct table *table, struct safetensors_writer *writer,
                                     const char *path, const float *flat)
{
    for (int i = 0; i < table->n; i++) {
        const struct table_entry *e = &table->entry[i];
        TRY(safetensors_writer_declare(writer, e->name, SAFETENSORS_F32, e->ndim, e->shape));
    }
    TRY(safetensors_writer_start(writer, path));
    for (int i = 0; i < table->n; i++) {
        const struct table_entry *e = &table->entry[i];
        const float *x = flat + table->stage_start[e->stage] + e->offset;
        double sum = 0; /* infinite or NaN if any element is */
        for (size_t j = 0; j < e->count; j++)
            sum += fabs((double)x[j]);
        if (!isfinite(sum))
            return fail(SOTTO_ENUMERIC, "tensor '%s' holds values that are no numbers; not saved",
                        e->name);
        TRY(safetensors_writer_put(writer, x, e->count * sizeof *x));
    }
    return safetensors_writer_finish(writer);
}

enum sotto_status weights_save(const struct model *model, const char *folder, const float *flat,
                               int end)
{
    char path[FILE_PATH_ROOM];
    struct safetensors_writer writer;
    TRY(save_config(model, folder, end));
    TRY(file_join(path, folder, "model.safetensors"));
    TRY(safetensors_writer_init(&writer));
    enum sotto_status st = put_tensors(&model->table, &writer, path, flat);
    safetensors_writer_free(&writer);
    return st;
}
