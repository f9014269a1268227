#include "strategy/replicate/cosine.h"

#include <float.h>
#include <math.h>

#include "tensor/ops.h"

/* Shorter vectors count as zero: the inverse of their length overflows fp32. */
static const double shortest = 1e-30;

bool cosine_sliced(const struct replicate *r)
{
    return r->count < table_count(r->is.table);
}

static enum sotto_status square_of(struct replicate *r, struct view x, double *square)
{
    const struct vector_pair p = {.x = x, .count = r->count};
    TRY(work_sum_squares(&r->on, &p, 1, square));
    return cosine_sliced(r) ? comm_sum(r->is.within, square, 1) : SOTTO_OK;
}

enum sotto_status cosine_of_groups(struct replicate *r, struct view delta, bool take_part,
                                   double *mean, int64_t *pairs)
{
    double own, sum, K;
    *mean = 0;
    *pairs = 0;
    if (r->is.across->size == 1)
        return SOTTO_OK;
    TRY(square_of(r, delta, &own));
    K = take_part && sqrt(own) >= shortest;
    TRY(work_scale(&r->on, delta, K > 0 ? (float)(1 / sqrt(own)) : 0, r->count));
    TRY(comm_allreduce(r->is.across, delta, delta, r->count));
    TRY(square_of(r, delta, &sum));
    TRY(comm_sum(r->is.across, &K, 1));
    if (K < 2)
        return SOTTO_OK;
    *mean = (sum - K) / (K * (K - 1));
    *pairs = (int64_t)(K * (K - 1) / 2);
    return SOTTO_OK;
}

/* 2 g l = |g|^2 + |l|^2 - |g - l|^2 */
enum sotto_status cosine_to_last(struct cosine_last *c, const struct work *on, struct comm *within,
                                 struct view g, size_t count, double *out)
{
    const struct vector_pair own = {.x = g, .count = count},
                             both = {.x = g, .y = c->last.view, .count = count};
    double square[2]; /* of g, of g - last */
    TRY(work_sum_squares(on, &own, 1, &square[0]));
    TRY(work_distances(on, &both, 1, &square[1]));
    TRY(work_copy(on, c->last.view, g, count));
    if (within)
        TRY(comm_sum(within, square, 2));
    const double lengths = sqrt(square[0]) * sqrt(c->square);
    *out = NAN;
    if (lengths >= shortest * shortest)
        *out = fmax(-1, fmin((square[0] + c->square - square[1]) / (2 * lengths), 1));
    c->square = square[0];
    return SOTTO_OK;
}

enum sotto_status cosine_visit(struct cosine_last *c, struct state_visitor *v,
                               const struct table *table, const struct owned *own)
{
    const bool there = !state_loading(v) || state_has(v, "outer.last.");
    if (!c->last.dev || !there || state_hashing(v))
        return state_loading(v) ? state_ignore(v, "outer.last.") : SOTTO_OK;
    TRY(state_enter(v, "outer.last"));
    TRY(state_within(v, "square", &c->square, 0, DBL_MAX));
    TRY(state_table(v, table, own, c->last.category, c->last.dev, c->last.view));
    state_leave(v);
    return device_check(c->last.dev);
}
