#include "comm/staging.h"

#include <assert.h>

#include "tensor/ops.h"

enum sotto_status staging_room(struct comm *c, struct view a, struct view b, size_t count,
                               struct view *host)
{
    *host = a;
    if (!staging_used(a, b))
        return SOTTO_OK;
    assert(c->dev && a.type == b.type);
    const size_t bytes = count * dtype_size(a.type);
    *host = view_of(device_staging(c->dev, bytes), a.type);
    return host->data || !bytes ? SOTTO_OK
                                : fail(SOTTO_ENOMEM, "no memory to stage %zu bytes", bytes);
}

void staging_copy(struct comm *c, struct view y, struct view x, size_t count)
{
    const bool from = x.place == PLACE_DEVICE, to = y.place == PLACE_DEVICE;
    assert(y.type == x.type);
    if (!count || !y.data || !x.data || y.data == x.data) /* a null device has no data */
        return;
    if (from != to)
        c->staged += (int64_t)(count * dtype_size(x.type));
    if (from && to)
        c->dev->ops->copy(c->dev, y, x, count);
    else if (from)
        c->dev->ops->read(c->dev, y.data, x, count);
    else if (to)
        c->dev->ops->write(c->dev, y, x.data, count);
    else
        memmove(y.data, x.data, count * dtype_size(x.type));
}

enum sotto_status staging_take(struct comm *c, struct view host, struct view x, size_t count)
{
    staging_copy(c, host, x, count);
    return c->dev ? device_failed(c->dev) : SOTTO_OK;
}

void staging_give(struct comm *c, struct view y, struct view host, size_t count)
{
    staging_copy(c, y, host, count);
}
