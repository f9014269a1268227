/* The bytes of a message in virtual time: a copy of the sender's data, in host memory or in the
 * memory of the sender's device, so that data sent between workers of one GPU do not leave the GPU.
 */
#ifndef SOTTO_COMM_VIRTUAL_PAYLOAD_H
#define SOTTO_COMM_VIRTUAL_PAYLOAD_H

#include "comm/comm.h"

/* The simulation's own device context, which copies payloads and accounts for their memory: senders
 * and receivers may close theirs at any time. Opened by the first payload in device memory. */
struct depot {
    struct device dev;
    struct memory memory;
    bool open;
    bool refused; /* true if the context cannot be opened or memory is exhausted: payloads pass
                     through the host */
};

void depot_close(struct depot *depot);

struct payload {
    size_t bytes;
    bool on_device; /* true if the data are in `copy` */
    bool empty;     /* true if only the size was declared */
    void *host;
    size_t room; /* bytes of `host` */
    struct buffer copy;
};

/* p <- `count` elements of x, in host memory or in the memory of c->dev. */
enum sotto_status payload_fill(struct payload *p, struct depot *depot, struct comm *c,
                               struct view x, size_t count);
/* y <- p; y has room for p. */
enum sotto_status payload_take(const struct payload *p, struct depot *depot, struct comm *c,
                               struct view y);
void payload_free(struct payload *p);

#endif
