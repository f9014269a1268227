/* Persistent state, enumerated once.
 *
 * An owner of state has one function
 *
 *     enum sotto_status adamw_visit(struct adamw *a, struct state_visitor *v)
 *     {
 *         TRY(state_int(v, "step", &a->step));
 *         return state_tensor(v, "m", a->m.category, a->dev, a->m.view, a->count);
 *     }
 *
 * and whatever has to be done with all of the state is a visitor: save, load, count bytes, hash.
 *
 *     struct state_visitor v;
 *     TRY(state_saver_init(&v));                     state_loader_open(&v, path)
 *     st = adamw_visit(a, &v);                       adamw_visit(a, &v)
 *     if (st == SOTTO_OK)
 *         st = state_saver_write(&v, path);          state_loader_finish(&v)
 *     state_free(&v);                                state_free(&v)
 *
 * Tensors are stored whole, by name. A worker that owns part of one visits that slice of it;
 * loading takes any slice, saving wants the slices that it was given to tile the whole. */
#ifndef SOTTO_IO_STATE_H
#define SOTTO_IO_STATE_H

#include "base/status.h"
#include "io/safetensors.h"
#include "tensor/device.h"
#include "tensor/owned.h"

#define STATE_NAME_ROOM 512
#define STATE_DEPTH 8 /* groups within groups */

enum state_kind { STATE_TENSOR, STATE_INT, STATE_REAL, STATE_TEXT };

/* An item that an owner shows to the visitor. */
struct state_item {
    const char *name; /* with the names of its groups in front */
    enum state_kind kind;

    /* tensor */
    enum safetensors_type type;
    enum memory_category category;
    struct device *dev;          /* NULL: `data` is host memory */
    void *data;                  /* the first of `count` elements */
    size_t whole, offset, count; /* the item is [offset, offset + count) of the tensor */
    bool sliced;                 /* other workers hold the rest */
    bool scalar;                 /* one of a list of scalars: `data` may be gone after the visit */

    /* scalars, and text of `room` bytes */
    union {
        int64_t *integer;
        double *real;
        char *text;
    } to;
    size_t room;
};

struct state_visitor;

struct state_ops {
    enum sotto_status (*visit)(struct state_visitor *v, const struct state_item *item);
    void (*free)(struct state_visitor *v); /* (optional) */
};

struct state_saved; /* a slice to be saved */

/* Reads bytes of a file in another process, from `at` on. */
struct state_source {
    enum sotto_status (*read)(void *arg, size_t at, void *to, size_t bytes);
    void *arg;
};

/* A file to load from: parsed once, read by any number of loaders at once, or by one where it has a
 * source. */
struct state_file {
    struct safetensors set;
    struct state_source source; /* read NULL: the file is mapped */
    struct state_note {         /* of the metadata; sorted by name */
        const char *name, *text;
    } * note;
    size_t notes;
};

struct state_visitor {
    const struct state_ops *ops;
    char prefix[STATE_NAME_ROOM]; /* "optim.m.", from state_enter */
    size_t length[STATE_DEPTH];   /* of the prefix outside of each group */
    int depth;
    int own;          /* depth of state_enter_own's group, 0: outside of such a group */
    int64_t index;    /* number of the own group, from 0 */
    int64_t of;       /* number of own groups; 0: the file has a group for each worker */
    bool skip_common; /* another worker shows the common state */
    bool skip_slices; /* another worker shows the slices of this worker */
    void *staging;    /* device memory passes through here */

    struct { /* save */
        struct state_saved *slice;
        size_t count, room;
        struct safetensors_writer writer;
        bool declared; /* the slices, by a write that may have failed */
    } save;
    struct { /* load */
        const struct state_file *file;
        struct state_file mine; /* opened by this loader; empty: the caller's file is read */
        struct state_span {
            size_t begin, end;
        } * seen; /* spans that were loaded, or left to other workers */
        size_t count, room;
    } load;
    size_t bytes[MEMORY_CATEGORIES]; /* count: bytes of the slices visited */
    uint64_t hash;                   /* hash: see state_hasher_init */
};

/* For owners. A group gives names a prefix: in enter("optim"), tensor "m" is "optim.m". */
enum sotto_status state_enter(struct state_visitor *v, const char *group);
void state_leave(struct state_visitor *v);

/* Enters a group of this worker's own, number `index` of `of` such groups, which are stored
 * together: each tensor as a concatenation over all groups, each scalar as a list, so that a file
 * has the same number of entries for a thousand workers as for one. State outside of own groups is
 * the same on all workers, or slices of such state; a visitor may leave it to another worker
 * (`skip_common`, `skip_slices`). */
enum sotto_status state_enter_own(struct state_visitor *v, const char *group, int64_t index,
                                  int64_t of);

/* Visits a whole tensor; state_slice: elements [offset, offset + count) of a tensor of `whole`. */
enum sotto_status state_tensor(struct state_visitor *v, const char *name,
                               enum memory_category category, struct device *dev, struct view view,
                               size_t count);
enum sotto_status state_slice(struct state_visitor *v, const char *name,
                              enum memory_category category, struct device *dev, struct view view,
                              size_t whole, size_t offset, size_t count);

/* Visits the owned part of a flat vector, from `view` on: each tensor of the table under its own
 * name, without padding. */
enum sotto_status state_table(struct state_visitor *v, const struct table *table,
                              const struct owned *owned, enum memory_category category,
                              struct device *dev, struct view view);

/* For loaders: state_has is true if the file has this entry (name inside the current group; with a
 * '.' at the end: any entry of the group); state_ignore leaves the rest of a group to other
 * workers. */
bool state_loading(const struct state_visitor *v);
bool state_has(const struct state_visitor *v, const char *name);
enum sotto_status state_ignore(struct state_visitor *v, const char *group);

/* For loaders, before they allocate: state_owners returns the number of workers with an own group
 * that has this scalar, state_stored the number of elements of a tensor inside the current group
 * (of one worker in an own group). 0: none. */
int64_t state_owners(const struct state_visitor *v, const char *group, const char *scalar);
size_t state_stored(const struct state_visitor *v, const char *name);

/* Returns, for loaders, the stored type of a tensor inside the current group; `otherwise` if there
 * is no such tensor of numbers. */
enum dtype state_stored_type(const struct state_visitor *v, const char *name, enum dtype otherwise);

/* Arrays in host memory; they count as MEMORY_OUTER. */
enum sotto_status state_ints(struct state_visitor *v, const char *name, int64_t *data,
                             size_t count);
enum sotto_status state_bytes(struct state_visitor *v, const char *name, void *data, size_t bytes);

enum sotto_status state_int(struct state_visitor *v, const char *name, int64_t *value);
enum sotto_status state_real(struct state_visitor *v, const char *name, double *value); /* exact */

/* Visit a number with bounds, which are checked on loading: 0 to `most`, and `least` to `most`. */
enum sotto_status state_count(struct state_visitor *v, const char *name, int64_t *value,
                              int64_t most);
enum sotto_status state_within(struct state_visitor *v, const char *name, double *value,
                               double least, double most);
#define STATE_STEPS ((int64_t)1 << 42)   /* a year of steps of 10 us; times workers fits */
#define STATE_WORKERS ((int64_t)1 << 20) /* as train.workers allows */
#define STATE_TOTAL ((int64_t)1 << 62)   /* sums of tokens or bytes, which only grow */

/* Visits a text. `room`: of `text`, terminator included. */
enum sotto_status state_text(struct state_visitor *v, const char *name, char *text, size_t room);

/* Visitors. A saver's tensors must stay unchanged until state_saver_write; scalars are copied at
 * once. A loader is finished when every entry of the file was loaded; errors of a loader do not
 * name the file, which the caller knows. */
enum sotto_status state_saver_init(struct state_visitor *v);
enum sotto_status state_saver_write(struct state_visitor *v, const char *path); /* or once more */
size_t state_saver_bytes(const struct state_visitor *v); /* bytes of all tensors */
enum sotto_status state_loader_open(struct state_visitor *v, const char *path);
void state_loader_init(struct state_visitor *v, const struct state_file *file); /* outlives v */
enum sotto_status state_loader_finish(struct state_visitor *v);
/* Returns the number of entries of the file that were not loaded, and the name of the first: finish
 * refuses them. */
size_t state_loader_left(struct state_visitor *v, const char **first);
enum sotto_status state_file_open(struct state_file *file, const char *path);
enum sotto_status state_file_open_memory(struct state_file *file, const void *data, size_t size,
                                         const char *name); /* `data` outlives `file` */
/* Opens a file in another process by the bytes that state_file_head returns there; `source`
 * outlives `file`. */
enum sotto_status state_file_open_head(struct state_file *file, const void *head, size_t bytes,
                                       size_t size, const char *name, struct state_source source);
/* Returns the first *bytes of the file's *size. */
const void *state_file_head(const struct state_file *file, size_t *bytes, size_t *size);
/* Returns a hash of the size, the header and the beginning of each tensor: hashes of two
 * checkpoints differ, since a checkpoint holds the nanoseconds of its training. */
uint64_t state_file_fingerprint(const struct state_file *file);
void state_file_close(struct state_file *file);   /* fine if not open */
void state_counter_init(struct state_visitor *v); /* read v->bytes */

/* Starts a hash in v->hash: a sum over elements of a mix of (name, index, bits). Neither the order
 * of visits nor the cut into slices matters, and the hashes of workers that own disjoint slices add
 * up to the hash of the whole. Scalars count once a visit. */
void state_hasher_init(struct state_visitor *v);
/* True for a hasher: measured times are not hashed, since they differ between runs of the same
 * bits. */
bool state_hashing(const struct state_visitor *v);
void state_free(struct state_visitor *v);

/* For visitors: calls `use` with the item's elements in host memory, piece after piece. */
enum sotto_status state_pieces(struct state_visitor *v, const struct state_item *item,
                               enum sotto_status (*use)(void *arg, const void *data, size_t bytes),
                               void *arg);

#endif
