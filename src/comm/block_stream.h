/* Blocks of a vector on their way between two ranks, several at once, in pieces that follow each
 * other: so many blocks take the latency of one, and a piece is added while others are under way.
 */
#ifndef SOTTO_COMM_BLOCK_STREAM_H
#define SOTTO_COMM_BLOCK_STREAM_H

#include "comm/comm.h"

enum { RING_SLOTS = 8 }; /* messages under way at once, in either direction */

/* What messages are moved with. Those between two ranks arrive in the order they were started. */
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

/* Blocks first, first + step, ..., n of them, of a vector of `count` elements that is cut into
 * `size` blocks (comm_block). */
struct blocks {
    size_t count;
    int size, first, step, n;
};

/* Memory that holds some blocks of a vector. `every` > 0: only one of so many that follow each
 * other, each with the room of the longest; 0: all, as they lie in the vector. */
struct block_store {
    char *data;
    size_t unit; /* bytes an element */
    int every;
};

/* Between this rank and `peer`. */
struct block_stream {
    struct blocks blocks;
    struct block_store at;
    int peer;
};

/* What becomes of n elements of a piece that came `in`: into y, together with what lies at `mine`
 * in the same block. */
typedef void take_piece(void *y, const void *in, const void *mine, size_t n);

struct taker {
    take_piece *take; /* NULL: the piece stays where it came */
    struct block_store y, mine;
};

/* Element `at` of block b. */
void *block_store_at(const struct block_store *p, const struct blocks *blocks, int b, size_t at);

/* One parcel goes out while another comes in, and each piece is taken while those behind it travel.
 */
enum sotto_status block_stream_pass(const struct ring *r, struct block_stream out,
                                    struct block_stream in, struct taker t);

#endif
