/* Finds ranks that do not answer. After its patience, a waiting rank asks the other ranks of its
 * communicator if they wait too; every rank waiting on any communicator answers. Ranks without an
 * answer hold up all others. (In a ring each rank waits for its neighbour, which may only be
 * waiting itself.) Ranks that have ended answer too, for ranks that wait for any message.
 *
 * Questions and answers are messages without bytes on a communicator of their own, polled about
 * once a second and only by waiting ranks. */
#include "comm/mpi/mpi_impl.h"

#ifdef SOTTO_WITH_MPI

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

enum { LIVENESS_ASKS, LIVENESS_WAITS, LIVENESS_ENDED }; /* tags of messages */
enum { TICKS = 60, ASKING = 10 }; /* steps per patience; questions before a warning */

enum sotto_status mpi_liveness_open(struct mpi_liveness *liveness, MPI_Comm world, double patience)
{
    int size;
    MPI_Comm_size(world, &size);
    *liveness = (struct mpi_liveness){.comm = MPI_COMM_NULL, .patience = patience, .size = size};
    atomic_flag_clear(&liveness->taken);
    liveness->waits = calloc((size_t)size, sizeof *liveness->waits);
    liveness->named = calloc((size_t)size, sizeof *liveness->named);
    liveness->ended = calloc((size_t)size, sizeof *liveness->ended);
    if (!liveness->waits || !liveness->named || !liveness->ended)
        return fail(SOTTO_ENOMEM, "no memory for %d ranks", size);
    MPI_Comm_rank(world, &liveness->rank);
    if (MPI_Comm_dup(world, &liveness->comm) != MPI_SUCCESS)
        return fail(SOTTO_EPEER, "MPI does not copy its first communicator");
    MPI_Comm_set_errhandler(liveness->comm, MPI_ERRORS_RETURN);
    return SOTTO_OK;
}

static void send_liveness_message(const struct mpi_liveness *liveness, int to, int what)
{
    MPI_Request request;
    if (MPI_Isend(NULL, 0, MPI_BYTE, to, what, liveness->comm, &request) == MPI_SUCCESS)
        MPI_Request_free(&request); /* an empty message has no buffer to keep */
}

/* Receives questions and answers. `waits`: this rank waits, and answers questions. */
static void take_liveness_messages(struct mpi_liveness *liveness, bool waits)
{
    int received = 1;
    MPI_Status status;
    while (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, liveness->comm, &received, &status) ==
               MPI_SUCCESS &&
           received) {
        MPI_Recv(NULL, 0, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, liveness->comm,
                 MPI_STATUS_IGNORE);
        if (status.MPI_TAG == LIVENESS_WAITS)
            liveness->waits[status.MPI_SOURCE] = true;
        else if (status.MPI_TAG == LIVENESS_ENDED)
            liveness->endings += !atomic_exchange(&liveness->ended[status.MPI_SOURCE], true);
        else if (waits)
            send_liveness_message(liveness, status.MPI_SOURCE,
                                  liveness->leaving ? LIVENESS_ENDED : LIVENESS_WAITS);
    }
}

void mpi_liveness_close(struct mpi_liveness *liveness)
{
    if (liveness->comm != MPI_COMM_NULL) {
        take_liveness_messages(liveness, false); /* no message may be left unread at the end */
        MPI_Comm_free(&liveness->comm);
    }
    free(liveness->waits);
    free(liveness->named);
    free(liveness->ended);
}

/* Returns the world ranks of a communicator's members, to be freed by the caller; NULL: no memory.
 */
static int *world_ranks(const struct mpi_member *m)
{
    MPI_Group mine, all;
    int *rank = calloc(2 * (size_t)m->base.size, sizeof *rank), *in = rank + m->base.size;
    if (!rank)
        return NULL;
    for (int i = 0; i < m->base.size; i++)
        in[i] = i;
    MPI_Comm_group(m->comm, &mine);
    MPI_Comm_group(m->shared->liveness.comm, &all);
    MPI_Group_translate_ranks(mine, m->base.size, in, all, rank);
    MPI_Group_free(&mine);
    MPI_Group_free(&all);
    return rank;
}

bool mpi_liveness_all_ended(const struct mpi_member *m, const bool *among)
{
    int *rank = world_ranks(m);
    bool all = rank != NULL;
    for (int i = 0; i < m->base.size && all; i++)
        all = (i == m->base.rank && !m->base.twinned) || (among && !among[i]) ||
              m->shared->liveness.ended[rank[i]];
    free(rank);
    return all;
}

/* Warns of the silent ranks among rank[size], once for each. Only the lowest of the waiting ranks
 * warns. */
static void name_silent(struct mpi_liveness *liveness, char (*who)[MPI_NAME_ROOM], const int *rank,
                        int size, double waited)
{
    int waiting = 0;
    liveness->waits[liveness->rank] = true;
    for (int i = 0; i < size; i++) {
        waiting += liveness->waits[rank[i]];
        if (liveness->waits[rank[i]] && rank[i] < liveness->rank)
            return;
    }
    for (int i = 0; i < size; i++) {
        if (liveness->waits[rank[i]] || liveness->named[rank[i]])
            continue;
        liveness->named[rank[i]] = true;
        log_warn("%s has not answered for %.3g s, and %d other%s for it: it is in a long "
                 "computation, hangs, or cannot be reached",
                 who[rank[i]], waited, waiting, waiting == 1 ? " waits" : "s wait");
    }
    /* Only for the world: in a smaller communicator, one rank may wait for a rank outside. */
    if (waiting == liveness->size && !liveness->named[liveness->rank]) {
        liveness->named[liveness->rank] = true;
        log_warn("all %d ranks wait, and no message has arrived for %.3g s: the network is "
                 "broken or very slow",
                 size, waited);
    }
}

static void ask_who_waits(struct mpi_member *m, struct mpi_liveness_wait *call, double waited)
{
    struct mpi_liveness *liveness = &m->shared->liveness;
    int *rank = world_ranks(m);
    if (!rank)
        return;
    if (call->asked == 0)
        memset(liveness->waits, 0, (size_t)liveness->size * sizeof *liveness->waits);
    if (call->asked++ < ASKING) {
        for (int i = 0; i < m->base.size; i++)
            if (rank[i] != liveness->rank && !liveness->waits[rank[i]])
                send_liveness_message(liveness, rank[i], LIVENESS_ASKS);
    } else {
        name_silent(liveness, m->shared->peers.rank, rank, m->base.size, waited);
    }
    free(rank);
}

/* Queries which ranks have ended. A rank in comm_recv_any warns of no rank: the senders may still
 * be computing. */
static void ask_who_ended(struct mpi_member *m, struct mpi_liveness_wait *call, double waited)
{
    struct mpi_liveness *liveness = &m->shared->liveness;
    int *rank = world_ranks(m);
    for (int i = 0; i < m->base.size && rank; i++)
        if (i != m->base.rank && !liveness->ended[rank[i]])
            send_liveness_message(liveness, rank[i], LIVENESS_ASKS);
    call->asks_from = waited + liveness->patience;
    free(rank);
}

void mpi_liveness_step(struct mpi_member *m, struct mpi_liveness_wait *call, double now,
                       double waited)
{
    struct mpi_liveness *liveness = m->shared ? &m->shared->liveness : NULL;
    if (!liveness || liveness->comm == MPI_COMM_NULL)
        return;
    const double tick = liveness->patience / TICKS;
    if (now < atomic_load(&liveness->next) || atomic_flag_test_and_set(&liveness->taken))
        return;
    atomic_store(&liveness->next, now + tick);
    take_liveness_messages(liveness, waited >= tick);
    const bool asks = !liveness->leaving && waited >= fmax(liveness->patience, call->asks_from);
    if (asks && call->for_any)
        ask_who_ended(m, call, waited);
    else if (asks && call->asked <= ASKING)
        ask_who_waits(m, call, waited);
    atomic_flag_clear(&liveness->taken);
}

#endif
