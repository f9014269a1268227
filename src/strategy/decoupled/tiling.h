/* The tiles of a worker's own vector for the cosine transform, and the number of coefficients kept
 * of each tile.
 *
 * Flat: chunks of the own vector. A new chunk starts after elements that no tensor covers (the
 * padding of a stage), which stay unchanged, and where the own vector jumps in the whole vector, so
 * that no chunk spans elements of two workers. A shorter last chunk has a transform of its own
 * length.
 *
 * Tiles: each tensor, whole, in tiles whose sides are the largest divisors of the tensor's sides
 * that are no longer than a chunk. A tensor of more than two dimensions is a matrix, with its first
 * dimension as rows.
 *
 * A chunk or tile belongs to the section of its first element. Tiles are listed in the order of
 * sections. */
#ifndef SOTTO_STRATEGY_DECOUPLED_TILING_H
#define SOTTO_STRATEGY_DECOUPLED_TILING_H

#include <stdbool.h>

#include "tensor/ops.h"
#include "tensor/owned.h"

struct tiling_rule {
    int chunk;   /* 1 to TILE_SIDE                                             */
    int top;     /* rate = 0: coefficients kept of each tile, at most all */
    double rate; /* otherwise: share of the coefficients kept of each tile, at least one */
    bool tiles;
};

struct tiling_plan {
    struct tiles *list; /* `kept` counts from the section's first coefficient */
    int n, room;
    struct tiling_section {
        int first, n;    /* of the list                                                  */
        size_t elements; /* covered by the section's tiles */
        size_t kept;     /* coefficients kept */
        /* end in the own vector of all elements that this and earlier sections own, or cover
         * with tiles */
        size_t end;
    } * section;
    int n_section;
    size_t elements, kept; /* of all sections                                  */
    size_t basis;          /* elements of the matrices of the transform */
};

/* Plans the tiles of the own part of the table's vector; with rule->tiles the whole vector is own.
 * `section`: number of each stage's section, 0 first, without gaps; NULL: one section. */
enum sotto_status tiling_make(struct tiling_plan *plan, const struct tiling_rule *rule,
                              const struct table *table, const struct owned *own,
                              const int *section);
void tiling_free(struct tiling_plan *plan);

/* Writes the matrices of the transform. */
void tiling_write_basis(const struct tiling_plan *plan, float *basis);

#endif
