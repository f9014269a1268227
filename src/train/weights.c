#include "train/weights.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "io/half.h"

enum sotto_status weights_config(struct model_config *config, const char *folder)
{
    char path[FILE_PATH_ROOM];
    json_t *json;
    if (!file_is_directory(folder))
        return fail(SOTTO_EIO, "%s is not a folder with a model", folder);
    TRY(file_join(path, folder, "config.json"));
    if (!file_exists(path))
        return fail(SOTTO_EIO, "%s is not a folder with a model: it has no config.json", folder);
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

static enum sotto_status find_tensor(const struct safetensors *set, const struct table_entry *e,
                                     const struct safetensors_entry **out)
{
    const char *name = safetensors_find(set, e->name) ? e->name : without_prefix(e->name);
    if (!safetensors_find(set, name))
        return fail(SOTTO_EFORMAT, "tensor '%s' is missing", e->name);
    return safetensors_get(set, name, e->ndim, e->shape, out);
}

static enum sotto_status load_tensor(const struct safetensors *set, const struct table_entry *e,
                                     float *out)
{
    const struct safetensors_entry *entry;
    TRY(find_tensor(set, e, &entry));
    TRY(safetensors_check_numbers(entry, 0, entry->count));
    return safetensors_read_f32(entry, out);
}

static enum sotto_status load_table(const struct table *table, const char *path, float *flat)
{
    struct safetensors set;
    TRY(safetensors_open(&set, path));
    enum sotto_status st = SOTTO_OK;
    memset(flat, 0, table_count(table) * sizeof *flat);
    for (int i = 0; i < table->n && st == SOTTO_OK; i++) {
        const struct table_entry *e = &table->entry[i];
        st = load_tensor(&set, e, flat + table->stage_start[e->stage] + e->offset);
    }
    safetensors_close(&set);
    return fail_in(st, "%s: ", path);
}

enum sotto_status weights_load(const struct model *model, const char *path, float *flat)
{
    return load_table(&model->table, path, flat);
}

enum sotto_status weights_load_state(const struct model *model, const char *path, float *state)
{
    return load_table(&model->state, path, state);
}

enum sotto_status weights_types(const struct model *model, const char *path,
                                enum safetensors_type *types)
{
    struct safetensors set;
    TRY(safetensors_open(&set, path));
    enum sotto_status st = SOTTO_OK;
    for (int i = 0; i < model->table.n && st == SOTTO_OK; i++) {
        const struct safetensors_entry *entry;
        st = find_tensor(&set, &model->table.entry[i], &entry);
        if (st == SOTTO_OK && types)
            types[i] = entry->type == SAFETENSORS_BF16 || entry->type == SAFETENSORS_F16
                           ? entry->type
                           : SAFETENSORS_F32;
    }
    safetensors_close(&set);
    return fail_in(st, "%s: ", path);
}

static float largest(enum safetensors_type type)
{
    return type == SAFETENSORS_F16 ? F16_LARGEST : type == SAFETENSORS_BF16 ? 0x1.fep127f : FLT_MAX;
}

/* Finds the types that can be written, before anything is. */
static enum sotto_status check_numbers(const struct table *table, const float *flat,
                                       enum safetensors_type *types)
{
    for (int i = 0; i < table->n; i++) {
        const struct table_entry *e = &table->entry[i];
        const float *x = flat + table->stage_start[e->stage] + e->offset;
        double sum = 0; /* infinite or NaN if any element is */
        float most = 0;
        for (size_t j = 0; j < e->count; j++) {
            sum += fabs((double)x[j]);
            most = fabsf(x[j]) > most ? fabsf(x[j]) : most;
        }
        if (!isfinite(sum))
            return fail(SOTTO_ENUMERIC, "tensor '%s' holds values that are no numbers; not saved",
                        e->name);
        if (most > largest(types[i])) {
            log_warn("tensor '%s' holds %g, %s ends at %g: it is saved as F32", e->name,
                     (double)most, safetensors_type_name(types[i]), (double)largest(types[i]));
            types[i] = SAFETENSORS_F32;
        }
    }
    return SOTTO_OK;
}

/* Declares or writes those of the table whose elements are wide, or those that are not; all are F32
 * without `types`. */
static enum sotto_status put_table(const struct table *table, struct safetensors_writer *writer,
                                   const float *flat, const enum safetensors_type *types, bool wide,
                                   bool write)
{
    for (int i = 0; i < table->n; i++) {
        const struct table_entry *e = &table->entry[i];
        const float *x = flat + table->stage_start[e->stage] + e->offset;
        const enum safetensors_type type = types ? types[i] : SAFETENSORS_F32;
        if ((type == SAFETENSORS_F32) != wide)
            continue;
        if (write)
            TRY(safetensors_writer_put_f32(writer, type, x, e->count));
        else
            TRY(safetensors_writer_declare(writer, e->name, type, e->ndim, e->shape));
    }
    return SOTTO_OK;
}

/* Wider elements first, which keeps all of them aligned. */
static enum sotto_status put_tensors(const struct model *model, struct safetensors_writer *writer,
                                     const char *path, const float *flat, const float *state,
                                     const enum safetensors_type *types)
{
    for (int pass = 0; pass < 4; pass++) {
        const bool wide = pass % 2 == 0, write = pass >= 2;
        if (pass == 2)
            TRY(safetensors_writer_start(writer, path));
        TRY(put_table(&model->table, writer, flat, types, wide, write));
        if (state)
            TRY(put_table(&model->state, writer, state, NULL, wide, write));
    }
    return safetensors_writer_finish(writer);
}

enum sotto_status weights_save(const struct model *model, const char *path, const float *flat,
                               const float *state, const enum safetensors_type *types)
{
    const struct table *table = &model->table;
    struct safetensors_writer writer;
    enum safetensors_type *mine = calloc((size_t)table->n, sizeof *mine); /* F32 is 0 */
    enum sotto_status st;
    if (!mine)
        return fail(SOTTO_ENOMEM, "no memory for the types of %d tensors", table->n);
    if (types)
        memcpy(mine, types, (size_t)table->n * sizeof *mine);
    TRY_DONE(check_numbers(table, flat, mine));
    TRY_DONE(safetensors_writer_init(&writer));
    st = put_tensors(model, &writer, path, flat, state, mine);
    safetensors_writer_free(&writer);
done:
    free(mine);
    return st;
}
