#include "strategy/decoupled/tiling.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/* Coefficients that are kept of a piece of `size` elements. */
static int keep_of(const struct cut_rule *rule, int size)
{
    const int keep = rule->rate > 0 ? (int)(rule->rate * size + 1e-9) : rule->top;
    return keep < 1 ? 1 : keep < size ? keep : size;
}

/* One more list of tiles of section k; none of an earlier one follows. */
static enum sotto_status add_list(struct cut *cut, const struct cut_rule *rule, int k,
                                  struct tiles t)
{
    struct cut_section *s = &cut->section[k];
    const size_t n = (size_t)t.ny * (size_t)t.nx;
    if (cut->n == cut->room) {
        const int room = cut->room ? 2 * cut->room : 16;
        struct tiles *more = realloc(cut->list, (size_t)room * sizeof *more);
        if (!more)
            return fail(SOTTO_ENOMEM, "no memory for %d lists of tiles", room);
        cut->list = more;
        cut->room = room;
    }
    t.keep = keep_of(rule, t.h * t.w);
    t.kept = s->kept;
    if (s->n++ == 0)
        s->first = cut->n;
    cut->list[cut->n++] = t;
    s->kept += n * (size_t)t.keep;
    s->elements += n * (size_t)t.h * (size_t)t.w;
    return SOTTO_OK;
}

/* ny x nx tiles like t, the first of them: in lists that an int counts, and none where there are
 * none. */
static enum sotto_status add(struct cut *cut, const struct cut_rule *rule, int k, struct tiles t,
                             size_t ny, size_t nx)
{
    enum { MOST = 1 << 30 };
    const size_t at = t.at, across = nx < MOST ? nx : MOST;
    const size_t down = MOST / (across ? across : 1);
    for (size_t y = 0; y < ny; y += down)
        for (size_t x = 0; x < nx; x += across) {
            t.at = at + y * (size_t)t.h * t.stride + x * (size_t)t.w;
            t.ny = (int)(ny - y < down ? ny - y : down);
            t.nx = (int)(nx - x < across ? nx - x : across);
            TRY(add_list(cut, rule, k, t));
        }
    return SOTTO_OK;
}

/* Elements [at, at + count) of the own vector, where the chunks of a run begin anew in section k.
 */
static enum sotto_status add_chunks(struct cut *cut, const struct cut_rule *rule, int k, size_t at,
                                    size_t count)
{
    const size_t chunk = (size_t)rule->chunk, n = count / chunk, rest = count % chunk;
    const struct tiles whole = {.at = at, .stride = count, .h = 1, .w = rule->chunk};
    const struct tiles last = {.at = at + n * chunk, .stride = rest, .h = 1, .w = (int)rest};
    TRY(add(cut, rule, k, whole, 1, n));
    return add(cut, rule, k, last, 1, rest > 0);
}

/* A run of elements, in chunks; `ends`: where what is owned of each section ends. */
static enum sotto_status add_run(struct cut *cut, const struct cut_rule *rule, const size_t *ends,
                                 struct piece run)
{
    const size_t chunk = (size_t)rule->chunk, end = run.own + run.count;
    int k = 0;
    for (size_t at = run.own, next; at < end; at = next) {
        while (at >= ends[k])
            k++;
        const size_t stop = ends[k] < end ? ends[k] : end;
        next = at + (stop - at + chunk - 1) / chunk * chunk; /* the last of them may reach over */
        next = next < end ? next : end;
        TRY(add_chunks(cut, rule, k, at, next - at));
        cut->section[k].end = next;
    }
    return SOTTO_OK;
}

static int in_order(const void *a, const void *b)
{
    const struct piece *p = a, *q = b;
    return (p->own > q->own) - (p->own < q->own);
}

/* What is owned of all tensors, in order. */
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
        qsort(*out, (size_t)*n, sizeof **out, in_order);
    return SOTTO_OK;
}

static enum sotto_status cut_chunks(struct cut *cut, const struct cut_rule *rule,
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
        st = add_run(cut, rule, ends, all);
    }
    free(piece);
    return st;
}

/* The largest divisor of n that is at most `most`. */
static int side_of(size_t n, int most)
{
    int side = most;
    while (n % (size_t)side != 0)
        side--;
    return side;
}

static enum sotto_status cut_tensor(struct cut *cut, const struct cut_rule *rule,
                                    const struct table *table, int i, int k)
{
    const struct table_entry *e = &table->entry[i];
    const size_t rows = e->ndim >= 2 ? (size_t)e->shape[0] : 1;
    const size_t columns = rows ? e->count / rows : 0;
    if (e->count == 0)
        return SOTTO_OK;
    struct tiles t = {.at = table_range(table, i).begin, .stride = columns};
    t.h = side_of(rows, rule->chunk);
    t.w = side_of(columns, rule->chunk);
    return add(cut, rule, k, t, rows / (size_t)t.h, columns / (size_t)t.w);
}

static int section_of(const int *section, int stage)
{
    return section ? section[stage] : 0;
}

static enum sotto_status cut_tensors(struct cut *cut, const struct cut_rule *rule,
                                     const struct table *table, const int *section)
{
    for (int k = 0; k < cut->n_section; k++)
        for (int i = 0; i < table->n; i++)
            if (section_of(section, table->entry[i].stage) == k)
                TRY(cut_tensor(cut, rule, table, i, k));
    return SOTTO_OK;
}

/* Each side's matrix once. A chunk has none for its height. */
static void place_basis(struct cut *cut)
{
    size_t where[TILE_SIDE + 1];
    bool has[TILE_SIDE + 1] = {false};
    for (int i = 0; i < cut->n; i++) {
        struct tiles *t = &cut->list[i];
        const int side[2] = {t->w, t->h};
        for (int k = 0; k < (t->h > 1 ? 2 : 1); k++) {
            const size_t n = (size_t)side[k];
            if (!has[n])
                where[n] = cut->basis, cut->basis += n * n;
            has[n] = true;
        }
        t->basis_w = where[t->w];
        t->basis_h = t->h > 1 ? where[t->h] : 0;
    }
}

/* `ends` is room for where what is owned of each stage ends, and then of each section. */
static enum sotto_status make(struct cut *cut, const struct cut_rule *rule,
                              const struct table *table, const struct owned *own,
                              const int *section, size_t *ends)
{
    const int stages = table->n_stage;
    if (!cut->section || !ends)
        return fail(SOTTO_ENOMEM, "no memory for %d stages", stages);
    cut->n_section = section_of(section, stages - 1) + 1;
    owned_stages(own, table, ends);
    for (int k = 0; k < stages; k++)
        ends[section_of(section, k)] = ends[k];
    TRY(rule->tiles ? cut_tensors(cut, rule, table, section)
                    : cut_chunks(cut, rule, table, own, ends));
    for (int k = 0; k < cut->n_section; k++) {
        struct cut_section *s = &cut->section[k];
        const size_t before = k ? s[-1].end : 0;
        s->end = s->end > ends[k] ? s->end : ends[k];
        s->end = s->end > before ? s->end : before; /* a chunk may be longer than a section */
        cut->elements += s->elements;
        cut->kept += s->kept;
    }
    place_basis(cut);
    return SOTTO_OK;
}

enum sotto_status cut_make(struct cut *cut, const struct cut_rule *rule, const struct table *table,
                           const struct owned *own, const int *section)
{
    assert(rule->chunk >= 1 && rule->chunk <= TILE_SIDE);
    assert(!rule->tiles || owned_count(own, table) == table_count(table));
    const size_t n = (size_t)table->n_stage;
    size_t *ends = calloc(n, sizeof *ends);
    *cut = (struct cut){.section = calloc(n, sizeof *cut->section)};
    const enum sotto_status st = make(cut, rule, table, own, section, ends);
    free(ends);
    if (st != SOTTO_OK)
        cut_free(cut);
    return st;
}

void cut_free(struct cut *cut)
{
    free(cut->list);
    free(cut->section);
    *cut = (struct cut){0};
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

/* Matrices lie in the order in which the list comes to them. */
void cut_basis(const struct cut *cut, float *basis)
{
    size_t next = 0;
    for (int i = 0; i < cut->n; i++) {
        const struct tiles *t = &cut->list[i];
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
