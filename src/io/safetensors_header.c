/* The header of a safetensors file, checked against the file and against itself.
 *
 * What the format demands: a length that fits the file, a JSON object without repeated keys, for
 * each tensor a dtype, a shape and offsets that agree, and bytes that are covered by the tensors
 * exactly once. */
#include "io/safetensors_header.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"

static const struct {
    const char *name;
    size_t size;
} types[] = {
    [SAFETENSORS_F32] = {"F32", 4},     [SAFETENSORS_BF16] = {"BF16", 2},
    [SAFETENSORS_F16] = {"F16", 2},     [SAFETENSORS_F64] = {"F64", 8},
    [SAFETENSORS_I64] = {"I64", 8},     [SAFETENSORS_I32] = {"I32", 4},
    [SAFETENSORS_I16] = {"I16", 2},     [SAFETENSORS_I8] = {"I8", 1},
    [SAFETENSORS_U8] = {"U8", 1},       [SAFETENSORS_BOOL] = {"BOOL", 1},
    [SAFETENSORS_OTHER] = {"other", 0},
};

const char *safetensors_type_name(enum safetensors_type type)
{
    return types[type].name;
}

size_t safetensors_type_size(enum safetensors_type type)
{
    return types[type].size;
}

enum safetensors_type safetensors_type_of(enum dtype type)
{
    return type == DTYPE_F32 ? SAFETENSORS_F32 : SAFETENSORS_BF16;
}

static enum safetensors_type find_type(const char *name)
{
    int type = 0;
    while (type < SAFETENSORS_OTHER && strcmp(types[type].name, name) != 0)
        type++;
    return (enum safetensors_type)type;
}

void safetensors_shape_text(int ndim, const int64_t *shape, char out[SAFETENSORS_SHAPE_ROOM])
{
    size_t used = (size_t)snprintf(out, SAFETENSORS_SHAPE_ROOM, "[");
    for (int i = 0; i < ndim; i++)
        used += (size_t)snprintf(out + used, SAFETENSORS_SHAPE_ROOM - used, "%s%lld", i ? "," : "",
                                 (long long)shape[i]);
    snprintf(out + used, SAFETENSORS_SHAPE_ROOM - used, "]");
}

static enum sotto_status read_shape(const json_t *info, struct safetensors_entry *e)
{
    json_t *shape;
    TRY(json_get_array(info, "shape", &shape));
    size_t ndim = json_array_size(shape);
    if (ndim > SAFETENSORS_DIMS)
        return fail(SOTTO_EFORMAT, "%zu dimensions, at most %d are supported", ndim,
                    SAFETENSORS_DIMS);
    e->ndim = (int)ndim;
    e->count = 1;
    for (int i = 0; i < e->ndim; i++) {
        const json_t *side = json_array_get(shape, (size_t)i);
        if (!json_is_integer(side))
            return fail(SOTTO_EFORMAT, "dimension %d is of kind %s, want an integer", i,
                        json_kind(side));
        e->shape[i] = json_integer_value(side);
        if (e->shape[i] < 0)
            return fail(SOTTO_EFORMAT, "dimension %d is %lld", i, (long long)e->shape[i]);
    }
    char text[SAFETENSORS_SHAPE_ROOM];
    safetensors_shape_text(e->ndim, e->shape, text);
    for (int i = 0; i < e->ndim; i++)
        if (__builtin_mul_overflow(e->count, (size_t)e->shape[i], &e->count) ||
            e->count > SIZE_MAX / 8)
            return fail(SOTTO_EFORMAT, "shape %s has more elements than can be counted", text);
    return SOTTO_OK;
}

static enum sotto_status read_offsets(const json_t *info, size_t data_bytes, size_t *begin,
                                      size_t *end)
{
    json_t *pair;
    TRY(json_get_array(info, "data_offsets", &pair));
    const json_t *first = json_array_get(pair, 0), *last = json_array_get(pair, 1);
    if (json_array_size(pair) != 2 || !json_is_integer(first) || !json_is_integer(last))
        return fail(SOTTO_EFORMAT, "data_offsets must be two integers");
    long long from = json_integer_value(first), to = json_integer_value(last);
    if (from < 0 || to < from)
        return fail(SOTTO_EFORMAT, "offsets %lld..%lld are not a range", from, to);
    if ((unsigned long long)to > data_bytes)
        return fail(SOTTO_EFORMAT, "offsets %lld..%lld but the file has %zu bytes of data", from,
                    to, data_bytes);
    *begin = (size_t)from;
    *end = (size_t)to;
    return SOTTO_OK;
}

static enum sotto_status read_entry(const json_t *info, const uint8_t *data, size_t data_bytes,
                                    struct safetensors_entry *e)
{
    size_t begin = 0, end = 0;
    TRY(json_get_text(info, "dtype", &e->type_name));
    e->type = find_type(e->type_name);
    TRY(read_shape(info, e));
    TRY(read_offsets(info, data_bytes, &begin, &end));
    e->data = data + begin;
    e->bytes = end - begin;
    if (e->type == SAFETENSORS_OTHER)
        return SOTTO_OK;
    if (e->bytes != e->count * types[e->type].size) {
        char text[SAFETENSORS_SHAPE_ROOM];
        safetensors_shape_text(e->ndim, e->shape, text);
        return fail(SOTTO_EFORMAT, "offsets %zu..%zu but shape %s of %s needs %zu bytes", begin,
                    end, text, e->type_name, e->count * types[e->type].size);
    }
    return SOTTO_OK;
}

static int compare_entry_places(const void *a, const void *b)
{
    const struct safetensors_entry *x = a, *y = b;
    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Sorts by position: then each tensor must begin at the end of the tensor before it. */
static enum sotto_status check_cover(struct safetensors_entry *entry, size_t count,
                                     const uint8_t *data, size_t data_bytes)
{
    if (count)
        qsort(entry, count, sizeof *entry, compare_entry_places);
    const uint8_t *next = data;
    for (size_t i = 0; i < count; i++) {
        if (entry[i].data < next)
            return fail(SOTTO_EFORMAT, "tensors '%s' and '%s' overlap at byte %zu of the data",
                        entry[i - 1].name, entry[i].name, (size_t)(entry[i].data - data));
        if (entry[i].data > next)
            return fail(SOTTO_EFORMAT, "bytes %zu..%zu before tensor '%s' belong to no tensor",
                        (size_t)(next - data), (size_t)(entry[i].data - data), entry[i].name);
        next += entry[i].bytes;
    }
    if ((size_t)(next - data) != data_bytes)
        return fail(SOTTO_EFORMAT, "the last %zu of %zu bytes of data belong to no tensor",
                    data_bytes - (size_t)(next - data), data_bytes);
    return SOTTO_OK;
}

static enum sotto_status check_metadata(json_t *metadata)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return fail(SOTTO_EFORMAT, "__metadata__ must be an object, got %s", json_kind(metadata));
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return fail(SOTTO_EFORMAT, "__metadata__ \"%s\" must be a string, got %s", key,
                        json_kind(value));
    }
    return SOTTO_OK;
}

/* Returns the length of the JSON, which the file's first 8 bytes give. */
static uint64_t header_length(const uint8_t *data)
{
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | data[i];
    return length;
}

size_t safetensors_head_bytes(const struct safetensors_file *file)
{
    return 8 + (size_t)header_length(file->map.data);
}

static enum sotto_status parse_header(struct safetensors_file *file, size_t *header_bytes)
{
    const uint8_t *data = file->map.data;
    if (file->map.size < 8)
        return fail(SOTTO_EFORMAT, "not a safetensors file: %zu bytes, want at least 8",
                    file->map.size);
    const uint64_t length = header_length(data);
    if (length > SAFETENSORS_HEADER_LIMIT)
        return fail(SOTTO_EFORMAT,
                    "not a safetensors file: header of %llu bytes, at most %llu are allowed",
                    (unsigned long long)length, (unsigned long long)SAFETENSORS_HEADER_LIMIT);
    if (length > file->map.size - 8)
        return fail(SOTTO_EFORMAT, "truncated: header of %llu bytes in a file of %zu",
                    (unsigned long long)length, file->map.size);
    if (length == 0 || data[8] != '{')
        return fail(SOTTO_EFORMAT, "not a safetensors file: the header is not a JSON object");
    json_error_t error;
    file->header = json_loadb((const char *)data + 8, length, JSON_REJECT_DUPLICATES, &error);
    if (!file->header)
        return fail(SOTTO_EFORMAT, "header is not valid JSON: byte %d: %s", error.position,
                    error.text);
    *header_bytes = 8 + (size_t)length;
    return SOTTO_OK;
}

enum sotto_status safetensors_header_check(struct safetensors_file *file,
                                           struct safetensors_entry **entry, size_t *count)
{
    size_t header_bytes = 0;
    *entry = NULL;
    *count = 0;
    TRY(parse_header(file, &header_bytes));
    const uint8_t *data = file->map.data + header_bytes;
    size_t data_bytes = file->map.size - header_bytes, n = 0;
    struct safetensors_entry *list = calloc(json_object_size(file->header) + 1, sizeof *list);
    if (!list)
        return fail(SOTTO_ENOMEM, "no memory for %zu tensors", json_object_size(file->header));
    enum sotto_status st = SOTTO_OK;
    const char *name;
    json_t *info;
    json_object_foreach(file->header, name, info)
    {
        if (strcmp(name, "__metadata__") == 0) {
            TRY_DONE(check_metadata(info));
            continue;
        }
        list[n].name = name;
        TRY_DONE(fail_in(read_entry(info, data, data_bytes, &list[n]), "tensor '%.200s': ", name));
        n++;
    }
    TRY_DONE(check_cover(list, n, data, data_bytes));
    *entry = list;
    *count = n;
    return SOTTO_OK;
done:
    free(list);
    return st;
}
