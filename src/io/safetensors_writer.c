/* Writing safetensors files: the header first, then the bytes of the tensors in the declared order.
 */
#include "io/safetensors.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "io/half.h"

enum sotto_status safetensors_writer_init(struct safetensors_writer *writer)
{
    *writer = (struct safetensors_writer){.header = json_object(), .metadata = json_object()};
    if (!writer->header || !writer->metadata ||
        json_object_set(writer->header, "__metadata__", writer->metadata) != 0 ||
        safetensors_writer_note(writer, "format", "pt") != SOTTO_OK) {
        safetensors_writer_free(writer);
        return fail(SOTTO_ENOMEM, "no memory for a header");
    }
    return SOTTO_OK;
}

void safetensors_writer_free(struct safetensors_writer *writer)
{
    file_abort(&writer->draft);
    json_decref(writer->metadata);
    json_decref(writer->header);
    *writer = (struct safetensors_writer){0};
}

enum sotto_status safetensors_writer_note(struct safetensors_writer *writer, const char *key,
                                          const char *text)
{
    assert(!writer->started);
    if (json_object_set_new(writer->metadata, key, json_string(text)) != 0)
        return fail(SOTTO_EINVAL, "metadata '%.80s': no memory, or its text is not UTF-8", key);
    return SOTTO_OK;
}

/* Counts the bytes of a tensor; an error if they cannot be counted. */
static enum sotto_status count_tensor_bytes(enum safetensors_type type, int ndim,
                                            const int64_t *shape, uint64_t *bytes)
{
    char text[SAFETENSORS_SHAPE_ROOM];
    if (type >= SAFETENSORS_OTHER)
        return fail(SOTTO_EINVAL, "its type cannot be written");
    if (ndim < 0 || ndim > SAFETENSORS_DIMS)
        return fail(SOTTO_EINVAL, "%d dimensions, at most %d are supported", ndim,
                    SAFETENSORS_DIMS);
    safetensors_shape_text(ndim, shape, text);
    *bytes = safetensors_type_size(type);
    for (int i = 0; i < ndim; i++)
        if (shape[i] < 0 || __builtin_mul_overflow(*bytes, (uint64_t)shape[i], bytes))
            return fail(SOTTO_EINVAL, "shape %s is negative or too large", text);
    return SOTTO_OK;
}

static enum sotto_status declare_tensor(struct safetensors_writer *writer, const char *name,
                                        enum safetensors_type type, int ndim, const int64_t *shape)
{
    uint64_t bytes = 0, end;
    TRY(count_tensor_bytes(type, ndim, shape, &bytes));
    if (__builtin_add_overflow(writer->declared, bytes, &end) || end > INT64_MAX)
        return fail(SOTTO_EINVAL, "the file would be too large");
    if (writer->declared % safetensors_type_size(type) != 0)
        return fail(SOTTO_EINVAL,
                    "it would start at byte %llu, not at a multiple of its %zu-byte elements",
                    (unsigned long long)writer->declared, safetensors_type_size(type));
    if (json_object_get(writer->header, name))
        return fail(SOTTO_EINVAL, "declared twice");
    json_t *sides = json_array();
    for (int i = 0; i < ndim; i++)
        json_array_append_new(sides, json_integer(shape[i]));
    json_t *info = json_pack("{s:s, s:o, s:[I,I]}", "dtype", safetensors_type_name(type), "shape",
                             sides, "data_offsets", (json_int_t)writer->declared, (json_int_t)end);
    if (!info || json_array_size(sides) != (size_t)ndim ||
        json_object_set(writer->header, name, info) != 0) {
        json_decref(info);
        return fail(SOTTO_EINVAL, "no memory, or its name is not UTF-8");
    }
    json_decref(info);
    writer->declared = end;
    return SOTTO_OK;
}

enum sotto_status safetensors_writer_declare(struct safetensors_writer *writer, const char *name,
                                             enum safetensors_type type, int ndim,
                                             const int64_t *shape)
{
    assert(!writer->started);
    return fail_in(declare_tensor(writer, name, type, ndim, shape), "tensor '%.200s': ", name);
}

enum sotto_status safetensors_writer_start(struct safetensors_writer *writer, const char *path)
{
    file_abort(&writer->draft);
    writer->written = 0;
    char *text = json_dumps(writer->header, JSON_COMPACT);
    if (!text)
        return fail(SOTTO_ENOMEM, "%s: no memory for the header", path);
    size_t length = strlen(text), padded = (length + 7) / 8 * 8;
    uint8_t prefix[8];
    for (int i = 0; i < 8; i++)
        prefix[i] = (uint8_t)((uint64_t)padded >> (8 * i));
    enum sotto_status st;
    if (padded > SAFETENSORS_HEADER_LIMIT) {
        st = fail(SOTTO_EINVAL, "%s: the header of %zu tensors takes %zu bytes, readers allow %llu",
                  path, json_object_size(writer->header) - 1, padded,
                  (unsigned long long)SAFETENSORS_HEADER_LIMIT);
        goto done;
    }
    TRY_DONE(file_draft_open(&writer->draft, path));
    writer->started = true;
    writer->failed = true; /* until the header is out */
    TRY_DONE(file_put(&writer->draft, prefix, 8));
    TRY_DONE(file_put(&writer->draft, text, length));
    TRY_DONE(file_put(&writer->draft, "       ", padded - length));
    writer->failed = false;
done:
    free(text);
    return st;
}

enum sotto_status safetensors_writer_put(struct safetensors_writer *writer, const void *data,
                                         size_t bytes)
{
    assert(writer->started);
    if (bytes > writer->declared - writer->written) {
        writer->failed = true;
        return fail(SOTTO_EINVAL, "%s: %zu bytes after %llu of the %llu declared",
                    writer->draft.path, bytes, (unsigned long long)writer->written,
                    (unsigned long long)writer->declared);
    }
    enum sotto_status st = file_put(&writer->draft, data, bytes);
    if (st != SOTTO_OK)
        writer->failed = true;
    writer->written += bytes;
    return st;
}

enum sotto_status safetensors_writer_put_f32(struct safetensors_writer *writer,
                                             enum safetensors_type type, const float *x,
                                             size_t count)
{
    enum { PIECE = 4096 };
    uint16_t half[PIECE];
    assert(type == SAFETENSORS_F32 || type == SAFETENSORS_BF16 || type == SAFETENSORS_F16);
    if (type == SAFETENSORS_F32)
        return safetensors_writer_put(writer, x, count * sizeof *x);
    for (size_t at = 0; at < count; at += PIECE) {
        const size_t n = count - at < PIECE ? count - at : PIECE;
        for (size_t i = 0; i < n; i++)
            half[i] = type == SAFETENSORS_BF16 ? bf16_round(x[at + i]) : f16_round(x[at + i]);
        TRY(safetensors_writer_put(writer, half, n * sizeof *half));
    }
    return SOTTO_OK;
}

enum sotto_status safetensors_writer_finish(struct safetensors_writer *writer)
{
    assert(writer->started && writer->draft.stream);
    enum sotto_status st = SOTTO_OK;
    if (writer->failed)
        st = fail(SOTTO_EIO, "%s: an earlier write failed", writer->draft.path);
    else if (writer->written != writer->declared)
        st = fail(SOTTO_EINVAL, "%s: %llu bytes written, %llu declared", writer->draft.path,
                  (unsigned long long)writer->written, (unsigned long long)writer->declared);
    if (st == SOTTO_OK)
        return file_commit(&writer->draft);
    file_abort(&writer->draft);
    return st;
}
