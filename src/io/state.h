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

/* What an owner showed to the visitor. */
struct state_item {
    const char *name; /* with its groups in front */
    enum state_kind kind;

    /* tensor */
    enum safetensors_type type;
    enum memory_category category;
    struct device *dev;          /* NULL: `data` is host memory           */
    void *data;                  /* the first of `count` elements         */
    size_t whole, offset, count; /* this is [offset, offset + count) of it */
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

/* What brings bytes of a file that is elsewhere, from `at` on. */
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
    char prefix[STATE_NAME_ROOM]; /* "optim.m.", from state_enter       */
    size_t length[STATE_DEPTH];   /* of the prefix outside of each group */
    int depth;
    int own;          /* depth that state_enter_own was called at, 0: not inside of it */
    int64_t index;    /* there: number `index` ...                                     */
    int64_t of;       /* ... of so many; 0: the file keeps this one's apart            */
    bool skip_common; /* another worker shows what every worker holds                  */
    bool skip_slices; /* another worker shows this worker's slices too                 */
    void *staging;    /* device memory passes through here */

    struct { /* save */
        struct state_saved *slice;
        size_t count, room;
        struct safetensors_writer writer;
        bool declared; /* the slices, by a write that may have failed */
    } save;
    struct { /* load */
        const struct state_file *file;
        struct state_file mine; /* opened by this loader; empty: another's is read */
        struct state_span {
            size_t begin, end;
        } * seen; /* of the tensors, then the notes: asked for, or left to others */
        size_t count, room;
    } load;
    size_t bytes[MEMORY_CATEGORIES]; /* count: bytes of the slices visited */
    uint64_t hash;                   /* hash: see state_hasher_init */
};

/* For owners. Names within a group are told apart by it: enter("optim"), tensor "m" is "optim.m".
 */
enum sotto_status state_enter(struct state_visitor *v, const char *group);
void state_leave(struct state_visitor *v);

/* A group that is this worker's alone, number `index` of `of` such. They are stored together: a
 * tensor of all of them, one behind the other, and a list of each scalar, so that a file has as
 * many entries with a thousand workers as with one. What is visited outside of such a group is the
 * same on all workers, or slices of it, and a visitor may be told to leave it to another worker
 * (`skip_common`, `skip_slices`). Files of earlier versions keep each one's under "group.index". */
enum sotto_status state_enter_own(struct state_visitor *v, const char *group, int64_t index,
                                  int64_t of);

/* All of a tensor, and a slice of it: elements [offset, offset + count) of `whole`. */
enum sotto_status state_tensor(struct state_visitor *v, const char *name,
                               enum memory_category category, struct device *dev, struct view view,
                               size_t count);
enum sotto_status state_slice(struct state_visitor *v, const char *name,
                              enum memory_category category, struct device *dev, struct view view,
                              size_t whole, size_t offset, size_t count);

/* What is owned of a flat vector, from `view` on: each tensor of the table under its own name,
 * padding left out. */
enum sotto_status state_table(struct state_visitor *v, const struct table *table,
                              const struct owned *owned, enum memory_category category,
                              struct device *dev, struct view view);

/* Loading only: whether the file has this entry (name inside the current group; with a '.' at its
 * end: any entry of that group), and that this worker leaves the rest of a group to others. */
bool state_loading(const struct state_visitor *v);
bool state_has(const struct state_visitor *v, const char *name);
enum sotto_status state_ignore(struct state_visitor *v, const char *group);

/* Loading only: how many workers have left a group that is their own, one that has this scalar; and
 * how many elements there are of a tensor inside the current group, of one worker if it is such.
 * 0: none. What is to be allocated for loading is checked against it first. */
int64_t state_owners(const struct state_visitor *v, const char *group, const char *scalar);
size_t state_stored(const struct state_visitor *v, const char *name);

/* Loading only: what a tensor inside the current group is stored as; `otherwise` where there is
 * none of numbers. */
enum dtype state_stored_type(const struct state_visitor *v, const char *name, enum dtype otherwise);

/* Arrays in host memory; they count as MEMORY_OUTER. */
enum sotto_status state_ints(struct state_visitor *v, const char *name, int64_t *data,
                             size_t count);
enum sotto_status state_bytes(struct state_visitor *v, const char *name, void *data, size_t bytes);

enum sotto_status state_int(struct state_visitor *v, const char *name, int64_t *value);
enum sotto_status state_real(struct state_visitor *v, const char *name, double *value); /* exact */

/* The same with bounds, which a file is held to: 0 to `most`, and `least` to `most`. */
enum sotto_status state_count(struct state_visitor *v, const char *name, int64_t *value,
                              int64_t most);
enum sotto_status state_within(struct state_visitor *v, const char *name, double *value,
                               double least, double most);
#define STATE_STEPS ((int64_t)1 << 42)   /* a year of steps of 10 us; times workers fits */
#define STATE_WORKERS ((int64_t)1 << 20) /* as train.workers allows                      */
#define STATE_TOTAL ((int64_t)1 << 62)   /* of tokens, bytes: sums that only grow        */

/* `room`: of `text`, terminator included. */
enum sotto_status state_text(struct state_visitor *v, const char *name, char *text, size_t room);

/* Visitors. The data shown to a saver must stay as it is until state_saver_write; scalars are taken
 * at once. A loader that is finished has seen every entry of the file asked for; what goes wrong
 * while it visits does not name the file, which its caller knows. */
enum sotto_status state_saver_init(struct state_visitor *v);
enum sotto_status state_saver_write(struct state_visitor *v, const char *path); /* or once more */
size_t state_saver_bytes(const struct state_visitor *v); /* of the tensors that it will write */
enum sotto_status state_loader_open(struct state_visitor *v, const char *path);
void state_loader_init(struct state_visitor *v, const struct state_file *file); /* outlives it */
enum sotto_status state_loader_finish(struct state_visitor *v);
/* How many values of the file nobody has asked for, and the name of the first: finish refuses any.
 */
size_t state_loader_left(struct state_visitor *v, const char **first);
enum sotto_status state_file_open(struct state_file *file, const char *path);
enum sotto_status state_file_open_memory(struct state_file *file, const void *data, size_t size,
                                         const char *name); /* which outlives it */
/* A file that is elsewhere, by what state_file_head gives there; `source` outlives it. */
enum sotto_status state_file_open_head(struct state_file *file, const void *head, size_t bytes,
                                       size_t size, const char *name, struct state_source source);
/* The first *bytes of the file's *size. */
const void *state_file_head(const struct state_file *file, size_t *bytes, size_t *size);
/* A hash of the size, the header and the beginning of each tensor: of two checkpoints it differs,
 * since a checkpoint holds the nanoseconds that training has taken. */
uint64_t state_file_print(const struct state_file *file);
void state_file_close(struct state_file *file);   /* fine if it is not open */
void state_counter_init(struct state_visitor *v); /* read v->bytes */

/* v->hash is a sum over elements of a mix of (name, index, bits): neither the order of visits nor
 * the cut into slices matters, and the hashes of workers that own disjoint slices add up to the
 * hash of the whole. Scalars count once a visit. */
void state_hasher_init(struct state_visitor *v);
/* Times that were measured are no part of it: runs of the same bits differ in them. */
bool state_hashing(const struct state_visitor *v);
void state_free(struct state_visitor *v);

/* For visitors: calls `use` with the item's elements in host memory, piece after piece. */
enum sotto_status state_pieces(struct state_visitor *v, const struct state_item *item,
                               enum sotto_status (*use)(void *arg, const void *data, size_t bytes),
                               void *arg);

#endif
