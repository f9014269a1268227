#include "comm/ring.h"

#include "comm/sum.h"

/* One of the two rings that a rank is in. Number i of `size` is rank `rank` + i*stride and owns
 * `blocks` blocks: `block` + i*stride and every step-th block after. */
struct circle {
    int size, me;
    int rank, block, stride;
    int blocks, step;
};

static struct circle circle_inside(const struct comm *c)
{
    const int each = c->layout.each, place = c->rank % each;
    return (struct circle){.size = each,
                           .me = place,
                           .rank = c->rank - place,
                           .block = 0,
                           .stride = 1,
                           .blocks = c->layout.nodes,
                           .step = each};
}

static struct circle circle_across(const struct comm *c)
{
    const int each = c->layout.each, place = c->rank % each;
    return (struct circle){.size = c->layout.nodes,
                           .me = c->rank / each,
                           .rank = place,
                           .block = place,
                           .stride = each,
                           .blocks = 1,
                           .step = 1};
}

static int wrap_number(int i, int size)
{
    return (i % size + size) % size;
}

/* Returns the blocks of number i, in flight between this rank and number `peer`. */
static struct block_stream block_stream_of(const struct circle *o, struct block_store at,
                                           size_t count, int size, int i, int peer)
{
    const int number = wrap_number(i, o->size);
    const struct blocks b = {count, size, o->block + number * o->stride, o->step, o->blocks};
    return (struct block_stream){b, at, o->rank + wrap_number(peer, o->size) * o->stride};
}

static const struct taker keep_piece = {0};

static void add_piece_f32(void *y, const void *in, const void *mine, size_t n)
{
    float *sum = y; /* may be `in` or `mine` */
    const float *a = in, *b = mine;
    for (size_t i = 0; i < n; i++)
        sum[i] = a[i] + b[i];
}

static void widen_piece_bf16(void *y, const void *in, const void *mine, size_t n)
{
    float *sum = y;
    const uint16_t *a = in;
    (void)mine;
    for (size_t i = 0; i < n; i++)
        sum[i] = bf16_widen(a[i]);
}

static void add_piece_bf16(void *y, const void *in, const void *mine, size_t n)
{
    float *sum = y;
    const uint16_t *a = in;
    (void)mine;
    for (size_t i = 0; i < n; i++)
        sum[i] += bf16_widen(a[i]);
}

/* Reduce-scatter around one ring. The sum of number i's blocks starts at number i+1 and ends at i;
 * every number adds its own part of x. x is not written: partial sums are received at one place and
 * sent from the other. The last sum is received at partial[0], which may be y. */
static enum sotto_status scatter_f32(const struct ring *r, const struct circle *o,
                                     struct block_store y, struct block_store x,
                                     const struct block_store partial[2], size_t count)
{
    const int size = r->comm->size, me = o->me;
    struct block_stream out = block_stream_of(o, x, count, size, me - 1, me + 1);
    for (int step = 2; step <= o->size; step++) {
        struct block_store at = partial[(o->size - step) % 2];
        struct block_stream in = block_stream_of(o, at, count, size, me - step, me - 1);
        TRY(block_stream_pass(r, out, in,
                              (struct taker){add_piece_f32, step < o->size ? at : y, x}));
        out = block_stream_of(o, at, count, size, me - step, me + 1); /* sent in the next step */
    }
    return SOTTO_OK;
}

/* Reduce-scatter inside the node, then across. The last partial sum of slices, this node's sum of
 * its slice, stays in place; the memory after it holds the partial sums of blocks. */
static enum sotto_status reduce_scatter_f32(const struct ring *r, float *y, const float *x,
                                            size_t count)
{
    const struct circle near = circle_inside(r->comm), far = circle_across(r->comm);
    const int size = r->comm->size;
    const size_t unit = sizeof *x, longest = comm_block(count, size, 0).end;
    const size_t slice = near.size > 1 ? longest * (size_t)near.blocks : 0;
    const size_t second = near.size > 2 ? slice : 0, blocks = far.size > 2 ? 2 : far.size - 1;
    const size_t behind = second > blocks * longest ? second : blocks * longest;
    float *sums = r->ops->scratch(r->comm, (slice + behind) * unit);
    if (!sums)
        return fail(SOTTO_ENOMEM, "no memory for the partial sums of %zu elements", slice + behind);
    const struct block_store whole = {(char *)x, unit, 0}, sum = {(char *)y, unit, size};
    const struct block_store slices[2] = {{(char *)sums, unit, near.step},
                                          {(char *)(sums + slice), unit, near.step}};
    const struct block_store block[2] = {{(char *)(sums + slice), unit, size},
                                         {(char *)(sums + slice + longest), unit, size}};
    if (near.size > 1)
        TRY(scatter_f32(r, &near, far.size > 1 ? slices[0] : sum, whole, slices, count));
    if (far.size > 1)
        TRY(scatter_f32(r, &far, sum, near.size > 1 ? slices[0] : whole, block, count));
    return SOTTO_OK;
}

/* Reduce-scatter around one ring in bf16. Number i receives its blocks from numbers i+1, i+2, ...
 * in turn, and adds its own part last. */
static enum sotto_status scatter_bf16(const struct ring *r, const struct circle *o,
                                      struct block_store y, struct block_store x,
                                      struct block_store sum, struct block_store received,
                                      size_t count)
{
    const int size = r->comm->size, me = o->me;
    for (int step = 1; step < o->size; step++) {
        struct block_stream out = block_stream_of(o, x, count, size, me - step, me - step);
        struct block_stream in = block_stream_of(o, received, count, size, me, me + step);
        take_piece *take = step == 1 ? widen_piece_bf16 : add_piece_bf16;
        TRY(block_stream_pass(r, out, in, (struct taker){take, sum, x}));
    }
    const struct blocks mine = block_stream_of(o, x, count, size, me, me).blocks;
    for (int k = 0; k < mine.n; k++) {
        const int b = mine.first + k * mine.step;
        const size_t n = comm_blocks(count, size, b, 1);
        if (!n)
            continue;
        const float *others = block_store_at(&sum, &mine, b, 0);
        const uint16_t *own = block_store_at(&x, &mine, b, 0);
        uint16_t *to = block_store_at(&y, &mine, b, 0); /* may be `own` */
        for (size_t i = 0; i < n; i++)
            to[i] = bf16_round(others[i] + bf16_widen(own[i]));
    }
    return SOTTO_OK;
}

/* Reduce-scatter in bf16, inside the node, then across. This node's sum of its slice stays where
 * the parts were received. The sum of its block is made in the memory of the slice's sum, large
 * enough for two blocks at least. */
static enum sotto_status reduce_scatter_bf16(const struct ring *r, uint16_t *y, const uint16_t *x,
                                             size_t count)
{
    const struct circle near = circle_inside(r->comm), far = circle_across(r->comm);
    const int size = r->comm->size;
    const size_t longest = comm_block(count, size, 0).end;
    const size_t room = longest * (size_t)(near.size > 1 ? near.blocks : 1);
    float *sums = r->ops->scratch(r->comm, room * (sizeof *sums + sizeof *x));
    if (!sums)
        return fail(SOTTO_ENOMEM, "no memory for the sum of %zu elements", room);
    const struct block_store whole = {(char *)x, sizeof *x, 0}, sum = {(char *)y, sizeof *x, size};
    const struct block_store slice = {(char *)(sums + room), sizeof *x, near.step};
    if (near.size > 1) {
        const struct block_store wide = {(char *)sums, sizeof *sums, near.step};
        TRY(scatter_bf16(r, &near, far.size > 1 ? slice : sum, whole, wide, slice, count));
    }
    if (far.size > 1) {
        const struct block_store wide = {(char *)sums, sizeof *sums, size};
        const struct block_store received = {(char *)(sums + longest), sizeof *x, size};
        TRY(scatter_bf16(r, &far, sum, near.size > 1 ? slice : whole, wide, received, count));
    }
    return SOTTO_OK;
}

static enum sotto_status gather_around(const struct ring *r, const struct circle *o,
                                       struct block_store y, size_t count)
{
    const int size = r->comm->size, me = o->me;
    for (int step = 0; step < o->size - 1; step++)
        TRY(block_stream_pass(r, block_stream_of(o, y, count, size, me - step, me + 1),
                              block_stream_of(o, y, count, size, me - 1 - step, me - 1),
                              keep_piece));
    return SOTTO_OK;
}

static struct block_stream bytes_of(char *data, size_t bytes, int peer)
{
    return (struct block_stream){{bytes, 1, 0, 1, 1}, {data, 1, 0}, peer};
}

/* Gathers the blocks of all ranks into `all`, in the order of ranks from this rank on, wrapping
 * around. This rank's block is in `all` already. */
static enum sotto_status gather_rounds(const struct ring *r, char *all, size_t count, size_t unit)
{
    const int size = r->comm->size, rank = r->comm->rank;
    for (int have = 1; have < size; have *= 2) {
        const int n = have < size - have ? have : size - have;
        const int before = wrap_number(rank - have, size), behind = wrap_number(rank + have, size);
        char *end = all + comm_blocks(count, size, rank, have) * unit;
        TRY(block_stream_pass(r, bytes_of(all, comm_blocks(count, size, rank, n) * unit, before),
                              bytes_of(end, comm_blocks(count, size, behind, n) * unit, behind),
                              keep_piece));
    }
    return SOTTO_OK;
}

static enum sotto_status allgather_small(const struct ring *r, char *y, const void *x, size_t count,
                                         size_t unit)
{
    const int size = r->comm->size, rank = r->comm->rank;
    const size_t mine = comm_blocks(count, size, rank, 1) * unit;
    const size_t begin = comm_block(count, size, rank).begin * unit, bytes = count * unit;
    char *all = r->ops->scratch(r->comm, bytes);
    if (!all)
        return fail(SOTTO_ENOMEM, "no memory for %zu bytes of all ranks", bytes);
    if (mine)
        memcpy(all, x, mine);
    TRY(gather_rounds(r, all, count, unit));
    if (bytes) {
        memcpy(y + begin, all, bytes - begin);
        memcpy(y, all + (bytes - begin), begin);
    }
    return SOTTO_OK;
}

/* Gathers all vectors and adds them on this rank. */
static enum sotto_status allreduce_small(const struct ring *r, struct view y, struct view x,
                                         size_t count)
{
    const struct comm *c = r->comm;
    const size_t bytes = count * dtype_size(x.type), size = (size_t)c->size;
    struct view *of =
        r->ops->scratch(r->comm, size * (sizeof *of + bytes)); /* vector of each rank */
    if (!of)
        return fail(SOTTO_ENOMEM, "no memory for %zu bytes of %d ranks", bytes, c->size);
    char *all = (char *)(of + size);
    for (int i = 0; i < c->size; i++)
        of[(c->rank + i) % c->size] = view_of(all + (size_t)i * bytes, x.type);
    if (bytes)
        memcpy(all, x.data, bytes);
    TRY(gather_rounds(r, all, size * bytes, 1));
    for (int b = 0; b < c->size; b++) {
        const struct comm_block block = comm_block(count, c->size, b);
        sum_block(&y, 1, of, c->layout, b, block.begin, block.end);
    }
    return SOTTO_OK;
}

enum sotto_status ring_reduce_scatter(const struct ring *r, struct view y, struct view x,
                                      size_t count)
{
    if (x.type == DTYPE_F32)
        return reduce_scatter_f32(r, y.data, x.data, count);
    return reduce_scatter_bf16(r, y.data, x.data, count);
}

static enum sotto_status allgather_large(const struct ring *r, char *y, const void *x, size_t count,
                                         size_t unit)
{
    const struct circle near = circle_inside(r->comm), far = circle_across(r->comm);
    const struct comm_block b = comm_block(count, r->comm->size, r->comm->rank);
    const struct block_store whole = {y, unit, 0};
    if (b.begin < b.end && y + b.begin * unit != x)
        memmove(y + b.begin * unit, x, (b.end - b.begin) * unit);
    TRY(gather_around(r, &far, whole, count));
    return gather_around(r, &near, whole, count);
}

enum sotto_status ring_allgather(const struct ring *r, void *y, const void *x, size_t count,
                                 size_t unit)
{
    return count * unit <= COMM_SMALL ? allgather_small(r, y, x, count, unit)
                                      : allgather_large(r, y, x, count, unit);
}

enum sotto_status ring_allreduce(const struct ring *r, struct view y, struct view x, size_t count)
{
    const int size = r->comm->size;
    const size_t unit = dtype_size(x.type);
    if (count * unit * (size_t)size <= COMM_SMALL)
        return allreduce_small(r, y, x, count);
    struct view sum = view_at(y, comm_block(count, size, r->comm->rank).begin);
    TRY(ring_reduce_scatter(r, sum, x, count));
    return allgather_large(r, y.data, sum.data, count, unit);
}
