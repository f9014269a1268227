/* The table that names every tensor of a flat parameter vector.
 *
 * The flat vector is stage after stage, each stage padded to a multiple of `pad` so that the stage
 * can be cut into equal slices (owned.h). Parameters, gradients and optimizer state have this
 * layout. Parameters are passed as an array of views, one for each stage, so that stages may be in
 * different buffers or versions. */
#ifndef SOTTO_TENSOR_TABLE_H
#define SOTTO_TENSOR_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/dtype.h"

#define TABLE_NAME_ROOM 96
#define TABLE_DIMS 4

enum table_init { TABLE_ZERO, TABLE_ONE, TABLE_NORMAL };

/* Form of a tensor in a file, if other than in memory: FORM_KERNEL, an image kernel (out, h, w,
 * in) as (out, in, h, w); FORM_COUNTER, a number that counts as an integer. */
enum table_form { FORM_PLAIN, FORM_KERNEL, FORM_COUNTER };

struct table_entry {
    char name[TABLE_NAME_ROOM]; /* as in Hugging Face checkpoints */
    int ndim;
    int64_t shape[TABLE_DIMS];
    size_t count;
    int stage;
    size_t offset; /* elements from the start of the stage */
    enum table_init init;
    float std; /* standard deviation for TABLE_NORMAL */
    enum table_form form;
    bool written; /* true: a layer's backward pass writes the gradient before others add, so that
                     the gradient need not start with zeros */
};

struct table {
    struct table_entry *entry;
    int n, room;
    int n_stage;
    size_t *stage_start; /* (n_stage + 1): elements from the start of the flat vector */
    size_t parameters;   /* elements without padding */
};

/* Adds a tensor, whose stage the caller sets later. `shape` ends with 0. Returns the tensor's
 * index; -1 if there is too little memory. */
int table_add(struct table *table, const char *name, const int64_t *shape, enum table_init init,
              float std);

/* Lays out the tensors after all their stages are set. */
enum sotto_status table_layout(struct table *table, int n_stage, int pad);
void table_free(struct table *table);

int table_find(const struct table *table, const char *name); /* -1: no such tensor */

/* Marks tensor `i` as written, once; nothing for i < 0. */
void table_written(struct table *table, int i);

/* Returns the length of the flat vector, including padding. */
static inline size_t table_count(const struct table *table)
{
    return table->stage_start[table->n_stage];
}

static inline size_t table_stage_count(const struct table *table, int stage)
{
    return table->stage_start[stage + 1] - table->stage_start[stage];
}

/* A range of the flat vector: of a stage, including padding, or of a tensor. */
struct range {
    size_t begin, end;
};

static inline struct range table_stage_range(const struct table *table, int stage)
{
    return (struct range){table->stage_start[stage], table->stage_start[stage + 1]};
}

static inline struct range table_range(const struct table *table, int i)
{
    const struct table_entry *e = &table->entry[i];
    const size_t begin = table->stage_start[e->stage] + e->offset;
    return (struct range){begin, begin + e->count};
}

/* Returns tensor `i` of parameters that are given as a view for each stage; view_none for i < 0. */
static inline struct view table_view(const struct table *table, const struct view *stages, int i)
{
    if (i < 0)
        return view_none;
    const struct table_entry *e = &table->entry[i];
    return view_at(stages[e->stage], e->offset);
}

/* Cuts a whole flat vector into its stages. */
void table_stages(const struct table *table, struct view flat, struct view *stages);

#endif
