#include "comm/stats.h"

void stats_count_message(struct comm *c, enum comm_call call, size_t bytes, int to)
{
    struct comm_stats *t = &c->stats[call];
    if (to == c->rank) /* a lane to its own worker, in the same process */
        return;
    if (c->node[to] == c->node[c->rank])
        t->inside += (int64_t)bytes;
    else
        t->between += (int64_t)bytes;
}

static bool counts_as_small(size_t bytes)
{
    return bytes <= COMM_SMALL;
}

static size_t block_count(const struct comm *c, size_t count, int rank)
{
    return comm_blocks(count, c->size, rank, 1);
}

/* Returns the number of elements in the blocks of place j on all nodes. */
static size_t slice_count(const struct comm *c, size_t count, int j)
{
    const size_t size = (size_t)c->size, each = (size_t)c->layout.each;
    const size_t longer = count % size, place = (size_t)j;
    return count / size * (size_t)c->layout.nodes +
           (longer > place ? (longer - place + each - 1) / each : 0);
}

/* Return the rank of the same place on the next node, and of the next place on the same node. */
static int next_node(const struct comm *c)
{
    return (c->rank + c->layout.each) % c->size;
}

static int next_place(const struct comm *c)
{
    const int each = c->layout.each, place = c->rank % each;
    return c->rank - place + (place + 1) % each;
}

/* Counts the rounds of doubling distances: the rank sends the blocks that the receiver lacks to the
 * rank `far` before it. */
static void count_rounds(struct comm *c, enum comm_call call, size_t count, size_t unit)
{
    for (int far = 1; far < c->size; far *= 2) {
        const int n = far < c->size - far ? far : c->size - far;
        stats_count_message(c, call, comm_blocks(count, c->size, c->rank, n) * unit,
                            (c->rank - far + c->size) % c->size);
    }
}

static void find_near(struct comm *c)
{
    for (int r = 0; r < c->size; r++) {
        if (c->node[r] != c->node[c->rank])
            continue;
        if (!c->near.count++)
            c->near.begin = r;
        c->near.end = r + 1;
    }
}

/* Counts a reduce-scatter in which every block but the own one goes straight to its owner. The
 * layout is one node, but the ranks may be on several. Blocks differ in length by one element at
 * most, so a worker of thousands need not look at every other rank. */
static void count_direct(struct comm *c, enum comm_call call, size_t count, size_t unit)
{
    if (!c->near.count)
        find_near(c);
    size_t each = count / (size_t)c->size, longer = count % (size_t)c->size;
    size_t all = count - block_count(c, count, c->rank),
           inside = each * (size_t)(c->near.count - 1);
    for (int r = c->near.begin; r < c->near.end && (size_t)r < longer; r++)
        inside += r != c->rank && c->node[r] == c->node[c->rank];
    c->stats[call].inside += (int64_t)(inside * unit);
    c->stats[call].between += (int64_t)((all - inside) * unit);
}

/* Counts a reduce-scatter: inside the node a rank passes on all slices but its own, then across
 * nodes all blocks of its slice but its own. bf16, which is sent straight to the summing rank,
 * reaches the same nodes. */
static void count_ring_scatter(struct comm *c, enum comm_call call, enum dtype type, size_t count)
{
    const size_t unit = dtype_size(type), slice = slice_count(c, count, c->rank % c->layout.each);
    if (type == DTYPE_BF16 && c->layout.nodes == 1) {
        count_direct(c, call, count, unit);
        return;
    }
    stats_count_message(c, call, (count - slice) * unit, next_place(c));
    stats_count_message(c, call, (slice - block_count(c, count, c->rank)) * unit, next_node(c));
}

/* Counts an all-gather: across nodes a rank passes on all blocks of its slice but the block of the
 * next node, then inside the node all slices but the slice of the next place. */
static void count_ring_gather(struct comm *c, enum comm_call call, size_t count, size_t unit)
{
    const int each = c->layout.each, place = c->rank % each;
    stats_count_message(c, call,
                        (slice_count(c, count, place) - block_count(c, count, next_node(c))) * unit,
                        next_node(c));
    stats_count_message(c, call, (count - slice_count(c, count, (place + 1) % each)) * unit,
                        next_place(c));
}

/* Counts an all-reduce. A small all-reduce gathers the whole vectors. */
void stats_count_allreduce(struct comm *c, enum dtype type, size_t count)
{
    const size_t unit = dtype_size(type), all = count * (size_t)c->size;
    if (counts_as_small(all * unit)) {
        count_rounds(c, COMM_ALLREDUCE, all, unit);
        return;
    }
    count_ring_scatter(c, COMM_ALLREDUCE, type, count);
    count_ring_gather(c, COMM_ALLREDUCE, count, unit);
}

void stats_count_reduce_scatter(struct comm *c, enum dtype type, size_t count)
{
    count_ring_scatter(c, COMM_REDUCE_SCATTER, type, count);
}

void stats_count_allgather(struct comm *c, size_t count, size_t unit)
{
    if (counts_as_small(count * unit))
        count_rounds(c, COMM_ALLGATHER, count, unit);
    else
        count_ring_gather(c, COMM_ALLGATHER, count, unit);
}

/* Counts a broadcast. A small broadcast goes down a tree with halving distances: the rank `turn`
 * ranks after the root receives from `turn` less its lowest bit, and sends by every lower bit. A
 * large broadcast is passed along the ring in pieces: every rank but the last sends the vector
 * once. */
void stats_count_broadcast(struct comm *c, size_t bytes, int root)
{
    const int turn = (c->rank - root + c->size) % c->size;
    if (!counts_as_small(bytes * (size_t)c->size)) {
        if (turn + 1 < c->size)
            stats_count_message(c, COMM_BROADCAST, bytes, (c->rank + 1) % c->size);
        return;
    }
    for (int bit = 1; turn + bit < c->size && !(turn & bit); bit *= 2)
        stats_count_message(c, COMM_BROADCAST, bytes, (c->rank + bit) % c->size);
}
