#include "tensor/owned.h"

#include <assert.h>
#include <stdlib.h>

enum sotto_status owned_add(struct owned *o, size_t begin, size_t end)
{
    struct owned_range *last = o->n ? &o->range[o->n - 1] : NULL;
    assert(begin <= end && (!last || last->end <= begin));
    if (begin == end)
        return SOTTO_OK;
    if (last && last->end == begin) {
        last->end = end;
        o->count += end - begin;
        return SOTTO_OK;
    }
    if (o->n == o->room) {
        const int room = o->room ? 2 * o->room : 16;
        struct owned_range *more = realloc(o->range, (size_t)room * sizeof *more);
        if (!more)
            return fail(SOTTO_ENOMEM, "no memory for %d ranges", room);
        o->range = more;
        o->room = room;
    }
    o->range[o->n++] = (struct owned_range){begin, end, o->count};
    o->count += end - begin;
    return SOTTO_OK;
}

void owned_free(struct owned *o)
{
    free(o->range);
    *o = (struct owned){0};
}

enum sotto_status owned_all(struct owned *out, const struct table *table, int index, int of)
{
    (void)index, (void)of;
    return owned_add(out, 0, table_count(table));
}

enum sotto_status owned_slices(struct owned *out, const struct table *table, int index, int of)
{
    for (int k = 0; k < table->n_stage; k++) {
        const size_t length = table_stage_count(table, k) / (size_t)of;
        const size_t begin = table->stage_start[k] + length * (size_t)index;
        if (length * (size_t)of != table_stage_count(table, k))
            return fail(SOTTO_EINVAL, "stage %d of %zu elements cannot be cut into %d slices", k,
                        table_stage_count(table, k), of);
        TRY(owned_add(out, begin, begin + length));
    }
    return SOTTO_OK;
}

size_t owned_count(const struct owned *o, const struct table *table)
{
    return o ? o->count : table_count(table);
}

static size_t later_place(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t earlier_place(size_t a, size_t b)
{
    return a < b ? a : b;
}

bool owned_next(const struct owned *o, struct range in, struct piece *p)
{
    const size_t from = p->count ? p->whole + p->count : in.begin;
    struct owned_range r = {in.begin, in.end, in.begin};
    if (o) { /* the first range that ends after `from` */
        int low = 0, high = o->n;
        while (low < high) {
            const int middle = low + (high - low) / 2;
            if (o->range[middle].end <= from)
                low = middle + 1;
            else
                high = middle;
        }
        if (low == o->n)
            return false;
        r = o->range[low];
    }
    const size_t begin = later_place(r.begin, from), end = earlier_place(r.end, in.end);
    if (begin >= end)
        return false;
    *p = (struct piece){begin, r.at + (begin - r.begin), end - begin};
    return true;
}

void owned_stages(const struct owned *o, const struct table *table, size_t *ends)
{
    size_t end = 0;
    for (int k = 0; k < table->n_stage; k++) {
        for (struct piece p = {0}; owned_next(o, table_stage_range(table, k), &p);)
            end += p.count;
        ends[k] = end;
    }
}

/* Appends the segment [begin, end), or lengthens the last segment if it ends at `begin`. */
static void append_segment(struct segment *list, int *n, size_t begin, size_t end, bool decay)
{
    if (begin >= end)
        return;
    if (*n && list[*n - 1].decay == decay && list[*n - 1].end == begin)
        list[*n - 1].end = end;
    else
        list[(*n)++] = (struct segment){begin, end, decay};
}

/* Appends the segments of a piece of stage k: its tensors, then the padding. */
static void cut_piece(const struct table *table, int k, struct piece p, bool all,
                      struct segment *list, int *n)
{
    size_t covered = p.whole;
    for (int i = 0; i < table->n; i++) {
        const struct table_entry *e = &table->entry[i];
        const struct range tensor = table_range(table, i);
        const size_t begin = later_place(tensor.begin, p.whole);
        const size_t end = earlier_place(tensor.end, p.whole + p.count);
        if (e->stage != k || begin >= end)
            continue;
        append_segment(list, n, p.own + (begin - p.whole), p.own + (end - p.whole),
                       all || e->ndim >= 2);
        covered = end;
    }
    append_segment(list, n, p.own + (covered - p.whole), p.own + p.count, false);
}

enum sotto_status owned_segments(const struct owned *o, const struct table *table, bool all,
                                 struct segment **out, int *n)
{
    /* at most a segment for each tensor and each stage's padding; each range splits one segment */
    const size_t most = (size_t)table->n + (size_t)table->n_stage + (size_t)(o ? o->n : 1);
    *n = 0;
    *out = calloc(most, sizeof **out);
    if (!*out)
        return fail(SOTTO_ENOMEM, "no memory for %zu segments", most);
    for (int k = 0; k < table->n_stage; k++)
        for (struct piece p = {0}; owned_next(o, table_stage_range(table, k), &p);)
            cut_piece(table, k, p, all, *out, n);
    return SOTTO_OK;
}
