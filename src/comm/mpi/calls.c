/* The collectives of comm.h over MPI: the MPI library's own, or around the ring of ring.h. */
#include "comm/mpi/mpi_impl.h"

#ifdef SOTTO_WITH_MPI

#include <stdlib.h>

enum { PACKED = 32 << 20 }; /* bytes per piece of a vector too long for one call */

enum { GREETED = 64 << 10 }; /* bytes of a call from which a barrier in parallel costs nothing */

/* Begins a collective that ends on no rank before all ranks have arrived. For a large call, a
 * barrier in parallel with the call finds the time of arrival. A small call is mostly waiting: its
 * wait is the time in excess of the fastest call so far (close_collective). */
static enum sotto_status open_collective(struct mpi_member *m, enum comm_call call, size_t count,
                                         size_t unit)
{
    TRY(mpi_open_call(m, call, count, unit, 0));
    if (count * unit < GREETED)
        return SOTTO_OK;
    TRY(mpi_check(m, MPI_Ibarrier(m->comm, &m->hello), "hello"));
    m->greets = true;
    return SOTTO_OK;
}

static enum sotto_status close_collective(struct mpi_member *m, size_t bytes)
{
    if (bytes >= GREETED)
        return mpi_met(m);
    const double now = clock_now(&clock_real), took = now - m->base.wait.from;
    if (m->quickest == 0 || took < m->quickest)
        m->quickest = took;
    m->base.wait.to = now - m->quickest;
    return SOTTO_OK;
}

void mpi_add_bf16(void *in, void *inout, int *count, MPI_Datatype *type)
{
    const uint16_t *x = in;
    uint16_t *sum = inout;
    (void)type;
    for (int i = 0; i < *count; i++)
        sum[i] = bf16_round(bf16_widen(x[i]) + bf16_widen(sum[i]));
}

static MPI_Datatype mpi_type_of(struct view x)
{
    return x.type == DTYPE_F32 ? MPI_FLOAT : MPI_UINT16_T;
}

static MPI_Op mpi_sum_of(const struct mpi_member *m, struct view x)
{
    return x.type == DTYPE_F32 ? MPI_SUM : m->shared->add_bf16;
}

static enum sotto_status native_allreduce(struct comm *c, struct view y, struct view x,
                                          size_t count)
{
    struct mpi_member *m = mpi_member_of(c);
    TRY(open_collective(m, COMM_ALLREDUCE, count, dtype_size(x.type)));
    for (size_t at = 0; at < count; at += m->shared->largest) {
        const void *from = y.data == x.data ? MPI_IN_PLACE : view_at(x, at).data;
        MPI_DO(m, "allreduce", MPI_Iallreduce, from, view_at(y, at).data, mpi_piece(m, count, at),
               mpi_type_of(x), mpi_sum_of(m, x), m->comm);
    }
    return close_collective(m, count * dtype_size(x.type));
}

/* Memory for a vector too long for one call. Each piece holds a part of every block, packed next to
 * each other, so that all ranks send and receive all the time, as in one call. */
struct mpi_packing {
    char *room;
    size_t each, longest; /* elements of a block per piece; elements of the longest block */
};

static enum sotto_status open_packing(struct mpi_member *m, size_t count, size_t unit,
                                      size_t largest, struct mpi_packing *out)
{
    const size_t size = (size_t)m->base.size;
    const size_t most = largest < PACKED / unit ? largest : PACKED / unit;
    out->each = most > size ? most / size : 1;
    out->longest = comm_block(count, m->base.size, 0).end;
    out->room = mpi_scratch(&m->base, out->each * size * unit);
    return out->room ? SOTTO_OK : fail(SOTTO_ENOMEM, "no memory for pieces of %zu elements", count);
}

/* Sets counts and displs to the bytes of each block in the piece at `at`, and their offsets in the
 * packing. */
static void lay_out_pieces(struct mpi_member *m, const struct mpi_packing *p, size_t count,
                           size_t unit, size_t at)
{
    int place = 0;
    for (int r = 0; r < m->base.size; r++) {
        const struct comm_block b = comm_block(count, m->base.size, r);
        const size_t n = b.end - b.begin, left = n > at ? n - at : 0;
        m->counts[r] = (int)((left < p->each ? left : p->each) * unit);
        m->displs[r] = place;
        place += m->counts[r];
    }
}

static size_t block_begin(const struct mpi_member *m, size_t count, int rank)
{
    return comm_block(count, m->base.size, rank).begin;
}

static enum sotto_status reduce_pieces(struct mpi_member *m, struct view y, struct view x,
                                       size_t count)
{
    const size_t unit = dtype_size(x.type);
    struct mpi_packing p;
    TRY(open_packing(m, count, unit, m->shared->largest, &p));
    for (size_t at = 0; at < p.longest; at += p.each) {
        lay_out_pieces(m, &p, count, unit, at);
        for (int r = 0; r < m->base.size; r++) {
            memcpy(p.room + m->displs[r], view_at(x, block_begin(m, count, r) + at).data,
                   (size_t)m->counts[r]);
            m->counts[r] /= (int)unit;
        }
        MPI_DO(m, "reduce_scatter", MPI_Ireduce_scatter, p.room, view_at(y, at).data, m->counts,
               mpi_type_of(x), mpi_sum_of(m, x), m->comm);
    }
    return SOTTO_OK;
}

/* All-gathers in pieces. This rank's block is already in place in y. */
static enum sotto_status gather_pieces(struct mpi_member *m, char *y, size_t count, size_t unit)
{
    const int rank = m->base.rank;
    struct mpi_packing p;
    TRY(open_packing(m, count, unit, m->shared->largest / unit, &p));
    for (size_t at = 0; at < p.longest; at += p.each) {
        lay_out_pieces(m, &p, count, unit, at);
        MPI_DO(m, "allgather", MPI_Iallgatherv, y + (block_begin(m, count, rank) + at) * unit,
               m->counts[rank], MPI_BYTE, p.room, m->counts, m->displs, MPI_BYTE, m->comm);
        for (int r = 0; r < m->base.size; r++)
            if (r != rank)
                memcpy(y + (block_begin(m, count, r) + at) * unit, p.room + m->displs[r],
                       (size_t)m->counts[r]);
    }
    return SOTTO_OK;
}

static enum sotto_status reduce_whole(struct mpi_member *m, struct view y, struct view x,
                                      size_t count)
{
    struct comm *c = &m->base;
    struct comm_block mine = comm_block(count, c->size, c->rank);
    size_t bytes = (mine.end - mine.begin) * dtype_size(x.type);
    struct view sum = y;
    if (bytes && y.data == view_at(x, mine.begin).data) { /* MPI forbids a result inside x */
        sum.data = mpi_scratch(c, bytes);
        if (!sum.data)
            return fail(SOTTO_ENOMEM, "no memory for a block of %zu bytes", bytes);
    }
    for (int r = 0; r < c->size; r++) {
        struct comm_block b = comm_block(count, c->size, r);
        m->counts[r] = (int)(b.end - b.begin);
    }
    MPI_DO(m, "reduce_scatter", MPI_Ireduce_scatter, x.data, sum.data, m->counts, mpi_type_of(x),
           mpi_sum_of(m, x), m->comm);
    if (sum.data != y.data)
        memcpy(y.data, sum.data, bytes);
    return SOTTO_OK;
}

static enum sotto_status native_reduce_scatter(struct comm *c, struct view y, struct view x,
                                               size_t count)
{
    struct mpi_member *m = mpi_member_of(c);
    size_t unit = dtype_size(x.type);
    TRY(open_collective(m, COMM_REDUCE_SCATTER, count, unit));
    if (count > m->shared->largest)
        TRY(reduce_pieces(m, y, x, count));
    else
        TRY(reduce_whole(m, y, x, count));
    return close_collective(m, count * unit);
}

static enum sotto_status broadcast_pieces(struct mpi_member *m, void *data, size_t bytes, int root,
                                          const char *what)
{
    for (size_t at = 0; at < bytes; at += m->shared->largest)
        MPI_DO(m, what, MPI_Ibcast, (char *)data + at, mpi_piece(m, bytes, at), MPI_BYTE, root,
               m->comm);
    return SOTTO_OK;
}

static enum sotto_status native_allgather(struct comm *c, void *y, const void *x, size_t count,
                                          size_t unit)
{
    struct mpi_member *m = mpi_member_of(c);
    TRY(open_collective(m, COMM_ALLGATHER, count, unit));
    struct comm_block b = comm_block(count, c->size, c->rank);
    char *mine = count ? (char *)y + b.begin * unit : NULL;
    if (b.end > b.begin && mine != x)
        memmove(mine, x, (b.end - b.begin) * unit);
    if (count * unit > m->shared->largest) {
        TRY(gather_pieces(m, y, count, unit));
        return close_collective(m, count * unit);
    }
    for (int r = 0; r < c->size; r++) {
        b = comm_block(count, c->size, r);
        m->counts[r] = (int)((b.end - b.begin) * unit);
        m->displs[r] = (int)(b.begin * unit);
    }
    MPI_DO(m, "allgather", MPI_Iallgatherv, MPI_IN_PLACE, 0, MPI_BYTE, y, m->counts, m->displs,
           MPI_BYTE, m->comm);
    return close_collective(m, count * unit);
}

static enum sotto_status native_broadcast(struct comm *c, void *data, size_t bytes, int root)
{
    TRY(mpi_open_call(mpi_member_of(c), COMM_BROADCAST, bytes, 1, root));
    return broadcast_pieces(mpi_member_of(c), data, bytes, root, "broadcast");
}

static enum sotto_status native_barrier(struct comm *c)
{
    struct mpi_member *m = mpi_member_of(c);
    TRY(open_collective(m, COMM_BARRIER, 0, 0));
    MPI_DO(m, "barrier", MPI_Ibarrier, m->comm);
    return close_collective(m, 0);
}

static enum sotto_status mpi_ring_allreduce(struct comm *c, struct view y, struct view x,
                                            size_t count)
{
    TRY(open_collective(mpi_member_of(c), COMM_ALLREDUCE, count, dtype_size(x.type)));
    TRY(ring_allreduce(&mpi_member_of(c)->ring, y, x, count));
    return close_collective(mpi_member_of(c), count * dtype_size(x.type));
}

static enum sotto_status mpi_ring_reduce_scatter(struct comm *c, struct view y, struct view x,
                                                 size_t count)
{
    TRY(open_collective(mpi_member_of(c), COMM_REDUCE_SCATTER, count, dtype_size(x.type)));
    TRY(ring_reduce_scatter(&mpi_member_of(c)->ring, y, x, count));
    return close_collective(mpi_member_of(c), count * dtype_size(x.type));
}

static enum sotto_status mpi_ring_allgather(struct comm *c, void *y, const void *x, size_t count,
                                            size_t unit)
{
    TRY(open_collective(mpi_member_of(c), COMM_ALLGATHER, count, unit));
    TRY(ring_allgather(&mpi_member_of(c)->ring, y, x, count, unit));
    return close_collective(mpi_member_of(c), count * unit);
}

const struct comm_ops mpi_native_calls = {
    .name = "mpi",
    .send = mpi_send,
    .recv = mpi_recv,
    .post = mpi_post,
    .recv_any = mpi_recv_any,
    .exchange = mpi_exchange,
    .allreduce = native_allreduce,
    .reduce_scatter = native_reduce_scatter,
    .allgather = native_allgather,
    .broadcast = native_broadcast,
    .on_device = mpi_collect_on_device,
    .barrier = native_barrier,
};

/* A broadcast adds nothing, so its order is free: broadcasts and barriers are those of the MPI
 * library. */
const struct comm_ops mpi_ring_calls = {
    .name = "mpi-ring",
    .send = mpi_send,
    .recv = mpi_recv,
    .post = mpi_post,
    .recv_any = mpi_recv_any,
    .exchange = mpi_exchange,
    .allreduce = mpi_ring_allreduce,
    .reduce_scatter = mpi_ring_reduce_scatter,
    .allgather = mpi_ring_allgather,
    .broadcast = native_broadcast,
    .on_device = mpi_collect_on_device,
    .barrier = native_barrier,
};

#endif
