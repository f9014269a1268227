#include "strategy/replicate/norms.h"

#include <math.h>
#include <stdlib.h>

#include "tensor/ops.h"

/* Returns the number of own pieces of all tensors. */
static size_t count_pieces(const struct table *table, const struct owned *own)
{
    size_t count = 0;
    for (int i = 0; i < table->n; i++)
        for (struct piece p = {0}; owned_next(own, table_range(table, i), &p);)
            count++;
    return count;
}

enum sotto_status norms_open(struct norms *n, const struct table *table, const struct owned *own)
{
    const size_t tensors = (size_t)table->n, pieces = count_pieces(table, own) + 1;
    *n = (struct norms){.table = table,
                        .own = own,
                        .moved = calloc(tensors, sizeof *n->moved),
                        .first = calloc(tensors, sizeof *n->first),
                        .last = calloc(tensors, sizeof *n->last),
                        .pair = calloc(pieces, sizeof *n->pair),
                        .square = calloc(pieces, sizeof *n->square)};
    if (!n->moved || !n->first || !n->last || !n->pair || !n->square)
        return fail(SOTTO_ENOMEM, "no memory for the norms of %zu tensors", tensors);
    return SOTTO_OK;
}

void norms_free(struct norms *n)
{
    free(n->moved);
    free(n->first);
    free(n->last);
    free(n->pair);
    free(n->square);
}

enum sotto_status norms_measure(struct norms *n, const struct work *on, struct view x,
                                struct view y, float *squares)
{
    int pieces = 0;
    for (int i = 0; i < n->table->n; i++)
        for (struct piece p = {0}; owned_next(n->own, table_range(n->table, i), &p);)
            n->pair[pieces++] = (struct vector_pair){view_at(x, p.own), view_at(y, p.own), p.count};
    TRY(work_distances(on, n->pair, pieces, n->square));
    pieces = 0;
    for (int i = 0; i < n->table->n; i++) {
        double squared = 0;
        for (struct piece p = {0}; owned_next(n->own, table_range(n->table, i), &p);)
            squared += n->square[pieces++];
        squares[i] = (float)squared;
    }
    return SOTTO_OK;
}

enum sotto_status norms_sum(const struct norms *n, struct comm *comm, float *squares)
{
    const struct view v = view_of(squares, DTYPE_F32);
    return comm_allreduce(comm, v, v, (size_t)n->table->n);
}

double norms_lambda(const struct norms *n, int i, int64_t tau, int groups)
{
    const double first = sqrt(n->last[i] / (double)groups);
    return sqrt(n->moved[i]) / ((double)tau * first + 1e-12) + 1;
}

/* Visits norms that are equal on all workers. `summed`: sums over groups, which keep their mean in
 * a run with another number of groups, as in replicate_visit_sum. */
static enum sotto_status visit_squares(const struct norms *n, const struct replicate *r,
                                       struct state_visitor *v, const char *name, float *x,
                                       bool summed)
{
    const size_t count = (size_t)n->table->n;
    TRY(state_tensor(v, name, MEMORY_OUTER, NULL, view_of(x, DTYPE_F32), count));
    for (size_t i = 0; i < count && state_loading(v) && summed; i++)
        x[i] *= (float)r->is.mesh->n_r / (float)r->from.groups;
    return SOTTO_OK;
}

enum sotto_status norms_visit(struct norms *n, const struct replicate *r, struct state_visitor *v,
                              bool first)
{
    if (!state_loading(v) || state_has(v, "outer.moved")) {
        TRY(visit_squares(n, r, v, "outer.moved", n->moved, false));
        TRY(visit_squares(n, r, v, "outer.last", n->last, true));
    }
    return first ? visit_squares(n, r, v, "outer.first", n->first, true) : SOTTO_OK;
}
