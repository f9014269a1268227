#include "comm/block_stream.h"

void *block_store_at(const struct block_store *p, const struct blocks *blocks, int b, size_t at)
{
    const size_t begin =
        p->every ? (size_t)(b / p->every) * comm_block(blocks->count, blocks->size, 0).end
                 : comm_block(blocks->count, blocks->size, b).begin;
    return p->data + (begin + at) * p->unit;
}

/* The pieces of a stream. Every block is cut into the same number of pieces as the longest block;
 * the last piece of a block may be empty, and is not sent then. */
struct stream_pieces {
    const struct block_stream *of;
    size_t each, a_block, count; /* elements per piece; pieces per block; pieces in all */
};

/* Returns the elements per piece. Lengths alone decide, so that sender and receiver agree. */
static size_t piece_size(const struct ring *r, size_t longest, int blocks, size_t unit)
{
    enum { SMALLEST = 64 << 10, LINE = 64 };
    size_t bytes = longest * (size_t)blocks * unit;
    size_t piece = bytes / RING_SLOTS / LINE * LINE + LINE, largest = r->largest / LINE * LINE;
    piece = piece < SMALLEST ? SMALLEST : piece;
    largest = largest ? largest : LINE;
    return (piece < largest ? piece : largest) / unit;
}

static struct stream_pieces cut_into_pieces(const struct ring *r, const struct block_stream *p)
{
    const size_t longest = comm_block(p->blocks.count, p->blocks.size, 0).end;
    const size_t each = piece_size(r, longest, p->blocks.n, p->at.unit);
    const size_t a_block = (longest + each - 1) / each;
    return (struct stream_pieces){p, each, a_block, a_block * (size_t)p->blocks.n};
}

/* Elements [begin, end) of block b. */
struct stream_piece {
    int b;
    size_t begin, end;
};

static struct stream_piece piece_at(const struct stream_pieces *p, size_t i)
{
    const struct blocks *blocks = &p->of->blocks;
    const int b = blocks->first + (int)(i / p->a_block) * blocks->step;
    const size_t length = comm_blocks(blocks->count, blocks->size, b, 1);
    const size_t begin = i % p->a_block * p->each, end = begin + p->each;
    return (struct stream_piece){b, begin < length ? begin : length, end < length ? end : length};
}

static void *data_of(const struct stream_pieces *p, const struct stream_piece *piece,
                     const struct block_store *at)
{
    return block_store_at(at, &p->of->blocks, piece->b, piece->begin);
}

typedef enum sotto_status start_message(const struct ring *r, int slot, void *data, size_t bytes,
                                        int peer);

static enum sotto_status send_message(const struct ring *r, int slot, void *data, size_t bytes,
                                      int to)
{
    return r->ops->start_send(r->comm, slot, data, bytes, to);
}

static enum sotto_status recv_message(const struct ring *r, int slot, void *data, size_t bytes,
                                      int from)
{
    return r->ops->start_recv(r->comm, slot, data, bytes, from);
}

static enum sotto_status start_piece(const struct ring *r, const struct stream_pieces *p, size_t i,
                                     start_message *message)
{
    if (i >= p->count)
        return SOTTO_OK;
    const struct stream_piece piece = piece_at(p, i);
    if (piece.begin == piece.end)
        return SOTTO_OK;
    return message(r, (int)(i % RING_SLOTS), data_of(p, &piece, &p->of->at),
                   (piece.end - piece.begin) * p->of->at.unit, p->of->peer);
}

/* Waits for piece i, starts to receive the next piece in the same slot, and takes piece i. */
static enum sotto_status receive_piece(const struct ring *r, const struct stream_pieces *p,
                                       size_t i, const struct taker *t)
{
    if (i >= p->count)
        return SOTTO_OK;
    const struct stream_piece piece = piece_at(p, i);
    const bool empty = piece.begin == piece.end;
    if (!empty)
        TRY(r->ops->wait_recv(r->comm, (int)(i % RING_SLOTS)));
    TRY(start_piece(r, p, i + RING_SLOTS, recv_message));
    if (!empty && t->take)
        t->take(data_of(p, &piece, &t->y), data_of(p, &piece, &p->of->at),
                data_of(p, &piece, &t->mine), piece.end - piece.begin);
    return SOTTO_OK;
}

static enum sotto_status finish_sent_piece(const struct ring *r, const struct stream_pieces *p,
                                           size_t i)
{
    if (i >= p->count)
        return SOTTO_OK;
    const struct stream_piece piece = piece_at(p, i);
    if (piece.begin < piece.end)
        TRY(r->ops->wait_send(r->comm, (int)(i % RING_SLOTS)));
    return start_piece(r, p, i + RING_SLOTS, send_message);
}

enum sotto_status block_stream_pass(const struct ring *r, struct block_stream out,
                                    struct block_stream in, struct taker t)
{
    enum sotto_status st = SOTTO_OK;
    const struct stream_pieces going = cut_into_pieces(r, &out), coming = cut_into_pieces(r, &in);
    for (size_t i = 0; i < RING_SLOTS; i++)
        TRY_DONE(start_piece(r, &coming, i, recv_message));
    for (size_t i = 0; i < RING_SLOTS; i++)
        TRY_DONE(start_piece(r, &going, i, send_message));
    for (size_t i = 0; i < coming.count || i < going.count; i++) {
        TRY_DONE(receive_piece(r, &coming, i, &t));
        TRY_DONE(finish_sent_piece(r, &going, i));
    }
done:
    if (st != SOTTO_OK)
        r->ops->drop(r->comm);
    return st;
}
