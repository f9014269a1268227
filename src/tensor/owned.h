/* What of a flat vector a worker owns: ranges of the whole vector, in ascending order, which lie
 * side by side in the worker's own vector. Optimizers, checkpoints and replicate methods know no
 * other cut, so that a shard method may share a vector among its workers as it likes:
 *
 *     owned_all        everybody owns all of it
 *     owned_slices     slice i of n of every stage
 *     its own rule     one stage only:
 *                      owned_add(out, table->stage_start[i], table->stage_start[i + 1])
 *
 * A slice is a stage's length over n. Who works on chunks of c elements has whole ones in every
 * slice if table_layout was given n * c for `pad`. */
#ifndef SOTTO_TENSOR_OWNED_H
#define SOTTO_TENSOR_OWNED_H

#include "tensor/table.h"

struct owned {
    struct owned_range {
        size_t begin, end; /* of the whole vector              */
        size_t at;         /* where it begins in the own vector */
    } * range;
    int n, room;
    size_t count; /* elements of all ranges: the own vector's length */
    bool sole;    /* what it has of a vector, be it all, nobody else has */
};

/* One more range behind the others; it may be empty, or continue the last. */
enum sotto_status owned_add(struct owned *owned, size_t begin, size_t end);
void owned_free(struct owned *owned);

/* What worker `index` of `of` owns, added to an empty list. Together they own every element: once,
 * or, where one owns all, all of them do. */
typedef enum sotto_status owned_rule(struct owned *out, const struct table *table, int index,
                                     int of);
owned_rule owned_all, owned_slices;

/* Here and in what takes a list: NULL is one of everything. */
size_t owned_count(const struct owned *owned, const struct table *table);

/* Elements that are side by side in the whole vector and in the own one. */
struct piece {
    size_t whole, own; /* where they begin */
    size_t count;
};

/* The next piece behind `*piece` of what is owned of a range; the first one behind {0}. False:
 * there is none.
 *
 *     for (struct piece p = {0}; owned_next(owned, table_range(table, i), &p);) */
bool owned_next(const struct owned *owned, struct range in, struct piece *piece);

/* ends[k] (n_stage) of the own vector: what is owned of stage k ends there, and of the next one
 * begins. */
void owned_stages(const struct owned *owned, const struct table *table, size_t *ends);

/* A run of elements of the own vector that are decayed alike. */
struct segment {
    size_t begin, end;
    bool decay;
};

/* The segments of the own vector. `all`: matrices and vectors alike, otherwise tensors of two or
 * more dimensions. The caller frees. */
enum sotto_status owned_segments(const struct owned *owned, const struct table *table, bool all,
                                 struct segment **out, int *n);

#endif
