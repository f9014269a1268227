#include "strategy/decoupled/tiling.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/* Returns the coefficients kept of a tile of `size` elements. */
static int coefficients_kept(const struct tiling_rule *rule, int size)
{
    const int keep = rule->rate > 0 ? (int)(rule->rate * size + 1e-9) : rule->top;
    return keep < 1 ? 1 : keep < size ? keep : size;
}

/* Appends a list of tiles of section k. Lists of earlier sections are complete. */
static enum sotto_status add_list(struct tiling_plan *plan, const struct tiling_rule *rule, int k,
                                  struct tiles t)
{
    struct tiling_section *s = &plan->section[k];
    const size_t n = (size_t)t.ny * (size_t)t.nx;
    if (plan->n == plan->room) {
        const int room = plan->room ? 2 * plan->room : 16;
        struct tiles *more = realloc(plan->list, (size_t)room * sizeof *more);
        if (!more)
            return fail(SOTTO_ENOMEM, "no memory for %d lists of tiles", room);
        plan->list = more;
        plan->room = room;
    }
    t.keep = coefficients_kept(rule, t.h * t.w);
    t.kept = s->kept;
    if (s->n++ == 0)
        s->first = plan->n;
    plan->list[plan->n++] = t;
    s->kept += n * (size_t)t.keep;
    s->elements += n * (size_t)t.h * (size_t)t.w;
    return SOTTO_OK;
}

/* Adds ny x nx tiles, of which t is the first, in lists that an int can count. May add none. */
static enum sotto_status add_tiles(struct tiling_plan *plan, const struct tiling_rule *rule, int k,
                                   struct tiles t, size_t ny, size_t nx)
{
    enum { MOST = 1 << 30 };
    const size_t at = t.at, across = nx < MOST ? nx : MOST;
    const size_t down = MOST / (across ? across : 1);
    for (size_t y = 0; y < ny; y += down)
        for (size_t x = 0; x < nx; x += across) {
            t.at = at + y * (size_t)t.h * t.stride + x * (size_t)t.w;
            t.ny = (int)(ny - y < down ? ny - y : down);
            t.nx = (int)(nx - x < across ? nx - x : across);
            TRY(add_list(plan, rule, k, t));
        }
    return SOTTO_OK;
}

/* Adds chunks over elements [at, at + count) of the own vector to section k. Chunks start at
 * `at`. */
static enum sotto_status add_chunks(struct tiling_plan *plan, const struct tiling_rule *rule, int k,
                                    size_t at, size_t count)
{
    const size_t chunk = (size_t)rule->chunk, n = count / chunk, rest = count % chunk;
    const struct tiles whole = {.at = at, .stride = count, .h = 1, .w = rule->chunk};
    const struct tiles last = {.at = at + n * chunk, .stride = rest, .h = 1, .w = (int)rest};
    TRY(add_tiles(plan, rule, k, whole, 1, n));
    return add_tiles(plan, rule, k, last, 1, rest > 0);
}

/* Adds chunks over a run of elements. `ends`: end of each section in the own vector. */
static enum sotto_status add_chunk_run(struct tiling_plan *plan, const struct tiling_rule *rule,
                                       const size_t *ends, struct piece run)
{
    const size_t chunk = (size_t)rule->chunk, end = run.own + run.count;
    int k = 0;
    for (size_t at = run.own, next; at < end; at = next) {
        while (at >= ends[k])
            k++;
        const size_t stop = ends[k] < end ? ends[k] : end;
        next = at + (stop - at + chunk - 1) / chunk *
                        chunk; /* the last chunk may reach into the next section */
        next = next < end ? next : end;
        TRY(add_chunks(plan, rule, k, at, next - at));
        plan->section[k].end = next;
    }
    return SOTTO_OK;
}

static int compare_pieces(const void *a, const void *b)
{
    const struct piece *p = a, *q = b;
    return (p->own > q->own) - (p->own < q->own);
}

/* Lists the own pieces of all tensors, in order. */
static enum sotto_status find_pieces(const struct table *table, const struct owned *own,
                                     struct piece **out, int *n)
{
    int room = 0;
    *out = NULL;
    *n = 0;
    for (int i = 0; i < table->n; i++)
        for (struct piece p = {0}; owned_next(own, table_range(table, i), &p); (*n)++) {
            if (*n == room) {
                room = room ? 2 * room : 64;
                struct piece *more = realloc(*out, (size_t)room * sizeof *more);
                if (!more)
                    return fail(SOTTO_ENOMEM, "no memory for %d pieces", room);
                *out = more;
            }
            (*out)[*n] = p;
        }
    if (*n)
        qsort(*out, (size_t)*n, sizeof **out, compare_pieces);
    return SOTTO_OK;
}

static enum sotto_status plan_chunks(struct tiling_plan *plan, const struct tiling_rule *rule,
                                     const struct table *table, const struct owned *own,
                                     const size_t *ends)
{
    struct piece *piece;
    int n;
    enum sotto_status st = find_pieces(table, own, &piece, &n);
    for (int i = 0, next; i < n && st == SOTTO_OK; i = next) {
        struct piece all = piece[i];
        for (next = i + 1; next < n && piece[next].own == all.own + all.count &&
                           piece[next].whole == all.whole + all.count;
             next++)
            all.count += piece[next].count;
        st = add_chunk_run(plan, rule, ends, all);
    }
    free(piece);
    return st;
}

/* Returns the largest divisor of n that is at most `most`. */
static int largest_side(size_t n, int most)
{
    int side = most;
    while (n % (size_t)side != 0)
        side--;
    return side;
}

static enum sotto_status plan_tensor(struct tiling_plan *plan, const struct tiling_rule *rule,
                                     const struct table *table, int i, int k)
{
    const struct table_entry *e = &table->entry[i];
    const size_t rows = e->ndim >= 2 ? (size_t)e->shape[0] : 1;
    const size_t columns = rows ? e->count / rows : 0;
    if (e->count == 0)
        return SOTTO_OK;
    struct tiles t = {.at = table_range(table, i).begin, .stride = columns};
    t.h = largest_side(rows, rule->chunk);
    t.w = largest_side(columns, rule->chunk);
    return add_tiles(plan, rule, k, t, rows / (size_t)t.h, columns / (size_t)t.w);
}

static int stage_section(const int *section, int stage)
{
    return section ? section[stage] : 0;
}

static enum sotto_status plan_tensors(struct tiling_plan *plan, const struct tiling_rule *rule,
                                      const struct table *table, const int *section)
{
    for (int k = 0; k < plan->n_section; k++)
        for (int i = 0; i < table->n; i++)
            if (stage_section(section, table->entry[i].stage) == k)
                TRY(plan_tensor(plan, rule, table, i, k));
    return SOTTO_OK;
}

/* Places a matrix for each side length, once. Chunks have no matrix for their height. */
static void place_basis(struct tiling_plan *plan)
{
    size_t where[TILE_SIDE + 1];
    bool has[TILE_SIDE + 1] = {false};
    for (int i = 0; i < plan->n; i++) {
        struct tiles *t = &plan->list[i];
        const int side[2] = {t->w, t->h};
        for (int k = 0; k < (t->h > 1 ? 2 : 1); k++) {
            const size_t n = (size_t)side[k];
            if (!has[n])
                where[n] = plan->basis, plan->basis += n * n;
            has[n] = true;
        }
        t->basis_w = where[t->w];
        t->basis_h = t->h > 1 ? where[t->h] : 0;
    }
}

/* Makes the plan. `ends`: room for the ends of stages, then of sections. */
static enum sotto_status make_tiling(struct tiling_plan *plan, const struct tiling_rule *rule,
                                     const struct table *table, const struct owned *own,
                                     const int *section, size_t *ends)
{
    const int stages = table->n_stage;
    if (!plan->section || !ends)
        return fail(SOTTO_ENOMEM, "no memory for %d stages", stages);
    plan->n_section = stage_section(section, stages - 1) + 1;
    owned_stages(own, table, ends);
    for (int k = 0; k < stages; k++)
        ends[stage_section(section, k)] = ends[k];
    TRY(rule->tiles ? plan_tensors(plan, rule, table, section)
                    : plan_chunks(plan, rule, table, own, ends));
    for (int k = 0; k < plan->n_section; k++) {
        struct tiling_section *s = &plan->section[k];
        const size_t before = k ? s[-1].end : 0;
        s->end = s->end > ends[k] ? s->end : ends[k];
        s->end = s->end > before ? s->end : before; /* a chunk may be longer than a section */
        plan->elements += s->elements;
        plan->kept += s->kept;
    }
    place_basis(plan);
    return SOTTO_OK;
}

enum sotto_status tiling_make(struct tiling_plan *plan, const struct tiling_rule *rule,
                              const struct table *table, const struct owned *own,
                              const int *section)
{
    assert(rule->chunk >= 1 && rule->chunk <= TILE_SIDE);
    assert(!rule->tiles || owned_count(own, table) == table_count(table));
    const size_t n = (size_t)table->n_stage;
    size_t *ends = calloc(n, sizeof *ends);
    *plan = (struct tiling_plan){.section = calloc(n, sizeof *plan->section)};
    const enum sotto_status st = make_tiling(plan, rule, table, own, section, ends);
    free(ends);
    if (st != SOTTO_OK)
        tiling_free(plan);
    return st;
}

void tiling_free(struct tiling_plan *plan)
{
    free(plan->list);
    free(plan->section);
    *plan = (struct tiling_plan){0};
}

/* Orthonormal DCT-II: a row for each frequency. */
static void write_basis(float *to, int n)
{
    const double pi = 3.14159265358979323846;
    for (int f = 0; f < n; f++)
        for (int t = 0; t < n; t++)
            to[f * n + t] =
                (float)(sqrt((f ? 2.0 : 1.0) / n) * cos(pi * (2 * t + 1) * f / (2.0 * n)));
}

/* Matrices are in the order of their first use in the list. */
void tiling_write_basis(const struct tiling_plan *plan, float *basis)
{
    size_t next = 0;
    for (int i = 0; i < plan->n; i++) {
        const struct tiles *t = &plan->list[i];
        if (t->basis_w == next) {
            write_basis(basis + next, t->w);
            next += (size_t)t->w * (size_t)t->w;
        }
        if (t->h > 1 && t->basis_h == next) {
            write_basis(basis + next, t->h);
            next += (size_t)t->h * (size_t)t->h;
        }
    }
}
