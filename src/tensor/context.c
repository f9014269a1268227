/* Device contexts: failures, marks, scratch and buffers of an open device. Devices by name are in
 * devices.c. */
#include <stdio.h>

#include "tensor/carve.h"
#include "tensor/ops.h"

/* Sets *out to memory of the device; NULL on a device without memory. Returns false if there is too
 * little. */
static bool take_memory(struct device *dev, size_t bytes, void **out)
{
    *out = dev->ops->alloc ? dev->ops->alloc(dev, bytes ? bytes : 1) : NULL;
    return *out || !dev->ops->alloc;
}

static void give_memory(struct device *dev, void *memory, size_t bytes)
{
    if (dev->ops->release)
        dev->ops->release(dev, memory, bytes ? bytes : 1);
}

/* Returns SOTTO_ENOMEM with a message that names `what` the bytes were for. A device with separate
 * memory also reports its free memory and this worker's memory by category. */
static enum sotto_status refuse_memory(struct device *dev, size_t bytes, const char *what)
{
    char account[400] = "";
    size_t left, all, used = 0;
    if (!dev->ops->left)
        return fail(SOTTO_ENOMEM, "no memory for %zu bytes of %s", bytes, what);
    dev->ops->left(dev, &left, &all);
    for (int c = 0; c < MEMORY_CATEGORIES && used < sizeof account; c++) {
        const size_t now = atomic_load(&dev->memory->now[c]);
        if (now >= 50000)
            used += (size_t)snprintf(account + used, sizeof account - used, "%s%s %.1f",
                                     used ? ", " : "", memory_category_name(c), (double)now / 1e6);
    }
    return fail(SOTTO_ENOMEM,
                "no memory on '%s' for %.1f MB of %s: %.1f of %.1f MB are free, this worker has "
                "%.1f (%s)",
                dev->ops->name, (double)bytes / 1e6, what, (double)left / 1e6, (double)all / 1e6,
                (double)atomic_load(&dev->memory->total) / 1e6, used ? account : "next to nothing");
}

/* Frees an area that grow_area made; `category` is the category that paid for the area. */
static void free_area(struct device *dev, void **room, size_t *bytes, enum memory_category category)
{
    if (!*bytes)
        return;
    give_memory(dev, *room, *bytes);
    memory_remove(dev->memory, category, *bytes);
    *room = NULL;
    *bytes = 0;
}

/* Replaces an area that has fewer than `need` bytes; its contents are lost. */
static enum sotto_status grow_area(struct device *dev, void **room, size_t *bytes,
                                   enum memory_category category, size_t need)
{
    if (need <= *bytes)
        return SOTTO_OK;
    free_area(dev, room, bytes, category);
    if (!take_memory(dev, need, room))
        return refuse_memory(dev, need, memory_category_name(category));
    *bytes = need;
    memory_add(dev->memory, category, need);
    return SOTTO_OK;
}

void device_close(struct device *dev)
{
    free_area(dev, &dev->scratch, &dev->scratch_bytes, MEMORY_SCRATCH);
    free_area(dev, &dev->room, &dev->room_bytes, MEMORY_SCRATCH);
    free_area(dev, &dev->relay, &dev->relay_bytes, MEMORY_COMMUNICATION);
    memory_give(dev->memory, MEMORY_COMMUNICATION, dev->staging, dev->staging_bytes);
    if (dev->ops && dev->ops->close)
        dev->ops->close(dev);
    *dev = (struct device){0};
}

const char *device_describe(const struct device *dev)
{
    return dev->ops->describe ? dev->ops->describe(dev) : dev->ops->name;
}

enum sotto_status device_failed(struct device *dev)
{
    return status_raise(&dev->failure);
}

enum sotto_status device_check(struct device *dev)
{
    if (dev->ops->sync)
        dev->ops->sync(dev);
    return device_failed(dev);
}

struct device_mark device_mark(struct device *dev)
{
    if (!dev || !dev->ops->mark)
        return (struct device_mark){0};
    return (struct device_mark){dev, dev->ops->mark(dev)};
}

void device_follow(struct device *dev, struct device_mark mark)
{
    if (mark.dev && mark.dev != dev)
        dev->ops->follow(dev, mark);
}

void device_fail(struct device *dev, enum sotto_status code)
{
    if (dev->failure.code == SOTTO_OK)
        status_save(&dev->failure, code);
}

void tiles_damaged(struct device *dev, const struct tiles *t, uint32_t index)
{
    device_fail(dev, fail(SOTTO_EFORMAT,
                          "another worker's message is damaged: it names coefficient %u of a tile "
                          "of %d x %d",
                          index, t->h, t->w));
}

void *device_scratch(struct device *dev, size_t bytes)
{
    if (bytes <= dev->scratch_bytes) {
        carve_limit((struct view){dev->scratch, DTYPE_U8, dev->ops->place}, bytes,
                    dev->scratch_bytes);
        return dev->scratch;
    }
    void *more;
    if (!take_memory(dev, bytes, &more)) {
        device_fail(dev, refuse_memory(dev, bytes, "scratch"));
        return NULL;
    }
    free_area(dev, &dev->scratch, &dev->scratch_bytes, MEMORY_SCRATCH);
    memory_add(dev->memory, MEMORY_SCRATCH, bytes);
    dev->scratch = more;
    dev->scratch_bytes = bytes;
    return more;
}

enum sotto_status device_room(struct device *dev, size_t bytes)
{
    return grow_area(dev, &dev->room, &dev->room_bytes, MEMORY_SCRATCH, bytes);
}

enum sotto_status device_relay(struct device *dev, size_t bytes)
{
    return grow_area(dev, &dev->relay, &dev->relay_bytes, MEMORY_COMMUNICATION, bytes);
}

void *device_staging(struct device *dev, size_t bytes)
{
    if (bytes <= dev->staging_bytes)
        return dev->staging;
    memory_give(dev->memory, MEMORY_COMMUNICATION, dev->staging, dev->staging_bytes);
    dev->staging = memory_resize(dev->memory, MEMORY_COMMUNICATION, NULL, 0, bytes);
    dev->staging_bytes = dev->staging ? bytes : 0;
    return dev->staging;
}

enum sotto_status buffer_init(struct buffer *buffer, struct device *dev, enum dtype type,
                              size_t count, enum memory_category category)
{
    size_t bytes = count * dtype_size(type);
    *buffer = (struct buffer){
        .view = {.type = type, .place = dev->ops->place}, .count = count, .category = category};
    if (count > SIZE_MAX / 8 || !take_memory(dev, bytes, &buffer->view.data))
        return refuse_memory(dev, bytes, memory_category_name(category));
    buffer->dev = dev;
    memory_add(dev->memory, category, bytes);
    return SOTTO_OK;
}

void buffer_free(struct buffer *buffer)
{
    if (!buffer->dev)
        return;
    size_t bytes = buffer->count * dtype_size(buffer->view.type);
    give_memory(buffer->dev, buffer->view.data, bytes);
    memory_remove(buffer->dev->memory, buffer->category, bytes);
    *buffer = (struct buffer){0};
}
