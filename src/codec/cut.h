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
 * Pieces belong to the stage that they begin in, and come in the order of stages. */
#ifndef SOTTO_CODEC_CUT_H
#define SOTTO_CODEC_CUT_H

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
    struct tiles *list; /* `kept` is counted from the stage's first coefficient */
    int n, room;
    struct cut_stage {
        int first, n;    /* of the list                                                  */
        size_t elements; /* that are covered                                             */
        size_t kept;     /* coefficients                                                 */
        size_t end;      /* of the own vector: with the stages before all that is covered of
                            it lies before this, and all that they own                   */
    } * stage;
    int n_stage;
    size_t elements, kept; /* of all stages                                       */
    size_t basis;          /* elements of the matrices that the list points to */
};

/* Of what is owned of the table's vector; tiles want all of it. */
enum sotto_status cut_make(struct cut *cut, const struct cut_rule *rule, const struct table *table,
                           const struct owned *own);
void cut_free(struct cut *cut);

/* The matrices of the transform. */
void cut_basis(const struct cut *cut, float *basis);

#endif
