/* What a worker's own vector is cut into for the cosine transform, and how many coefficients of
 * each piece are kept.
 *
 * Flat: chunks of the own vector. They begin anew where something begins that no tensor covers (the
 * padding of a stage) or that lies elsewhere in the whole vector, so that none straddles two
 * workers' and what is not a parameter stays as it is. A shorter last one has a transform of its
 * own length.
 *
 * Tiles: each tensor, whole, in tiles whose sides are the largest divisors of its own that are no
 * longer than a chunk. One of more than two dimensions is seen as a matrix with the first of them
 * for its rows.
 *
 * Pieces belong to the section that they begin in, which is one or more stages, and come in the
 * order of sections. */
#ifndef SOTTO_STRATEGY_DECOUPLED_TILING_H
#define SOTTO_STRATEGY_DECOUPLED_TILING_H

#include <stdbool.h>

#include "tensor/ops.h"
#include "tensor/owned.h"

struct cut_rule {
    int chunk;   /* 1 to TILE_SIDE                                             */
    int top;     /* coefficients kept of each piece, or all that it has ...    */
    double rate; /* ... or, where this is not 0, this share of them, at least 1 */
    bool tiles;
};

struct cut {
    struct tiles *list; /* `kept` is counted from the section's first coefficient */
    int n, room;
    struct cut_section {
        int first, n;    /* of the list                                                  */
        size_t elements; /* that are covered                                             */
        size_t kept;     /* coefficients                                                 */
        size_t end;      /* of the own vector: with the sections before all that is covered of
                            it lies before this, and all that they own                   */
    } * section;
    int n_section;
    size_t elements, kept; /* of all sections                                  */
    size_t basis;          /* elements of the matrices that the list points to */
};

/* Of what is owned of the table's vector; tiles want all of it. `section`: of each stage, from 0
 * on, each as its stage before or the next; NULL: all in one. */
enum sotto_status cut_make(struct cut *cut, const struct cut_rule *rule, const struct table *table,
                           const struct owned *own, const int *section);
void cut_free(struct cut *cut);

/* The matrices of the transform. */
void cut_basis(const struct cut *cut, float *basis);

#endif
