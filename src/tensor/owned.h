/* The part of a flat vector that a worker owns: ranges of the whole vector, in ascending order,
 * stored one after another in the worker's own vector. Optimizers, checkpoints and replicate
 * methods know no other division, so a shard method may divide a vector among its workers by any
 * rule:
 *
 *     owned_all        every worker owns the whole vector
 *     owned_slices     slice i of n of every stage
 *     its own rule     for example, one stage only:
 *                      owned_add(out, table->stage_start[i], table->stage_start[i + 1])
 *
 * A slice is a stage's length over n. If table_layout was given n * c for `pad`, every slice is a
 * multiple of c elements, for methods that work on chunks of c. */
#ifndef SOTTO_TENSOR_OWNED_H
#define SOTTO_TENSOR_OWNED_H

#include "tensor/table.h"

struct owned {
    struct owned_range {
        size_t begin, end; /* in the whole vector */
        size_t at;         /* begin in the own vector */
    } * range;
    int n, room;
    size_t count; /* length of the own vector: elements of all ranges */
    bool sole;    /* true: no other worker owns any of these elements */
};

/* Appends a range after all others. The range may be empty, or continue the last range. */
enum sotto_status owned_add(struct owned *owned, size_t begin, size_t end);
void owned_free(struct owned *owned);

/* Adds the elements that worker `index` of `of` owns to an empty list. The workers together own
 * every element: each element once, or, if a worker owns the whole vector, each worker owns the
 * whole. */
typedef enum sotto_status owned_rule(struct owned *out, const struct table *table, int index,
                                     int of);
owned_rule owned_all, owned_slices;

/* Returns the length of the own vector. Here and in all functions with a list, NULL is a list of
 * the whole vector. */
size_t owned_count(const struct owned *owned, const struct table *table);

/* Elements that are contiguous in the whole vector and in the own vector. */
struct piece {
    size_t whole, own; /* first element in each vector */
    size_t count;
};

/* Moves *piece to the next owned piece of a range of the whole vector; {0} to the first. Returns
 * false if there is none.
 *
 *     for (struct piece p = {0}; owned_next(owned, table_range(table, i), &p);) */
bool owned_next(const struct owned *owned, struct range in, struct piece *piece);

/* Writes ends[k] (n_stage): the end of stage k in the own vector, where stage k + 1 begins. */
void owned_stages(const struct owned *owned, const struct table *table, size_t *ends);

/* Contiguous elements of the own vector with or without weight decay. */
struct segment {
    size_t begin, end;
    bool decay;
};

/* Returns the segments of the own vector in *out, to be freed. `all`: all tensors decay; else
 * only tensors of two or more dimensions. */
enum sotto_status owned_segments(const struct owned *owned, const struct table *table, bool all,
                                 struct segment **out, int *n);

#endif
