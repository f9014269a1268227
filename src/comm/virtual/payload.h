/* The bytes of a message in virtual time: a copy of what its sender sent, in host memory, or in the
 * memory of the sender's device, so that what goes from one worker of a GPU to another does not
 * leave the GPU. */
#ifndef SOTTO_COMM_VIRTUAL_PAYLOAD_H
#define SOTTO_COMM_VIRTUAL_PAYLOAD_H

#include "comm/comm.h"

/* A device context of the simulation's own, which copies payloads and pays for them: senders and
 * receivers close theirs at any time. Opened by the first payload that is a device's. */
struct depot {
    struct device dev;
    struct memory memory;
    bool open;
    bool refused; /* there is no such context, or no memory: payloads pass through the host */
};

void depot_close(struct depot *depot);

struct payload {
    size_t bytes;
    bool on_device; /* in `copy` */
    bool empty;     /* only its size was declared */
    void *host;
    size_t room; /* of host */
    struct buffer copy;
};

/* p <- count elements of x, which are the host's or c->dev's. */
enum sotto_status payload_fill(struct payload *p, struct depot *depot, struct comm *c,
                               struct view x, size_t count);
/* y <- p, of which y has room. */
enum sotto_status payload_take(const struct payload *p, struct depot *depot, struct comm *c,
                               struct view y);
void payload_free(struct payload *p);

#endif
