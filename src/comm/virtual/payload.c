#include "comm/virtual/payload.h"

#include <stdlib.h>
#include <string.h>

#include "comm/staging.h"
#include "tensor/ops.h"

void depot_close(struct depot *depot)
{
    if (depot->open)
        device_close(&depot->dev);
    depot->open = false;
}

void payload_free(struct payload *p)
{
    buffer_free(&p->copy);
    free(p->host);
    *p = (struct payload){0};
}

static bool is_on_device(struct view x)
{
    return x.data && x.place == PLACE_DEVICE;
}

/* True if the device has `bytes` bytes to spare: a tenth of its memory is left to the workers. */
static bool has_spare_memory(struct device *dev, size_t bytes)
{
    size_t left, all;
    if (!dev->ops->left)
        return true;
    dev->ops->left(dev, &left, &all);
    return left > bytes && left - bytes >= all / 10;
}

/* Makes room for p in the depot's device memory. False if there is none, which is no failure. */
static bool room_on_device(struct payload *p, struct depot *depot, struct comm *c, size_t bytes)
{
    if (depot->refused)
        return false;
    if (!depot->open)
        depot->open = device_open(&depot->dev, c->dev->ops->name, &depot->memory, 1) == SOTTO_OK;
    depot->refused = !depot->open;
    if (depot->open && p->copy.count < bytes) {
        buffer_free(&p->copy);
        depot->refused =
            !has_spare_memory(&depot->dev, bytes) ||
            buffer_init(&p->copy, &depot->dev, DTYPE_U8, bytes, MEMORY_COMMUNICATION) != SOTTO_OK;
    }
    return !depot->refused;
}

static enum sotto_status room_on_host(struct payload *p, size_t bytes)
{
    if (p->room >= bytes)
        return SOTTO_OK;
    free(p->host);
    p->host = malloc(bytes);
    p->room = p->host ? bytes : 0;
    return p->host ? SOTTO_OK : fail(SOTTO_ENOMEM, "no memory for a message of %zu bytes", bytes);
}

/* y <- x by the depot, after the ops issued to `dev` and before its next ops. */
static enum sotto_status copy_on_device(struct depot *depot, struct device *dev, struct view y,
                                        struct view x, size_t count)
{
    device_follow(&depot->dev, device_mark(dev));
    depot->dev.ops->copy(&depot->dev, y, x, count);
    device_follow(dev, device_mark(&depot->dev));
    return device_failed(&depot->dev);
}

enum sotto_status payload_fill(struct payload *p, struct depot *depot, struct comm *c,
                               struct view x, size_t count)
{
    p->bytes = count * dtype_size(x.type);
    p->empty = !x.data || !p->bytes;
    p->on_device = !p->empty && is_on_device(x) && room_on_device(p, depot, c, p->bytes);
    if (p->empty)
        return SOTTO_OK;
    if (p->on_device)
        return copy_on_device(depot, c->dev, (struct view){p->copy.view.data, x.type, PLACE_DEVICE},
                              x, count);
    TRY(room_on_host(p, p->bytes));
    return staging_take(c, view_of(p->host, x.type), x, count);
}

enum sotto_status payload_take(const struct payload *p, struct depot *depot, struct comm *c,
                               struct view y)
{
    const size_t count = p->bytes / dtype_size(y.type);
    const struct view from = {p->copy.view.data, y.type, PLACE_DEVICE};
    if (p->empty || !y.data)
        return SOTTO_OK;
    if (p->on_device && is_on_device(y))
        return copy_on_device(depot, c->dev, y, from, count);
    if (!p->on_device) {
        staging_copy(c, y, view_of(p->host, y.type), count);
        return SOTTO_OK;
    }
    depot->dev.ops->read(&depot->dev, y.data, from, count);
    c->staged += (int64_t)p->bytes;
    return device_failed(&depot->dev);
}
