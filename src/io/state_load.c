/* Loading: each item is looked up by name, and what is left in the file at the end is an error,
 * since a run that ignores part of its state does not continue the same bits.
 *
 * A file is parsed once however many workers load from it, and every look-up is a binary search; a
 * loader's own memory is a list of what it has seen. So all workers together take time and memory
 * in proportion to the file. */
#include "io/state.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/ops.h"

#define AWAY_BYTES ((size_t)4 << 20) /* read at once from a file in another process */

static const char *entry_name(const struct state_file *f, size_t i)
{
    return i < f->set.count ? f->set.entry[i].name : f->note[i - f->set.count].name;
}

/* Returns the index of the first name in the sorted range [begin, end) that is not less than
 * `name`; with `after`, the first after all names that begin with `name`. */
static size_t find_bound(const struct state_file *f, size_t begin, size_t end, const char *name,
                         bool behind)
{
    const size_t length = strlen(name);
    while (begin < end) {
        size_t middle = begin + (end - begin) / 2;
        const char *at = entry_name(f, middle);
        if (behind ? strncmp(at, name, length) <= 0 : strcmp(at, name) < 0)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

/* Returns the tensors (`which` 0) or notes (1) whose names begin with `prefix`. */
static struct state_span find_prefix(const struct state_file *f, int which, const char *prefix)
{
    const size_t from = which ? f->set.count : 0, to = f->set.count + (which ? f->notes : 0);
    const size_t begin = find_bound(f, from, to, prefix, false);
    return (struct state_span){begin, find_bound(f, begin, to, prefix, true)};
}

static enum sotto_status mark_seen(struct state_visitor *v, struct state_span span)
{
    if (span.begin == span.end)
        return SOTTO_OK;
    if (v->load.count == v->load.room) {
        size_t room = v->load.room ? 2 * v->load.room : 64;
        struct state_span *more = realloc(v->load.seen, room * sizeof *more);
        if (!more)
            return fail(SOTTO_ENOMEM, "no memory for %zu pieces of state", room);
        v->load.seen = more;
        v->load.room = room;
    }
    v->load.seen[v->load.count++] = span;
    return SOTTO_OK;
}

/* Loads all elements of `piece` into the item, from the item's element `at` on. */
static enum sotto_status load_host_piece(const struct state_item *item, size_t at,
                                         const struct safetensors_entry *piece)
{
    TRY(safetensors_check_numbers(piece, 0, piece->count));
    const size_t size = safetensors_type_size(item->type);
    if (!item->dev) {
        memcpy((char *)item->data + at * size, piece->data, piece->count * size);
        return SOTTO_OK;
    }
    struct view to = {item->data, item->type == SAFETENSORS_F32 ? DTYPE_F32 : DTYPE_BF16,
                      item->dev->ops->place};
    item->dev->ops->write(item->dev, view_at(to, at), piece->data, piece->count);
    return device_check(item->dev);
}

/* Loads a slice of a file in another process, piece after piece. */
static enum sotto_status load_remote_slice(struct state_visitor *v, const struct state_item *item,
                                           const struct safetensors_entry *slice)
{
    const struct state_file *f = v->load.file;
    const size_t size = safetensors_type_size(item->type), step = AWAY_BYTES / size;
    const size_t begin = (size_t)(slice->data - f->set.file[0].map.data);
    if (!v->staging && !(v->staging = malloc(AWAY_BYTES)))
        return fail(SOTTO_ENOMEM, "no memory for %zu bytes of staging", AWAY_BYTES);
    for (size_t at = 0; at < slice->count; at += step) {
        struct safetensors_entry piece = *slice;
        piece.data = v->staging;
        piece.count = slice->count - at < step ? slice->count - at : step;
        TRY(f->source.read(f->source.arg, begin + at * size, v->staging, piece.count * size));
        TRY(load_host_piece(item, at, &piece));
    }
    return SOTTO_OK;
}

static enum sotto_status load_state_tensor(struct state_visitor *v, const struct state_item *item)
{
    const struct safetensors *set = &v->load.file->set;
    const struct safetensors_entry *e = safetensors_find(set, item->name);
    if (!e)
        return fail(SOTTO_EFORMAT, "the file has no state '%s'", item->name);
    if (e->type != item->type || e->count != item->whole)
        return fail(SOTTO_EFORMAT, "state '%s' is %s [%zu] in the file, this run has %s [%zu]",
                    item->name, e->type_name, e->count, safetensors_type_name(item->type),
                    item->whole);
    const size_t at = (size_t)(e - set->entry);
    TRY(mark_seen(v, (struct state_span){at, at + 1}));
    if (item->count == 0)
        return SOTTO_OK;
    struct safetensors_entry slice = *e;
    slice.data += item->offset * safetensors_type_size(e->type);
    slice.count = item->count;
    return v->load.file->source.read ? load_remote_slice(v, item, &slice)
                                     : load_host_piece(item, 0, &slice);
}

static enum sotto_status load_state_scalar(const struct state_item *item, const char *text)
{
    char *end;
    errno = 0;
    if (item->kind == STATE_INT) {
        intmax_t value = strtoimax(text, &end, 10);
        if (end == text || *end || errno || value < INT64_MIN || value > INT64_MAX)
            return fail(SOTTO_EFORMAT, "state '%s' is \"%.80s\", want an integer", item->name,
                        text);
        *item->to.integer = value;
    } else if (item->kind == STATE_REAL) {
        double value = strtod(text, &end); /* ERANGE is fine: subnormals set it, too */
        if (end == text || *end)
            return fail(SOTTO_EFORMAT, "state '%s' is \"%.80s\", want a number", item->name, text);
        *item->to.real = value;
    } else {
        if (strlen(text) >= item->room)
            return fail(SOTTO_EFORMAT, "state '%s' has %zu characters, at most %zu fit", item->name,
                        strlen(text), item->room - 1);
        strcpy(item->to.text, text);
    }
    return SOTTO_OK;
}

static enum sotto_status load_item(struct state_visitor *v, const struct state_item *item)
{
    if (item->kind == STATE_TENSOR)
        return load_state_tensor(v, item);
    const struct state_file *f = v->load.file;
    const size_t end = f->set.count + f->notes;
    const size_t at = find_bound(f, f->set.count, end, item->name, false);
    if (at == end || strcmp(entry_name(f, at), item->name) != 0)
        return fail(SOTTO_EFORMAT, "the file has no state '%s'", item->name);
    TRY(mark_seen(v, (struct state_span){at, at + 1}));
    return load_state_scalar(item, f->note[at - f->set.count].text);
}

bool state_loading(const struct state_visitor *v)
{
    return v->ops->visit == load_item;
}

bool state_has(const struct state_visitor *v, const char *name)
{
    const bool group = *name && name[strlen(name) - 1] == '.';
    char full[2 * STATE_NAME_ROOM];
    snprintf(full, sizeof full, "%s%s", v->prefix, name);
    for (int which = 0; which < 2; which++) {
        struct state_span s = find_prefix(v->load.file, which, full);
        if (s.begin < s.end && (group || strcmp(entry_name(v->load.file, s.begin), full) == 0))
            return true;
    }
    return false;
}

enum sotto_status state_ignore(struct state_visitor *v, const char *group)
{
    char full[2 * STATE_NAME_ROOM];
    snprintf(full, sizeof full, "%s%s", v->prefix, group);
    TRY(mark_seen(v, find_prefix(v->load.file, 0, full)));
    return mark_seen(v, find_prefix(v->load.file, 1, full));
}

static const struct safetensors_entry *find_in_group(const struct state_visitor *v,
                                                     const char *name)
{
    char full[2 * STATE_NAME_ROOM];
    snprintf(full, sizeof full, "%s%s", v->prefix, name);
    return safetensors_find(&v->load.file->set, full);
}

size_t state_stored(const struct state_visitor *v, const char *name)
{
    const struct safetensors_entry *e = find_in_group(v, name);
    return !e ? 0 : v->own ? e->count / (size_t)v->of : e->count;
}

enum dtype state_stored_type(const struct state_visitor *v, const char *name, enum dtype otherwise)
{
    const struct safetensors_entry *e = find_in_group(v, name);
    return e && e->type == SAFETENSORS_F32    ? DTYPE_F32
           : e && e->type == SAFETENSORS_BF16 ? DTYPE_BF16
                                              : otherwise;
}

int64_t state_owners(const struct state_visitor *v, const char *group, const char *scalar)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s", group, scalar);
    const struct safetensors_entry *e = find_in_group(v, name);
    return !e ? 0 : e->count < INT64_MAX ? (int64_t)e->count : INT64_MAX;
}

static void load_free(struct state_visitor *v)
{
    state_file_close(&v->load.mine);
    free(v->load.seen);
}

void state_loader_init(struct state_visitor *v, const struct state_file *file)
{
    static const struct state_ops ops = {load_item, load_free};
    *v = (struct state_visitor){.ops = &ops, .load.file = file};
}

enum sotto_status state_loader_open(struct state_visitor *v, const char *path)
{
    struct state_file mine;
    *v = (struct state_visitor){0};
    TRY(state_file_open(&mine, path));
    state_loader_init(v, NULL);
    v->load.mine = mine;
    v->load.file = &v->load.mine;
    return SOTTO_OK;
}

static int by_begin(const void *a, const void *b)
{
    const struct state_span *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

size_t state_loader_left(struct state_visitor *v, const char **first)
{
    const struct state_file *f = v->load.file;
    const size_t all = f->set.count + f->notes;
    size_t at = 0, left = 0; /* everything before `at` was seen or counted */
    assert(v->depth == 0);
    if (v->load.count)
        qsort(v->load.seen, v->load.count, sizeof *v->load.seen, by_begin);
    for (size_t i = 0; i <= v->load.count; i++) {
        const bool last = i == v->load.count;
        const size_t begin = last ? all : v->load.seen[i].begin;
        if (begin > at && left == 0)
            *first = entry_name(f, at);
        left += begin > at ? begin - at : 0;
        if (!last && v->load.seen[i].end > at)
            at = v->load.seen[i].end;
    }
    return left;
}

enum sotto_status state_loader_finish(struct state_visitor *v)
{
    const char *first;
    if (state_loader_left(v, &first) == 0)
        return SOTTO_OK;
    return fail(SOTTO_EFORMAT, "this run has no state '%.200s'", first);
}
