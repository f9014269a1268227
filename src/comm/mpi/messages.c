/* Messages over MPI, in pieces because MPI's counts are ints; and the transport of ring.h. */
#include "comm/mpi/mpi_impl.h"

#ifdef SOTTO_WITH_MPI

#include <stdlib.h>

enum { NOBODY = -1 }; /* no rank to send to or to receive from */

void *mpi_scratch(struct comm *c, size_t bytes)
{
    struct mpi_member *m = mpi_member_of(c);
    if (bytes > m->room || !m->scratch) {
        free(m->scratch);
        m->scratch = malloc(bytes + 1);
        m->room = m->scratch ? bytes : 0;
    }
    return m->scratch;
}

static enum sotto_status post_send(struct mpi_member *m, int slot, const void *data, size_t bytes,
                                   int to, int tag)
{
    return mpi_check(
        m, MPI_Isend(data, (int)bytes, MPI_BYTE, to, tag, m->comm, &m->sending[slot].request),
        "send");
}

static enum sotto_status post_recv(struct mpi_member *m, int slot, void *data, size_t bytes,
                                   int from, int tag)
{
    struct mpi_message *message = &m->receiving[slot];
    message->bytes = bytes;
    message->from = from;
    return mpi_check(
        m, MPI_Irecv(data, (int)bytes, MPI_BYTE, from, tag, m->comm, &message->request), "recv");
}

static enum sotto_status start_send(struct comm *c, int slot, const void *data, size_t bytes,
                                    int to)
{
    return post_send(mpi_member_of(c), slot, data, bytes, to, MPI_TAG_RING);
}

static enum sotto_status start_recv(struct comm *c, int slot, void *data, size_t bytes, int from)
{
    return post_recv(mpi_member_of(c), slot, data, bytes, from, MPI_TAG_RING);
}

static enum sotto_status wait_send(struct comm *c, int slot)
{
    return mpi_await(mpi_member_of(c), &mpi_member_of(c)->sending[slot].request, MPI_STATUS_IGNORE,
                     "ring");
}

static enum sotto_status wait_recv(struct comm *c, int slot)
{
    struct mpi_member *m = mpi_member_of(c);
    struct mpi_message *message = &m->receiving[slot];
    MPI_Status status;
    TRY(mpi_await(m, &message->request, &status, "ring"));
    int received = 0;
    MPI_Get_count(&status, MPI_BYTE, &received);
    return (size_t)received == message->bytes
               ? SOTTO_OK
               : comm_wrong_length(c, message->bytes, (size_t)received, message->from);
}

/* Gives up the messages in flight. Receives are cancelled: they would write to memory that may soon
 * have another use. */
static void drop_ring_messages(struct comm *c)
{
    struct mpi_member *m = mpi_member_of(c);
    for (int i = 0; i < RING_SLOTS; i++) {
        MPI_Request *in = &m->receiving[i].request, *out = &m->sending[i].request;
        if (*in != MPI_REQUEST_NULL && MPI_Cancel(in) == MPI_SUCCESS)
            MPI_Request_free(in);
        if (*out != MPI_REQUEST_NULL)
            MPI_Request_free(out);
    }
}

const struct ring_ops mpi_ring_transport = {start_send, start_recv,         wait_send,
                                            wait_recv,  drop_ring_messages, mpi_scratch};

/* Sends a hello to `to` and starts to receive the hello of `from`: the time of its arrival is the
 * time at which the sender began. */
static enum sotto_status exchange_hello(struct mpi_member *m, int to, int from, MPI_Request *out)
{
    *out = MPI_REQUEST_NULL;
    if (from != NOBODY) {
        TRY(mpi_check(m, MPI_Irecv(NULL, 0, MPI_BYTE, from, MPI_TAG_HELLO, m->comm, &m->hello),
                      "hello"));
        m->greets = true;
    }
    return to == NOBODY
               ? SOTTO_OK
               : mpi_check(m, MPI_Isend(NULL, 0, MPI_BYTE, to, MPI_TAG_HELLO, m->comm, out),
                           "hello");
}

/* Sends and receives in pieces. The first piece that is not full ends a message. */
enum sotto_status mpi_exchange(struct comm *c, const void *out, size_t bytes, int to, void *in,
                               size_t room, int from, size_t *received)
{
    struct mpi_member *m = mpi_member_of(c);
    const int full = (int)m->shared->largest;
    bool sends = to != NOBODY, receives = from != NOBODY;
    enum sotto_status st = SOTTO_OK;
    MPI_Request hello;
    *received = 0;
    TRY(exchange_hello(m, to, from, &hello));
    for (size_t at = 0; sends || receives; at += m->shared->largest) {
        int sent = sends ? mpi_piece(m, bytes, at) : 0, got = 0;
        MPI_Status status;
        if (receives)
            TRY_DONE(post_recv(m, 0, in ? (char *)in + at : NULL, (size_t)mpi_piece(m, room, at),
                               from, MPI_TAG_SEND));
        if (sends)
            TRY_DONE(post_send(m, 0, out ? (const char *)out + at : NULL, (size_t)sent, to,
                               MPI_TAG_SEND));
        if (receives) {
            TRY_DONE(mpi_await(m, &m->receiving[0].request, &status, "message"));
            MPI_Get_count(&status, MPI_BYTE, &got);
            *received += (size_t)got;
        }
        if (sends)
            TRY_DONE(wait_send(c, 0));
        sends = sends && sent == full;
        receives = receives && got == full;
    }
    TRY_DONE(mpi_met(m));
    TRY_DONE(mpi_await(m, &hello, MPI_STATUS_IGNORE, "hello"));
done:
    if (st != SOTTO_OK)
        drop_ring_messages(c);
    return st;
}

enum sotto_status mpi_send(struct comm *c, const void *data, size_t bytes, int to)
{
    size_t none;
    return mpi_exchange(c, data, bytes, to, NULL, 0, NOBODY, &none);
}

enum sotto_status mpi_recv(struct comm *c, void *data, size_t room, int from, size_t *received)
{
    return mpi_exchange(c, NULL, 0, NOBODY, data, room, from, received);
}

/* A search for a message of any rank of `among`. The search leaves the message where it is, to be
 * received as any other. */
struct any_search {
    const bool *among;
    int from;
    int endings; /* `liveness.endings` at the last look */
    bool ended;  /* true if all ranks of `among` have ended */
};

static enum sotto_status probe_rank(struct mpi_member *m, int from, int *received, int *source)
{
    MPI_Status status;
    TRY(mpi_check(m, MPI_Iprobe(from, MPI_TAG_SEND, m->comm, received, &status), "probe"));
    *source = *received ? status.MPI_SOURCE : NOBODY;
    return SOTTO_OK;
}

/* Finds a message of a rank of `among`. MPI reports one message, perhaps of another rank. Then the
 * ranks of `among` are probed in turn, from the reported rank on, so that no rank is always first.
 */
static enum sotto_status probe_any(struct mpi_member *m, const bool *among, int *received,
                                   int *source)
{
    const int size = m->base.size;
    TRY(probe_rank(m, MPI_ANY_SOURCE, received, source));
    if (!*received || !among || among[*source])
        return SOTTO_OK;
    const int other = *source;
    *received = 0;
    for (int i = 1; i < size && !*received; i++)
        if (among[(other + i) % size])
            TRY(probe_rank(m, (other + i) % size, received, source));
    return SOTTO_OK;
}

static enum sotto_status look_for_any(struct mpi_member *m, void *arg, int *done)
{
    struct any_search *a = arg;
    const int endings = atomic_load(&m->shared->liveness.endings);
    if (endings != a->endings) { /* earlier messages of ended ranks have arrived by now */
        a->endings = endings;
        a->ended = mpi_liveness_all_ended(m, a->among);
    }
    TRY(probe_any(m, a->among, done, &a->from));
    *done |= a->ended;
    return SOTTO_OK;
}

enum sotto_status mpi_recv_any(struct comm *c, void *data, size_t room, const bool *among,
                               double until, int *from, size_t *received)
{
    struct any_search look = {.among = among, .from = NOBODY};
    TRY(mpi_poll(mpi_member_of(c), look_for_any, &look, until, true));
    c->wait.to = clock_now(&clock_real);
    *from = look.from;
    if (look.from != NOBODY)
        return mpi_recv(c, data, room, look.from, received);
    return look.ended ? comm_all_ended(c) : SOTTO_OK;
}

#endif
