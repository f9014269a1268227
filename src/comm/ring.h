/* Collectives around a ring: rank r sends to r+1 and takes from r-1, all at once. The vector is cut
 * into `size` blocks (comm_block); each step every rank passes one block on. What is added, and in
 * which order, is comm.h's.
 *
 *     reduce-scatter   size-1 steps, (size-1)/size of the vector sent by each rank
 *     all-gather       the same
 *     all-reduce       one after the other
 *
 * Partial sums in bf16 would be rounded at every step, so a bf16 reduce-scatter sends blocks
 * straight to the rank that sums them, in fp32: as many steps and bytes. A block travels in pieces:
 * one is added while others are under way. */
#ifndef SOTTO_COMM_RING_H
#define SOTTO_COMM_RING_H

#include "comm/comm.h"

enum { RING_SLOTS = 8 }; /* messages under way at once, in either direction */

/* What the ring moves messages with. Messages between two ranks arrive in the order they were
 * started. */
struct ring_ops {
    enum sotto_status (*start_send)(struct comm *c, int slot, const void *data, size_t bytes,
                                    int to);
    enum sotto_status (*start_recv)(struct comm *c, int slot, void *data, size_t bytes, int from);
    enum sotto_status (*wait_send)(struct comm *c, int slot);
    enum sotto_status (*wait_recv)(struct comm *c,
                                   int slot);       /* also: whether it has the length expected */
    void (*drop)(struct comm *c);                   /* gives up what is under way after a failure */
    void *(*scratch)(struct comm *c, size_t bytes); /* memory until the next call; NULL: none     */
};

struct ring {
    const struct ring_ops *ops;
    struct comm *comm;
    size_t largest; /* bytes in a message */
};

/* As the functions of comm_ops; size > 1. */
enum sotto_status ring_allreduce(const struct ring *r, struct view y, struct view x, size_t count);
enum sotto_status ring_reduce_scatter(const struct ring *r, struct view y, struct view x,
                                      size_t count);
enum sotto_status ring_allgather(const struct ring *r, void *y, const void *x, size_t count,
                                 size_t unit);

#endif
