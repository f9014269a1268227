/* Loading: each item is looked up by name, and what is left in the file at the end is an error,
 * since a run that ignores part of its state does not continue the same bits. */
#include "io/state.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/ops.h"

static enum sotto_status load_tensor(struct state_visitor *v, const struct state_item *item)
{
    const struct safetensors_entry *e = safetensors_find(&v->load.set, item->name);
    if (!e)
        return fail(SOTTO_EFORMAT, "the file has no state '%s'", item->name);
    if (e->type != item->type || e->count != item->whole)
        return fail(SOTTO_EFORMAT, "state '%s' is %s [%zu] in the file, this run has %s [%zu]",
                    item->name, e->type_name, e->count, safetensors_type_name(item->type),
                    item->whole);
    v->load.used[e - v->load.set.entry] = 1;
    if (item->count == 0)
        return SOTTO_OK;
    size_t size = safetensors_type_size(item->type);
    const uint8_t *from = e->data + item->offset * size;
    if (!item->dev) {
        memcpy(item->data, from, item->count * size);
        return SOTTO_OK;
    }
    struct view to = {item->data, item->type == SAFETENSORS_F32 ? DTYPE_F32 : DTYPE_BF16};
    item->dev->ops->write(item->dev, to, from, item->count);
    return device_check(item->dev);
}

static enum sotto_status load_scalar(const struct state_item *item, const char *text)
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
        double value = strtod(text, &end); /* ERANGE is fine: a subnormal sets it too */
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

static enum sotto_status find_and_load(struct state_visitor *v, const struct state_item *item)
{
    if (item->kind == STATE_TENSOR)
        return load_tensor(v, item);
    const char *text = safetensors_metadata(&v->load.set, item->name);
    if (!text)
        return fail(SOTTO_EFORMAT, "the file has no state '%s'", item->name);
    json_object_del(v->load.left, item->name);
    return load_scalar(item, text);
}

static enum sotto_status load_item(struct state_visitor *v, const struct state_item *item)
{
    return fail_in(find_and_load(v, item), "%s: ", v->load.set.file[0].path);
}

static bool begins_with(const char *name, const char *prefix, const char *group)
{
    size_t length = strlen(prefix);
    return strncmp(name, prefix, length) == 0 && strncmp(name + length, group, strlen(group)) == 0;
}

bool state_loading(const struct state_visitor *v)
{
    return v->ops->visit == load_item;
}

bool state_has(const struct state_visitor *v, const char *name)
{
    const char *key;
    json_t *value;
    const bool group = *name && name[strlen(name) - 1] == '.';
    char full[2 * STATE_NAME_ROOM];
    snprintf(full, sizeof full, "%s%s", v->prefix, name);
    for (size_t i = 0; i < v->load.set.count; i++) {
        const char *entry = v->load.set.entry[i].name;
        if (group ? begins_with(entry, v->prefix, name) : strcmp(entry, full) == 0)
            return true;
    }
    json_object_foreach(v->load.left, key, value) if (group ? begins_with(key, v->prefix, name)
                                                            : strcmp(key, full) == 0) return true;
    return false;
}

void state_ignore(struct state_visitor *v, const char *group)
{
    const char *key;
    json_t *value;
    void *next;
    for (size_t i = 0; i < v->load.set.count; i++)
        if (begins_with(v->load.set.entry[i].name, v->prefix, group))
            v->load.used[i] = 1;
    json_object_foreach_safe(v->load.left, next, key, value) if (begins_with(key, v->prefix, group))
        json_object_del(v->load.left, key);
}

static void load_free(struct state_visitor *v)
{
    safetensors_close(&v->load.set);
    free(v->load.used);
    json_decref(v->load.left);
}

enum sotto_status state_loader_open(struct state_visitor *v, const char *path)
{
    static const struct state_ops ops = {load_item, load_free};
    *v = (struct state_visitor){0};
    TRY(safetensors_open(&v->load.set, path));
    v->ops = &ops;
    const json_t *metadata = json_object_get(v->load.set.file[0].header, "__metadata__");
    v->load.left = metadata ? json_copy((json_t *)metadata) : json_object();
    v->load.used = calloc(v->load.set.count + 1, 1);
    if (!v->load.left || !v->load.used) {
        state_free(v);
        return fail(SOTTO_ENOMEM, "%s: no memory to load it", path);
    }
    json_object_del(v->load.left, "format");
    return SOTTO_OK;
}

enum sotto_status state_loader_finish(struct state_visitor *v)
{
    const char *path = v->load.set.file[0].path;
    assert(v->depth == 0);
    for (size_t i = 0; i < v->load.set.count; i++)
        if (!v->load.used[i])
            return fail(SOTTO_EFORMAT, "%s: this run has no state '%.200s'", path,
                        v->load.set.entry[i].name);
    void *extra = json_object_iter(v->load.left);
    if (extra)
        return fail(SOTTO_EFORMAT, "%s: this run has no state '%.200s'", path,
                    json_object_iter_key(extra));
    return SOTTO_OK;
}
