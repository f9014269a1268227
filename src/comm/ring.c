#include "comm/ring.h"

/* A block on its way, from or to one rank. */
struct parcel {
    void *data;
    size_t bytes;
    int peer;
};

/* What becomes of elements [begin, end) of a block that came `in`; `mine` is this rank's block. */
typedef void take_piece(void *y, const void *in, const void *mine, size_t begin, size_t end);

struct taker {
    take_piece *take; /* NULL: the block stays where it came */
    void *y;
    const void *mine;
    size_t unit; /* bytes an element of what came */
};

static const struct taker keep = {NULL, NULL, NULL, 1};

static int wrap(int rank, int size)
{
    return (rank % size + size) % size;
}

/* Bytes of a piece of a block, whole elements. The block's length alone decides, so that sender and
 * receiver agree. */
static size_t piece_size(const struct ring *r, size_t bytes)
{
    enum { SMALLEST = 64 << 10, LINE = 64 };
    size_t piece = bytes / RING_SLOTS / LINE * LINE + LINE, largest = r->largest / LINE * LINE;
    piece = piece < SMALLEST ? SMALLEST : piece;
    largest = largest ? largest : LINE;
    return piece < largest ? piece : largest;
}

struct pieces {
    struct parcel of;
    size_t each, count;
};

static struct pieces cut(const struct ring *r, struct parcel p)
{
    size_t each = piece_size(r, p.bytes);
    return (struct pieces){p, each, (p.bytes + each - 1) / each};
}

static size_t piece_begin(const struct pieces *p, size_t i)
{
    return i * p->each;
}

static size_t piece_end(const struct pieces *p, size_t i)
{
    return i + 1 < p->count ? (i + 1) * p->each : p->of.bytes;
}

static enum sotto_status start_recv(const struct ring *r, const struct pieces *p, size_t i)
{
    size_t begin = piece_begin(p, i);
    if (i >= p->count)
        return SOTTO_OK;
    return r->ops->start_recv(r->comm, (int)(i % RING_SLOTS), (char *)p->of.data + begin,
                              piece_end(p, i) - begin, p->of.peer);
}

static enum sotto_status start_send(const struct ring *r, const struct pieces *p, size_t i)
{
    size_t begin = piece_begin(p, i);
    if (i >= p->count)
        return SOTTO_OK;
    return r->ops->start_send(r->comm, (int)(i % RING_SLOTS), (char *)p->of.data + begin,
                              piece_end(p, i) - begin, p->of.peer);
}

/* One step: a block goes out while another comes in, and each piece is taken while those behind it
 * travel. */
static enum sotto_status pass(const struct ring *r, struct parcel outgoing, struct parcel incoming,
                              struct taker t)
{
    enum sotto_status st = SOTTO_OK;
    struct pieces out = cut(r, outgoing), in = cut(r, incoming);
    for (size_t i = 0; i < RING_SLOTS; i++)
        TRY_DONE(start_recv(r, &in, i));
    for (size_t i = 0; i < RING_SLOTS; i++)
        TRY_DONE(start_send(r, &out, i));
    for (size_t i = 0; i < in.count || i < out.count; i++) {
        if (i < in.count) {
            TRY_DONE(r->ops->wait_recv(r->comm, (int)(i % RING_SLOTS)));
            TRY_DONE(start_recv(r, &in, i + RING_SLOTS));
            if (t.take)
                t.take(t.y, in.of.data, t.mine, piece_begin(&in, i) / t.unit,
                       piece_end(&in, i) / t.unit);
        }
        if (i < out.count) {
            TRY_DONE(r->ops->wait_send(r->comm, (int)(i % RING_SLOTS)));
            TRY_DONE(start_send(r, &out, i + RING_SLOTS));
        }
    }
done:
    if (st != SOTTO_OK)
        r->ops->drop(r->comm);
    return st;
}

static void add_f32(void *y, const void *in, const void *mine, size_t begin, size_t end)
{
    float *sum = y; /* may be either of the others */
    const float *a = in, *b = mine;
    for (size_t i = begin; i < end; i++)
        sum[i] = a[i] + b[i];
}

static void widen_bf16(void *y, const void *in, const void *mine, size_t begin, size_t end)
{
    float *sum = y;
    const uint16_t *a = in;
    (void)mine;
    for (size_t i = begin; i < end; i++)
        sum[i] = bf16_widen(a[i]);
}

static void add_bf16(void *y, const void *in, const void *mine, size_t begin, size_t end)
{
    float *sum = y;
    const uint16_t *a = in;
    (void)mine;
    for (size_t i = begin; i < end; i++)
        sum[i] += bf16_widen(a[i]);
}

static struct parcel block_of(const void *x, size_t count, size_t unit, int size, int block,
                              int peer)
{
    struct comm_block b = comm_block(count, size, block);
    return (struct parcel){(char *)x + b.begin * unit, (b.end - b.begin) * unit, peer};
}

/* The sum of block b sets out from rank b+1 and ends at rank b, each rank adding its own. x is not
 * written: partial sums live in two halves of the scratch, one coming in, the other going out. */
static enum sotto_status reduce_scatter_f32(const struct ring *r, float *y, const float *x,
                                            size_t count)
{
    int size = r->comm->size, rank = r->comm->rank;
    int next = wrap(rank + 1, size), previous = wrap(rank - 1, size);
    size_t longest = comm_block(count, size, 0).end;
    float *partial = r->ops->scratch(r->comm, (size > 2 ? 2 : 1) * longest * sizeof *partial);
    if (!partial)
        return fail(SOTTO_ENOMEM, "no memory for the partial sums of %zu elements", longest);
    struct parcel out = block_of(x, count, sizeof *x, size, wrap(rank - 1, size), next);
    for (int step = 0; step < size - 1; step++) {
        int b = wrap(rank - 2 - step, size); /* the block whose sum comes in */
        struct parcel mine = block_of(x, count, sizeof *x, size, b, previous), in = mine;
        in.data = partial + (step % 2 ? longest : 0);
        void *sum = b == rank ? y : in.data;
        TRY(pass(r, out, in, (struct taker){add_f32, sum, mine.data, sizeof *x})); /* + x_rank */
        out = (struct parcel){in.data, in.bytes, next}; /* it goes on in the next step */
    }
    return SOTTO_OK;
}

/* Rank b takes block b of ranks b+1, b+2, ... in turn, and adds its own last. */
static enum sotto_status reduce_scatter_bf16(const struct ring *r, uint16_t *y, const uint16_t *x,
                                             size_t count)
{
    int size = r->comm->size, rank = r->comm->rank;
    struct comm_block b = comm_block(count, size, rank);
    size_t n = b.end - b.begin;
    float *sum = r->ops->scratch(r->comm, n * (sizeof *sum + sizeof *x) + 1);
    if (!sum)
        return fail(SOTTO_ENOMEM, "no memory for the sum of %zu elements", n);
    uint16_t *came = (uint16_t *)(sum + n);
    for (int step = 1; step < size; step++) {
        int to = wrap(rank - step, size), from = wrap(rank + step, size);
        struct parcel out = block_of(x, count, sizeof *x, size, to, to);
        struct parcel in = {came, n * sizeof *x, from};
        take_piece *take = step == 1 ? widen_bf16 : add_bf16;
        TRY(pass(r, out, in, (struct taker){take, sum, NULL, sizeof *x}));
    }
    for (size_t i = 0; i < n; i++)
        y[i] = bf16_round(sum[i] + bf16_widen(x[b.begin + i]));
    return SOTTO_OK;
}

enum sotto_status ring_reduce_scatter(const struct ring *r, struct view y, struct view x,
                                      size_t count)
{
    if (x.type == DTYPE_F32)
        return reduce_scatter_f32(r, y.data, x.data, count);
    return reduce_scatter_bf16(r, y.data, x.data, count);
}

enum sotto_status ring_allgather(const struct ring *r, void *y, const void *x, size_t count,
                                 size_t unit)
{
    int size = r->comm->size, rank = r->comm->rank;
    int next = wrap(rank + 1, size), previous = wrap(rank - 1, size);
    struct parcel mine = block_of(y, count, unit, size, rank, next);
    if (mine.bytes && mine.data != x)
        memmove(mine.data, x, mine.bytes);
    for (int step = 0; step < size - 1; step++) {
        struct parcel out = block_of(y, count, unit, size, wrap(rank - step, size), next);
        struct parcel in = block_of(y, count, unit, size, wrap(rank - 1 - step, size), previous);
        TRY(pass(r, out, in, keep));
    }
    return SOTTO_OK;
}

enum sotto_status ring_allreduce(const struct ring *r, struct view y, struct view x, size_t count)
{
    size_t begin = comm_block(count, r->comm->size, r->comm->rank).begin;
    struct view sum = view_at(y, begin);
    TRY(ring_reduce_scatter(r, sum, x, count));
    return ring_allgather(r, y.data, sum.data, count, dtype_size(y.type));
}
