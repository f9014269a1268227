/* Vectors in device memory on their way to a backend: through the staging memory of the
 * communicator's device, which is allocated once for all calls. */
#ifndef SOTTO_COMM_STAGING_H
#define SOTTO_COMM_STAGING_H

#include "comm/comm.h"

/* True if a or b is in device memory. */
static inline bool staging_used(struct view a, struct view b)
{
    return (a.data && a.place == PLACE_DEVICE) || (b.data && b.place == PLACE_DEVICE);
}

/* Sets *host to host memory for `count` elements of the type of a and b; to `a` itself if both are
 * in host memory. */
enum sotto_status staging_room(struct comm *c, struct view a, struct view b, size_t count,
                               struct view *host);

/* staging_take: host <- x, after a wait for the device. staging_give: y <- host, which the device's
 * next ops find done. No copy is made if both are the same memory. */
enum sotto_status staging_take(struct comm *c, struct view host, struct view x, size_t count);
void staging_give(struct comm *c, struct view y, struct view host, size_t count);

/* y <- x, in host or device memory. */
void staging_copy(struct comm *c, struct view y, struct view x, size_t count);

#endif
