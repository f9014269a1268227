/* The side of the visitor that owners see, and the two visitors that are a few lines: count and
 * hash. */
#include "io/state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/ops.h"

#define STAGING_BYTES ((size_t)1 << 20)

enum sotto_status state_enter(struct state_visitor *v, const char *group)
{
    size_t used = strlen(v->prefix), more = strlen(group);
    if (used + more + 2 > sizeof v->prefix)
        return fail(SOTTO_EINVAL, "state name %.80s...%.80s is too long", v->prefix, group);
    assert(v->depth < STATE_DEPTH);
    v->length[v->depth++] = used;
    memcpy(v->prefix + used, group, more);
    memcpy(v->prefix + used + more, ".", 2);
    return SOTTO_OK;
}

void state_leave(struct state_visitor *v)
{
    assert(v->depth > 0);
    if (v->own == v->depth)
        v->own = 0;
    v->prefix[v->length[--v->depth]] = '\0';
}

enum sotto_status state_enter_own(struct state_visitor *v, const char *group, int64_t index,
                                  int64_t of)
{
    assert(!v->own && 0 <= index && index < of);
    TRY(state_enter(v, group));
    v->own = v->depth;
    v->index = index;
    v->of = of;
    return SOTTO_OK;
}

/* Places the tensor of an own group among those of all `of` groups, which have the same size. */
static void place_in_list(const struct state_visitor *v, struct state_item *item)
{
    if (!v->own)
        return;
    item->offset += (size_t)v->index * item->whole;
    item->whole *= (size_t)v->of;
}

static enum sotto_status visit_named(struct state_visitor *v, const char *name,
                                     struct state_item item)
{
    if (!v->own && (item.sliced ? v->skip_slices : v->skip_common))
        return SOTTO_OK;
    char full[2 * STATE_NAME_ROOM];
    int length = snprintf(full, sizeof full, "%s%s", v->prefix, name);
    if (length < 0 || length >= STATE_NAME_ROOM)
        return fail(SOTTO_EINVAL, "state name %.80s...%.80s is too long", v->prefix, name);
    item.name = full;
    return v->ops->visit(v, &item);
}

static enum sotto_status visit_tensor(struct state_visitor *v, const char *name, struct device *dev,
                                      struct view view, struct state_item item)
{
    assert(item.offset <= item.whole && item.count <= item.whole - item.offset);
    item.kind = STATE_TENSOR;
    item.type = safetensors_type_of(view.type);
    item.dev = dev;
    item.data = view.data;
    place_in_list(v, &item);
    return visit_named(v, name, item);
}

enum sotto_status state_slice(struct state_visitor *v, const char *name,
                              enum memory_category category, struct device *dev, struct view view,
                              size_t whole, size_t offset, size_t count)
{
    return visit_tensor(v, name, dev, view,
                        (struct state_item){.category = category,
                                            .whole = whole,
                                            .offset = offset,
                                            .count = count,
                                            .sliced = true});
}

enum sotto_status state_tensor(struct state_visitor *v, const char *name,
                               enum memory_category category, struct device *dev, struct view view,
                               size_t count)
{
    return visit_tensor(v, name, dev, view,
                        (struct state_item){.category = category, .whole = count, .count = count});
}

enum sotto_status state_table(struct state_visitor *v, const struct table *table,
                              const struct owned *owned, enum memory_category category,
                              struct device *dev, struct view view)
{
    const bool sliced = owned && (owned->sole || owned->count < table_count(table));
    for (int i = 0; i < table->n; i++) {
        const struct table_entry *e = &table->entry[i];
        const struct range in = table_range(table, i);
        struct state_item item = {.category = category, .whole = e->count, .sliced = sliced};
        struct piece p = {0};
        bool more = owned_next(owned, in, &p);
        if (!more) /* a loader still learns of the tensor */
            TRY(visit_tensor(v, e->name, dev, view, item));
        for (; more; more = owned_next(owned, in, &p)) {
            item.offset = p.whole - in.begin;
            item.count = p.count;
            TRY(visit_tensor(v, e->name, dev, view_at(view, p.own), item));
        }
    }
    return SOTTO_OK;
}

static enum sotto_status visit_array(struct state_visitor *v, const char *name,
                                     enum safetensors_type type, void *data, size_t count)
{
    struct state_item item = {.kind = STATE_TENSOR,
                              .type = type,
                              .category = MEMORY_OUTER,
                              .data = data,
                              .whole = count,
                              .count = count};
    place_in_list(v, &item);
    return visit_named(v, name, item);
}

enum sotto_status state_ints(struct state_visitor *v, const char *name, int64_t *data, size_t count)
{
    return visit_array(v, name, SAFETENSORS_I64, data, count);
}

enum sotto_status state_bytes(struct state_visitor *v, const char *name, void *data, size_t bytes)
{
    return visit_array(v, name, SAFETENSORS_U8, data, bytes);
}

/* Visits a scalar of an own group, as an element of a list. */
static enum sotto_status visit_listed(struct state_visitor *v, const char *name,
                                      enum safetensors_type type, void *value)
{
    struct state_item item = {.kind = STATE_TENSOR,
                              .type = type,
                              .category = MEMORY_OUTER,
                              .data = value,
                              .whole = 1,
                              .count = 1,
                              .scalar = true};
    place_in_list(v, &item);
    return visit_named(v, name, item);
}

enum sotto_status state_int(struct state_visitor *v, const char *name, int64_t *value)
{
    if (v->own && v->of)
        return visit_listed(v, name, SAFETENSORS_I64, value);
    return visit_named(v, name, (struct state_item){.kind = STATE_INT, .to.integer = value});
}

enum sotto_status state_real(struct state_visitor *v, const char *name, double *value)
{
    if (v->own && v->of)
        return visit_listed(v, name, SAFETENSORS_F64, value);
    return visit_named(v, name, (struct state_item){.kind = STATE_REAL, .to.real = value});
}

enum sotto_status state_count(struct state_visitor *v, const char *name, int64_t *value,
                              int64_t most)
{
    TRY(state_int(v, name, value));
    if (state_loading(v) && (*value < 0 || *value > most))
        return fail(SOTTO_EFORMAT, "state '%s%s' is %lld, want 0 to %lld", v->prefix, name,
                    (long long)*value, (long long)most);
    return SOTTO_OK;
}

enum sotto_status state_within(struct state_visitor *v, const char *name, double *value,
                               double least, double most)
{
    TRY(state_real(v, name, value));
    if (state_loading(v) && !(*value >= least && *value <= most)) /* neither is NaN */
        return fail(SOTTO_EFORMAT, "state '%s%s' is %g, want %g to %g", v->prefix, name, *value,
                    least, most);
    return SOTTO_OK;
}

enum sotto_status state_text(struct state_visitor *v, const char *name, char *text, size_t room)
{
    assert(!v->own); /* texts have no lists */
    return visit_named(v, name,
                       (struct state_item){.kind = STATE_TEXT, .to.text = text, .room = room});
}

enum sotto_status state_pieces(struct state_visitor *v, const struct state_item *item,
                               enum sotto_status (*use)(void *arg, const void *data, size_t bytes),
                               void *arg)
{
    size_t size = safetensors_type_size(item->type), step = STAGING_BYTES / size;
    if (!item->dev)
        return item->count ? use(arg, item->data, item->count * size) : SOTTO_OK;
    if (!v->staging && !(v->staging = malloc(STAGING_BYTES)))
        return fail(SOTTO_ENOMEM, "no memory for %zu bytes of staging", STAGING_BYTES);
    struct view from = {item->data, item->type == SAFETENSORS_F32 ? DTYPE_F32 : DTYPE_BF16,
                        item->dev->ops->place};
    for (size_t i = 0; i < item->count; i += step) {
        size_t count = item->count - i < step ? item->count - i : step;
        item->dev->ops->read(item->dev, v->staging, view_at(from, i), count);
        TRY(device_check(item->dev));
        TRY(use(arg, v->staging, count * size));
    }
    return SOTTO_OK;
}

void state_free(struct state_visitor *v)
{
    if (v->ops && v->ops->free)
        v->ops->free(v);
    free(v->staging);
    *v = (struct state_visitor){0};
}

static enum sotto_status count_item(struct state_visitor *v, const struct state_item *item)
{
    if (item->kind == STATE_TENSOR && !item->scalar)
        v->bytes[item->category] += item->count * safetensors_type_size(item->type);
    return SOTTO_OK;
}

void state_counter_init(struct state_visitor *v)
{
    static const struct state_ops ops = {count_item, NULL};
    *v = (struct state_visitor){.ops = &ops};
}

/* Mixes the bits by SplitMix64's finalizer, a bijection: every input bit reaches every output bit.
 */
static uint64_t mix_bits(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

struct state_digest {
    uint64_t name, sum;
    size_t index, size;
};

static enum sotto_status hash_piece(void *arg, const void *data, size_t bytes)
{
    struct state_digest *h = arg;
    for (const char *p = data, *end = p + bytes; p < end; p += h->size) {
        uint64_t bits = 0;
        memcpy(&bits, p, h->size);
        h->sum += mix_bits(mix_bits(h->name + h->index++) ^ bits);
    }
    return SOTTO_OK;
}

static enum sotto_status hash_item(struct state_visitor *v, const struct state_item *item)
{
    struct state_digest h = {.index = item->offset, .size = 1};
    for (const char *p = item->name; *p; p++)
        h.name = mix_bits(h.name + (uint8_t)*p + 1);
    h.name = mix_bits(h.name ^ (uint64_t)item->kind << 8 ^ (uint64_t)item->type);
    switch (item->kind) {
    case STATE_TENSOR:
        h.size = safetensors_type_size(item->type);
        TRY(state_pieces(v, item, hash_piece, &h));
        break;
    case STATE_INT:
        h.size = 8;
        TRY(hash_piece(&h, item->to.integer, 8));
        break;
    case STATE_REAL:
        h.size = 8;
        TRY(hash_piece(&h, item->to.real, 8));
        break;
    case STATE_TEXT:
        TRY(hash_piece(&h, item->to.text, strlen(item->to.text) + 1));
        break;
    }
    v->hash += h.sum;
    return SOTTO_OK;
}

bool state_hashing(const struct state_visitor *v)
{
    return v->ops->visit == hash_item;
}

void state_hasher_init(struct state_visitor *v)
{
    static const struct state_ops ops = {hash_item, NULL};
    *v = (struct state_visitor){.ops = &ops};
}
