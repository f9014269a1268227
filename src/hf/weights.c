#include "hf/weights.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "hf/weights_find.h"
#include "io/half.h"
#include "nn/arch/arch.h"

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

/* Turns one output of a kernel from (h, w, in) to (in, h, w), or back. */
static void turn_kernel(const struct table_entry *e, bool to_file, const float *from, float *to)
{
    const size_t pixels = (size_t)(e->shape[1] * e->shape[2]), in = (size_t)e->shape[3];
    for (size_t p = 0; p < pixels; p++)
        for (size_t c = 0; c < in; c++)
            to[to_file ? c * pixels + p : p * in + c] = from[to_file ? p * in + c : c * pixels + p];
}

static enum sotto_status load_kernel(const struct safetensors_entry *entry,
                                     const struct table_entry *e, float *out)
{
    const size_t each = e->count / (size_t)e->shape[0];
    float *room = malloc((each + 1) * sizeof *room);
    enum sotto_status st = room ? SOTTO_OK : fail(SOTTO_ENOMEM, "no memory for '%s'", e->name);
    for (size_t at = 0; at < e->count && st == SOTTO_OK; at += each) {
        st = safetensors_read_f32_range(entry, at, each, room);
        turn_kernel(e, false, room, out + at);
    }
    free(room);
    return st;
}

static enum sotto_status load_counter(const struct safetensors_entry *entry, float *out)
{
    int64_t number;
    TRY(safetensors_read_i64(entry, &number));
    *out = (float)number;
    return SOTTO_OK;
}

static enum sotto_status load_weight(const struct safetensors *set, const struct model *model,
                                     const struct table_entry *e, float *out)
{
    const struct safetensors_entry *entry;
    enum sotto_status st = weights_find(set, model, e, &entry);
    if (e->form == FORM_COUNTER && !entry)
        return SOTTO_OK; /* older files have no counter: it starts from 0 */
    TRY(st);
    if (e->form == FORM_COUNTER)
        return load_counter(entry, out);
    TRY(safetensors_check_numbers(entry, 0, entry->count));
    return e->form == FORM_KERNEL ? load_kernel(entry, e, out) : safetensors_read_f32(entry, out);
}

static enum sotto_status load_weights_table(const struct model *model, const struct table *table,
                                            const char *path, bool body, float *flat)
{
    struct safetensors set;
    TRY(safetensors_open(&set, path));
    enum sotto_status st = SOTTO_OK;
    if (!body)
        memset(flat, 0, table_count(table) * sizeof *flat);
    for (int i = 0; i < table->n && st == SOTTO_OK; i++) {
        const struct table_entry *e = &table->entry[i];
        if (body && weights_classify(e))
            continue;
        st = load_weight(&set, model, e, flat + table->stage_start[e->stage] + e->offset);
    }
    safetensors_close(&set);
    return fail_in(st, "%s: ", path);
}

enum sotto_status weights_load(const struct model *model, const char *path, float *flat)
{
    return load_weights_table(model, &model->table, path, false, flat);
}

enum sotto_status weights_load_body(const struct model *model, const char *path, float *flat)
{
    return load_weights_table(model, &model->table, path, true, flat);
}

enum sotto_status weights_have_classifier(const struct model *model, const char *path, bool *have)
{
    struct safetensors set;
    *have = true;
    TRY(safetensors_open(&set, path));
    for (int i = 0; i < model->table.n; i++)
        *have &= !weights_classify(&model->table.entry[i]) ||
                 weights_find_name(&set, model->table.entry[i].name) != NULL;
    safetensors_close(&set);
    return SOTTO_OK;
}

enum sotto_status weights_load_state(const struct model *model, const char *path, float *state)
{
    return load_weights_table(model, &model->state, path, false, state);
}

static enum safetensors_type nearest_type(enum safetensors_type type)
{
    return type == SAFETENSORS_BF16 || type == SAFETENSORS_F16 ? type : SAFETENSORS_F32;
}

enum sotto_status weights_types(const struct model *model, const char *path, bool body,
                                enum safetensors_type *types)
{
    struct safetensors set;
    TRY(safetensors_open(&set, path));
    enum sotto_status st = SOTTO_OK;
    for (int i = 0; i < model->table.n && st == SOTTO_OK; i++) {
        const struct table_entry *e = &model->table.entry[i];
        const struct safetensors_entry *entry = NULL;
        const bool left_out = body && weights_classify(e);
        if (!left_out)
            st = weights_find(&set, model, e, &entry);
        if (st == SOTTO_OK)
            types[i] = left_out ? types[i - 1] : nearest_type(entry->type);
    }
    safetensors_close(&set);
    return fail_in(st, "%s: ", path);
}

static float largest_number(enum safetensors_type type)
{
    return type == SAFETENSORS_F16 ? F16_LARGEST : type == SAFETENSORS_BF16 ? 0x1.fep127f : FLT_MAX;
}

/* Lowers types that cannot hold a tensor's numbers, before anything is written. */
static enum sotto_status check_table_numbers(const struct table *table, const float *flat,
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
        if (most > largest_number(types[i])) {
            log_warn("tensor '%s' holds %g, %s ends at %g: it is saved as F32", e->name,
                     (double)most, safetensors_type_name(types[i]),
                     (double)largest_number(types[i]));
            types[i] = SAFETENSORS_F32;
        }
    }
    return SOTTO_OK;
}

static enum sotto_status write_kernel(struct safetensors_writer *writer,
                                      const struct table_entry *e, enum safetensors_type type,
                                      const float *x)
{
    const size_t each = e->count / (size_t)e->shape[0];
    float *room = malloc((each + 1) * sizeof *room);
    enum sotto_status st = room ? SOTTO_OK : fail(SOTTO_ENOMEM, "no memory for '%s'", e->name);
    for (size_t at = 0; at < e->count && st == SOTTO_OK; at += each) {
        turn_kernel(e, true, x + at, room);
        st = safetensors_writer_put_f32(writer, type, room, each);
    }
    free(room);
    return st;
}

static enum sotto_status write_tensor(struct safetensors_writer *writer,
                                      const struct table_entry *e, enum safetensors_type type,
                                      const float *x)
{
    if (e->form == FORM_KERNEL)
        return write_kernel(writer, e, type, x);
    if (e->form == FORM_COUNTER) {
        const int64_t number = llroundf(*x); /* a mean over workers */
        return safetensors_writer_put(writer, &number, sizeof number);
    }
    return safetensors_writer_put_f32(writer, type, x, e->count);
}

/* Declares or writes the tensors with elements of `bytes` bytes; without `types` floats are F32. */
static enum sotto_status write_table(const struct table *table, struct safetensors_writer *writer,
                                     const float *flat, const enum safetensors_type *types,
                                     size_t bytes, bool write)
{
    for (int i = 0; i < table->n; i++) {
        const struct table_entry *e = &table->entry[i];
        const float *x = flat + table->stage_start[e->stage] + e->offset;
        enum safetensors_type type = types ? types[i] : SAFETENSORS_F32;
        int64_t shape[TABLE_DIMS];
        if (e->form == FORM_COUNTER)
            type = SAFETENSORS_I64;
        if (safetensors_type_size(type) != bytes)
            continue;
        weights_shape(e, shape);
        TRY(write ? write_tensor(writer, e, type, x)
                  : safetensors_writer_declare(writer, e->name, type, e->ndim, shape));
    }
    return SOTTO_OK;
}

/* Writes wider elements first, which keeps every tensor aligned. */
static enum sotto_status write_tensors(const struct model *model, struct safetensors_writer *writer,
                                       const char *path, const float *flat, const float *state,
                                       const enum safetensors_type *types)
{
    for (int write = 0; write < 2; write++) {
        if (write)
            TRY(safetensors_writer_start(writer, path));
        for (size_t bytes = 8; bytes > 1; bytes /= 2) {
            TRY(write_table(&model->table, writer, flat, types, bytes, write));
            if (state)
                TRY(write_table(&model->state, writer, state, NULL, bytes, write));
        }
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
    TRY_DONE(check_table_numbers(table, flat, mine));
    TRY_DONE(safetensors_writer_init(&writer));
    st = write_tensors(model, &writer, path, flat, state, mine);
    safetensors_writer_free(&writer);
done:
    free(mine);
    return st;
}
