/* Saving: slices are collected during the visit and written at its end, tensor by tensor. */
#define _GNU_SOURCE /* strdup */
#include "io/state.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct state_saved {
    struct state_item item; /* owns a copy of the name */
    size_t first;           /* order of the tensor's first visit */
    uint64_t scalar;        /* bits of a scalar */
};

static enum sotto_status add_note(struct state_visitor *v, const char *name, const char *text)
{
    if (json_object_get(v->save.writer.metadata, name))
        return fail(SOTTO_EINVAL, "state '%s' is visited twice, or its name is taken", name);
    return safetensors_writer_note(&v->save.writer, name, text);
}

/* Collects a slice. Slices of one tensor agree on type and size; `first` groups them. */
static enum sotto_status collect_slice(struct state_visitor *v, const struct state_item *item)
{
    if (v->save.count == v->save.room) {
        size_t room = v->save.room ? 2 * v->save.room : 64;
        struct state_saved *more = realloc(v->save.slice, room * sizeof *more);
        if (!more)
            return fail(SOTTO_ENOMEM, "no memory for %zu pieces of state", room);
        v->save.slice = more;
        v->save.room = room;
    }
    struct state_saved *s = &v->save.slice[v->save.count];
    *s = (struct state_saved){.item = *item, .first = v->save.count};
    if (item->scalar)
        memcpy(&s->scalar, item->data, sizeof s->scalar);
    if (!(s->item.name = strdup(item->name)))
        return fail(SOTTO_ENOMEM, "no memory for the name '%s'", item->name);
    v->save.count++;
    return SOTTO_OK;
}

static enum sotto_status save_state_item(struct state_visitor *v, const struct state_item *item)
{
    char text[64];
    switch (item->kind) {
    case STATE_TENSOR:
        return collect_slice(v, item);
    case STATE_INT:
        snprintf(text, sizeof text, "%" PRId64, *item->to.integer);
        return add_note(v, item->name, text);
    case STATE_REAL:
        snprintf(text, sizeof text, "%a", *item->to.real);
        return add_note(v, item->name, text);
    case STATE_TEXT:
        return add_note(v, item->name, item->to.text);
    }
    assert(0);
    return SOTTO_EINVAL;
}

static void save_free(struct state_visitor *v)
{
    for (size_t i = 0; i < v->save.count; i++)
        free((char *)v->save.slice[i].item.name);
    free(v->save.slice);
    safetensors_writer_free(&v->save.writer);
}

enum sotto_status state_saver_init(struct state_visitor *v)
{
    static const struct state_ops ops = {save_state_item, save_free};
    *v = (struct state_visitor){.ops = &ops};
    enum sotto_status st = safetensors_writer_init(&v->save.writer);
    if (st != SOTTO_OK)
        v->ops = NULL;
    return st;
}

static int compare_slice_names(const void *a, const void *b)
{
    const struct state_saved *x = a, *y = b;
    int order = strcmp(x->item.name, y->item.name);
    return order ? order : (x->first > y->first) - (x->first < y->first);
}

/* Orders wide types first, which keeps every tensor aligned; then tensors by their first visit,
 * then slices by offset. */
static int compare_slice_places(const void *a, const void *b)
{
    const struct state_saved *x = a, *y = b;
    size_t sx = safetensors_type_size(x->item.type), sy = safetensors_type_size(y->item.type);
    if (sx != sy)
        return sx > sy ? -1 : 1;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    if (x->item.offset != y->item.offset)
        return x->item.offset < y->item.offset ? -1 : 1;
    return (x->item.count > y->item.count) - (x->item.count < y->item.count);
}

static enum sotto_status sort_slices(struct state_saved *s, size_t n)
{
    qsort(s, n, sizeof *s, compare_slice_names);
    for (size_t i = 1; i < n; i++) {
        const struct state_item *a = &s[i - 1].item, *b = &s[i].item;
        if (strcmp(a->name, b->name) != 0)
            continue;
        if (a->type != b->type || a->whole != b->whole)
            return fail(SOTTO_EINVAL, "slices of state '%s' disagree: %s [%zu] and %s [%zu]",
                        a->name, safetensors_type_name(a->type), a->whole,
                        safetensors_type_name(b->type), b->whole);
        s[i].first = s[i - 1].first;
    }
    qsort(s, n, sizeof *s, compare_slice_places);
    return SOTTO_OK;
}

/* Declares the tensor of the slices from `s` on, and returns the number of its slices in `*used`.
 */
static enum sotto_status declare_slices(struct state_visitor *v, const struct state_saved *s,
                                        size_t n, size_t *used)
{
    size_t reached = 0, k = 0;
    for (; k < n && s[k].first == s[0].first; k++) {
        if (s[k].item.offset != reached)
            return fail(SOTTO_EINVAL,
                        "state '%s': a slice begins at %zu, the one before ends at %zu",
                        s->item.name, s[k].item.offset, reached);
        reached += s[k].item.count;
    }
    if (reached != s->item.whole)
        return fail(SOTTO_EINVAL, "state '%s': slices cover %zu of %zu elements", s->item.name,
                    reached, s->item.whole);
    *used = k;
    int64_t shape = (int64_t)s->item.whole;
    return safetensors_writer_declare(&v->save.writer, s->item.name, s->item.type, 1, &shape);
}

static enum sotto_status put_piece(void *writer, const void *data, size_t bytes)
{
    return safetensors_writer_put(writer, data, bytes);
}

size_t state_saver_bytes(const struct state_visitor *v)
{
    size_t bytes = 0;
    for (size_t i = 0; i < v->save.count; i++) {
        const struct state_item *item = &v->save.slice[i].item;
        bytes += item->count * safetensors_type_size(item->type);
    }
    return bytes;
}

enum sotto_status state_saver_write(struct state_visitor *v, const char *path)
{
    struct state_saved *s = v->save.slice;
    size_t n = v->save.count, used = 0;
    assert(v->depth == 0);
    if (n && !v->save.declared)
        TRY(sort_slices(s, n));
    for (size_t i = 0; i < n && !v->save.declared; i += used)
        TRY(declare_slices(v, s + i, n - i, &used));
    v->save.declared = true;
    TRY(safetensors_writer_start(&v->save.writer, path));
    for (size_t i = 0; i < n; i++) {
        if (s[i].item.scalar)
            s[i].item.data = &s[i].scalar;
        TRY(state_pieces(v, &s[i].item, put_piece, &v->save.writer));
    }
    return safetensors_writer_finish(&v->save.writer);
}
