/* Blocks of a vector in flight between two ranks, several at the same time, in pieces that follow
 * each other: n blocks cost the latency of one, and a piece is added while later pieces are in
 * flight. */
#ifndef SOTTO_COMM_BLOCK_STREAM_H
#define SOTTO_COMM_BLOCK_STREAM_H

#include "comm/comm.h"

enum { RING_SLOTS = 8 }; /* messages in flight at once, per direction */

/* Transport of messages. Messages between two ranks arrive in the order of their start. */
struct ring_ops {
    enum sotto_status (*start_send)(struct comm *c, int slot, const void *data, size_t bytes,
                                    int to);
    enum sotto_status (*start_recv)(struct comm *c, int slot, void *data, size_t bytes, int from);
    enum sotto_status (*wait_send)(struct comm *c, int slot);
    enum sotto_status (*wait_recv)(struct comm *c,
                                   int slot); /* fails if the length is not the expected one */
    void (*drop)(struct comm *c);             /* after a failure: gives up all messages in flight */
    void *(*scratch)(struct comm *c,
                     size_t bytes); /* memory until the next call; NULL: no memory */
};

struct ring {
    const struct ring_ops *ops;
    struct comm *comm;
    size_t largest; /* most bytes in a message */
};

/* Blocks first, first + step, ..., `n` blocks, of a vector of `count` elements that is cut into
 * `size` blocks (comm_block). */
struct blocks {
    size_t count;
    int size, first, step, n;
};

/* Memory that holds blocks of a vector. `every` > 0: one of every `every` consecutive blocks, each
 * in the room of the longest; 0: all blocks, placed as in the vector. */
struct block_store {
    char *data;
    size_t unit; /* bytes per element */
    int every;
};

/* Blocks that travel between this rank and `peer`. */
struct block_stream {
    struct blocks blocks;
    struct block_store at;
    int peer;
};

/* Takes `n` received elements of a piece at `in` into y, combined with the elements at `mine`, the
 * same part of the same block. */
typedef void take_piece(void *y, const void *in, const void *mine, size_t n);

struct taker {
    take_piece *take; /* NULL: the piece stays where it was received */
    struct block_store y, mine;
};

/* Returns the address of element `at` of block b. */
void *block_store_at(const struct block_store *p, const struct blocks *blocks, int b, size_t at);

/* Sends one stream while receiving another; each piece is taken while later pieces are in flight.
 */
enum sotto_status block_stream_pass(const struct ring *r, struct block_stream out,
                                    struct block_stream in, struct taker t);

#endif
