/* Messages over MPI: in pieces, since a count is an int; and the transport of ring.h. */
#include "comm/mpi_state.h"

#ifdef SOTTO_WITH_MPI

#include <stdlib.h>

static struct mpi_member *member(struct comm *c)
{
    return (struct mpi_member *)c;
}

void *mpi_scratch(struct comm *c, size_t bytes)
{
    struct mpi_member *m = member(c);
    if (bytes > m->room || !m->scratch) {
        free(m->scratch);
        m->scratch = malloc(bytes + 1);
        m->room = m->scratch ? bytes : 0;
    }
    return m->scratch;
}

static enum sotto_status check_length(const struct mpi_member *m, const MPI_Status *status,
                                      size_t bytes, int from)
{
    int came = 0;
    MPI_Get_count(status, MPI_BYTE, &came);
    return (size_t)came == bytes ? SOTTO_OK
                                 : comm_wrong_length(&m->base, bytes, (size_t)came, from);
}

enum sotto_status mpi_send(struct comm *c, const void *data, size_t bytes, int to)
{
    struct mpi_member *m = member(c);
    size_t at = 0;
    do { /* also a message of nothing */
        int n = mpi_piece(m, bytes, at);
        MPI_DO(m, "send", MPI_Isend, (const char *)data + at, n, MPI_BYTE, to, MPI_TAG_SEND,
               m->comm);
        at += (size_t)n;
    } while (at < bytes);
    return SOTTO_OK;
}

enum sotto_status mpi_recv(struct comm *c, void *data, size_t bytes, int from)
{
    struct mpi_member *m = member(c);
    size_t at = 0;
    do {
        int n = mpi_piece(m, bytes, at);
        MPI_Request request;
        MPI_Status status;
        TRY(mpi_check(
            m, MPI_Irecv((char *)data + at, n, MPI_BYTE, from, MPI_TAG_SEND, m->comm, &request),
            "recv"));
        TRY(mpi_await(m, &request, &status, "recv"));
        TRY(check_length(m, &status, (size_t)n, from));
        at += (size_t)n;
    } while (at < bytes);
    return SOTTO_OK;
}

static enum sotto_status start_send(struct comm *c, int slot, const void *data, size_t bytes,
                                    int to)
{
    struct mpi_member *m = member(c);
    return mpi_check(
        m,
        MPI_Isend(data, (int)bytes, MPI_BYTE, to, MPI_TAG_RING, m->comm, &m->sending[slot].request),
        "ring");
}

static enum sotto_status start_recv(struct comm *c, int slot, void *data, size_t bytes, int from)
{
    struct mpi_member *m = member(c);
    struct mpi_message *message = &m->receiving[slot];
    message->bytes = bytes;
    message->from = from;
    return mpi_check(
        m, MPI_Irecv(data, (int)bytes, MPI_BYTE, from, MPI_TAG_RING, m->comm, &message->request),
        "ring");
}

static enum sotto_status wait_send(struct comm *c, int slot)
{
    return mpi_await(member(c), &member(c)->sending[slot].request, MPI_STATUS_IGNORE, "ring");
}

static enum sotto_status wait_recv(struct comm *c, int slot)
{
    struct mpi_member *m = member(c);
    struct mpi_message *message = &m->receiving[slot];
    MPI_Status status;
    TRY(mpi_await(m, &message->request, &status, "ring"));
    return check_length(m, &status, message->bytes, message->from);
}

/* Receives are cancelled: they would write to memory that may soon be somebody else's. */
static void drop(struct comm *c)
{
    struct mpi_member *m = member(c);
    for (int i = 0; i < RING_SLOTS; i++) {
        MPI_Request *in = &m->receiving[i].request, *out = &m->sending[i].request;
        if (*in != MPI_REQUEST_NULL && MPI_Cancel(in) == MPI_SUCCESS)
            MPI_Request_free(in);
        if (*out != MPI_REQUEST_NULL)
            MPI_Request_free(out);
    }
}

const struct ring_ops mpi_ring_transport = {start_send, start_recv, wait_send,
                                            wait_recv,  drop,       mpi_scratch};

/* A message ends with the first piece that is not full. */
enum sotto_status mpi_exchange(struct comm *c, const void *out, size_t bytes, int to, void *in,
                               size_t room, int from, size_t *came)
{
    struct mpi_member *m = member(c);
    const int full = (int)m->shared->largest;
    bool sends = true, receives = true;
    enum sotto_status st = SOTTO_OK;
    *came = 0;
    for (size_t at = 0; sends || receives; at += m->shared->largest) {
        int n = 0;
        MPI_Status status;
        if (receives)
            TRY_DONE(start_recv(c, 0, (char *)in + at, (size_t)mpi_piece(m, room, at), from));
        if (sends) {
            n = mpi_piece(m, bytes, at);
            TRY_DONE(start_send(c, 0, (const char *)out + at, (size_t)n, to));
        }
        if (receives) {
            int got = 0;
            TRY_DONE(mpi_await(m, &m->receiving[0].request, &status, "exchange"));
            MPI_Get_count(&status, MPI_BYTE, &got);
            *came += (size_t)got;
            receives = got == full;
        }
        if (sends)
            TRY_DONE(wait_send(c, 0));
        sends = sends && n == full;
    }
done:
    if (st != SOTTO_OK)
        drop(c);
    return st;
}

#endif
