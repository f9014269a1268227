/* What is a device's on its way to a backend: through host memory of the device context that the
 * communicator is bound to, which is there once for all of its calls. */
#ifndef SOTTO_COMM_STAGING_H
#define SOTTO_COMM_STAGING_H

#include "comm/comm.h"

/* Whether one of them is a device's. */
static inline bool staging_used(struct view a, struct view b)
{
    return (a.data && a.place == PLACE_DEVICE) || (b.data && b.place == PLACE_DEVICE);
}

/* Host memory for `count` elements like those of a and b; a itself where both are the host's. */
enum sotto_status staging_room(struct comm *c, struct view a, struct view b, size_t count,
                               struct view *host);

/* host <- x, which waits for the device; y <- host, which its next ops find done. Nothing is to do
 * where they are the same. */
enum sotto_status staging_take(struct comm *c, struct view host, struct view x, size_t count);
void staging_give(struct comm *c, struct view y, struct view host, size_t count);

/* y <- x, wherever they are. */
void staging_copy(struct comm *c, struct view y, struct view x, size_t count);

#endif
