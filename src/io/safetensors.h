/* The safetensors format: 8 bytes of header length, a JSON header, then the tensors' bytes.
 *
 * The reader maps the file and checks the whole header first, so an entry can be trusted: its bytes
 * are inside the file, agree with the shape, and overlap with no other entry. The writer streams:
 * every tensor is declared first, then the bytes follow in the declared order. */
#ifndef SOTTO_IO_SAFETENSORS_H
#define SOTTO_IO_SAFETENSORS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"
#include "tensor/dtype.h"

#define SAFETENSORS_DIMS 8
#define SAFETENSORS_HEADER_LIMIT ((uint64_t)100 << 20) /* bytes; the limit of other readers */
#define SAFETENSORS_SHAPE_ROOM 192 /* of "[2,3]" with SAFETENSORS_DIMS numbers */

enum safetensors_type {
    SAFETENSORS_F32,
    SAFETENSORS_BF16,
    SAFETENSORS_F16,
    SAFETENSORS_F64,
    SAFETENSORS_I64,
    SAFETENSORS_I32,
    SAFETENSORS_I16,
    SAFETENSORS_I8,
    SAFETENSORS_U8,
    SAFETENSORS_BOOL,
    SAFETENSORS_OTHER, /* listed, but has no reader here */
};

/* Return "F32", ..., and an element's size in bytes, 0 for OTHER. */
const char *safetensors_type_name(enum safetensors_type type);
size_t safetensors_type_size(enum safetensors_type type);
enum safetensors_type safetensors_type_of(enum dtype type);

struct safetensors_entry {
    const char *name;
    enum safetensors_type type;
    const char *type_name; /* the type's name in the file */
    int ndim;
    int64_t shape[SAFETENSORS_DIMS];
    size_t count;        /* product of the shape; 1 for a scalar */
    const uint8_t *data; /* in the mapping, little endian, not necessarily aligned */
    size_t bytes;
};

struct safetensors_file {
    struct file_map map;
    bool borrowed;  /* the map is the caller's memory */
    json_t *header; /* owns the names and the metadata */
    char *path;     /* for messages */
};

/* One file, or all shards of a model. */
struct safetensors {
    struct safetensors_entry *entry; /* sorted by name; valid until safetensors_close */
    size_t count;
    struct safetensors_file *file;
    int n_file;
};

/* Opens a file, or a folder with model.safetensors or with model.safetensors.index.json and its
 * shards. On failure there is nothing to close. */
enum sotto_status safetensors_open(struct safetensors *set, const char *path);

/* Opens memory, which must outlive the set; `name` is for messages. */
enum sotto_status safetensors_open_memory(struct safetensors *set, const void *data, size_t size,
                                          const char *name);

/* Opens a file of `size` bytes in another process by its first `bytes` (see
 * safetensors_head_bytes): entries have positions in the file, and no data to read. */
enum sotto_status safetensors_open_head(struct safetensors *set, const void *head, size_t bytes,
                                        size_t size, const char *name);
size_t safetensors_head_bytes(const struct safetensors_file *file);
void safetensors_close(struct safetensors *set);

/* Returns NULL if no tensor has the name. */
const struct safetensors_entry *safetensors_find(const struct safetensors *set, const char *name);

/* Finds a tensor; a missing tensor or another shape is an error. */
enum sotto_status safetensors_get(const struct safetensors *set, const char *name, int ndim,
                                  const int64_t *shape, const struct safetensors_entry **out);

/* Returns the text of `key` in the first file's __metadata__, or NULL. */
const char *safetensors_metadata(const struct safetensors *set, const char *key);

/* Reads F32, BF16, F16 and F64 as fp32, all of the entry or `count` elements from `offset` on. */
enum sotto_status safetensors_read_f32(const struct safetensors_entry *entry, float *out);
enum sotto_status safetensors_read_f32_range(const struct safetensors_entry *entry, size_t offset,
                                             size_t count, float *out);

/* Fails if one of `count` elements from `offset` on is infinite or NaN, in F32, BF16 or F16;
 * accepts all other types. */
enum sotto_status safetensors_check_numbers(const struct safetensors_entry *entry, size_t offset,
                                            size_t count);

/* Reads I64, I32, I16, I8, U8 and BOOL, all of the entry. */
enum sotto_status safetensors_read_i64(const struct safetensors_entry *entry, int64_t *out);

/* Writes a shape as "[2,3]". */
void safetensors_shape_text(int ndim, const int64_t *shape, char out[SAFETENSORS_SHAPE_ROOM]);

/*     safetensors_writer_init(&w);
 *     declare(name, type, shape) for every tensor, note(key, text) for the metadata;
 *     start(path); put(bytes) in the declared order, in pieces of any size; finish();
 *     safetensors_writer_free(&w), which without a finish leaves no trace of the file. */
struct safetensors_writer {
    json_t *header; /* in the order of declaration */
    json_t *metadata;
    uint64_t declared; /* bytes of all tensors */
    uint64_t written;
    struct file_draft draft; /* open between start and finish */
    bool started, failed;
};

enum sotto_status safetensors_writer_init(struct safetensors_writer *writer);
void safetensors_writer_free(struct safetensors_writer *writer);

/* Declares a tensor, wider types first: a tensor that would not start at a multiple of its element
 * size is refused, since readers view the mapped bytes in place. */
enum sotto_status safetensors_writer_declare(struct safetensors_writer *writer, const char *name,
                                             enum safetensors_type type, int ndim,
                                             const int64_t *shape);

/* Adds to the metadata. {"format": "pt"}, which transformers requires, is there from the start. */
enum sotto_status safetensors_writer_note(struct safetensors_writer *writer, const char *key,
                                          const char *text);
/* Begins the file; once more, also elsewhere, where what was written before could not be finished.
 * A header that no reader would take is refused. */
enum sotto_status safetensors_writer_start(struct safetensors_writer *writer, const char *path);
enum sotto_status safetensors_writer_put(struct safetensors_writer *writer, const void *data,
                                         size_t bytes);

/* Writes fp32 numbers rounded to `type`: F32, BF16 or F16. */
enum sotto_status safetensors_writer_put_f32(struct safetensors_writer *writer,
                                             enum safetensors_type type, const float *x,
                                             size_t count);

/* Flushes to disk and gives the file its name; an error if the bytes are not those declared. */
enum sotto_status safetensors_writer_finish(struct safetensors_writer *writer);

#endif
