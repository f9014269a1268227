/* Who does not answer. A rank that has waited for long asks those it waits with who of them is
 * waiting too; whoever waits, on whatever communicator, says so. The others are those that
 * everybody waits for: in a ring each rank waits for its neighbour, which may only be waiting
 * itself. A rank that has ended answers that it has, for those who wait for whoever comes.
 *
 * Questions and answers are messages without bytes on a communicator of their own, looked at about
 * once a second and only by ranks that wait. */
#include "comm/mpi/mpi_impl.h"

#ifdef SOTTO_WITH_MPI

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

enum { ASK, ANSWER, ENDED };      /* tags */
enum { TICKS = 60, ASKING = 10 }; /* of a rank's patience; how many it asks before it speaks */

enum sotto_status mpi_roll_open(struct mpi_roll *roll, MPI_Comm world, double patience)
{
    int size;
    MPI_Comm_size(world, &size);
    *roll = (struct mpi_roll){.comm = MPI_COMM_NULL, .patience = patience, .size = size};
    atomic_flag_clear(&roll->taken);
    roll->waits = calloc((size_t)size, sizeof *roll->waits);
    roll->named = calloc((size_t)size, sizeof *roll->named);
    roll->ended = calloc((size_t)size, sizeof *roll->ended);
    if (!roll->waits || !roll->named || !roll->ended)
        return fail(SOTTO_ENOMEM, "no memory for %d ranks", size);
    MPI_Comm_rank(world, &roll->rank);
    if (MPI_Comm_dup(world, &roll->comm) != MPI_SUCCESS)
        return fail(SOTTO_EPEER, "MPI does not copy its first communicator");
    MPI_Comm_set_errhandler(roll->comm, MPI_ERRORS_RETURN);
    return SOTTO_OK;
}

static void say(const struct mpi_roll *roll, int to, int what)
{
    MPI_Request request;
    if (MPI_Isend(NULL, 0, MPI_BYTE, to, what, roll->comm, &request) == MPI_SUCCESS)
        MPI_Request_free(&request); /* without bytes there is no buffer to keep */
}

/* Takes in what others have said; `waits`: this rank does, and answers. */
static void listen(struct mpi_roll *roll, bool waits)
{
    int came = 1;
    MPI_Status status;
    while (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, roll->comm, &came, &status) == MPI_SUCCESS &&
           came) {
        MPI_Recv(NULL, 0, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, roll->comm,
                 MPI_STATUS_IGNORE);
        if (status.MPI_TAG == ANSWER)
            roll->waits[status.MPI_SOURCE] = true;
        else if (status.MPI_TAG == ENDED)
            roll->endings += !atomic_exchange(&roll->ended[status.MPI_SOURCE], true);
        else if (waits)
            say(roll, status.MPI_SOURCE, roll->leaving ? ENDED : ANSWER);
    }
}

void mpi_roll_close(struct mpi_roll *roll)
{
    if (roll->comm != MPI_COMM_NULL) {
        listen(roll, false); /* nothing may be left unread in the end */
        MPI_Comm_free(&roll->comm);
    }
    free(roll->waits);
    free(roll->named);
    free(roll->ended);
}

/* World ranks of a communicator's members, which the caller frees; NULL without memory. */
static int *world_ranks(const struct mpi_member *m)
{
    MPI_Group mine, all;
    int *rank = calloc(2 * (size_t)m->base.size, sizeof *rank), *in = rank + m->base.size;
    if (!rank)
        return NULL;
    for (int i = 0; i < m->base.size; i++)
        in[i] = i;
    MPI_Comm_group(m->comm, &mine);
    MPI_Comm_group(m->shared->roll.comm, &all);
    MPI_Group_translate_ranks(mine, m->base.size, in, all, rank);
    MPI_Group_free(&mine);
    MPI_Group_free(&all);
    return rank;
}

bool mpi_roll_all_ended(const struct mpi_member *m, const bool *among)
{
    int *rank = world_ranks(m);
    bool all = rank != NULL;
    for (int i = 0; i < m->base.size && all; i++)
        all = (i == m->base.rank && !m->base.twinned) || (among && !among[i]) ||
              m->shared->roll.ended[rank[i]];
    free(rank);
    return all;
}

/* One of those that wait speaks for all, and of each silent rank once. */
static void name_silent(struct mpi_roll *roll, char (*who)[MPI_NAME_ROOM], const int *rank,
                        int size, double waited)
{
    int waiting = 0;
    roll->waits[roll->rank] = true;
    for (int i = 0; i < size; i++) {
        waiting += roll->waits[rank[i]];
        if (roll->waits[rank[i]] && rank[i] < roll->rank)
            return;
    }
    for (int i = 0; i < size; i++) {
        if (roll->waits[rank[i]] || roll->named[rank[i]])
            continue;
        roll->named[rank[i]] = true;
        log_warn("%s has not answered for %.3g s, and %d other%s for it: it computes for long, "
                 "hangs, or cannot be reached",
                 who[rank[i]], waited, waiting, waiting == 1 ? " waits" : "s wait");
    }
    /* In a smaller communicator one of them may wait for a rank outside. */
    if (waiting == roll->size && !roll->named[roll->rank]) {
        roll->named[roll->rank] = true;
        log_warn("all %d ranks wait, and nothing has arrived for %.3g s: the network is cut, or "
                 "very slow",
                 size, waited);
    }
}

static void call_the_roll(struct mpi_member *m, struct mpi_roll_call *call, double waited)
{
    struct mpi_roll *roll = &m->shared->roll;
    int *rank = world_ranks(m);
    if (!rank)
        return;
    if (call->asked == 0)
        memset(roll->waits, 0, (size_t)roll->size * sizeof *roll->waits);
    if (call->asked++ < ASKING) {
        for (int i = 0; i < m->base.size; i++)
            if (rank[i] != roll->rank && !roll->waits[rank[i]])
                say(roll, rank[i], ASK);
    } else {
        name_silent(roll, m->shared->peers.rank, rank, m->base.size, waited);
    }
    free(rank);
}

/* Who waits for whoever comes names nobody: they may have enough to do. */
static void ask_who_ended(struct mpi_member *m, struct mpi_roll_call *call, double waited)
{
    struct mpi_roll *roll = &m->shared->roll;
    int *rank = world_ranks(m);
    for (int i = 0; i < m->base.size && rank; i++)
        if (i != m->base.rank && !roll->ended[rank[i]])
            say(roll, rank[i], ASK);
    call->asks_from = waited + roll->patience;
    free(rank);
}

void mpi_roll_step(struct mpi_member *m, struct mpi_roll_call *call, double now, double waited)
{
    struct mpi_roll *roll = m->shared ? &m->shared->roll : NULL;
    if (!roll || roll->comm == MPI_COMM_NULL)
        return;
    const double tick = roll->patience / TICKS;
    if (now < atomic_load(&roll->next) || atomic_flag_test_and_set(&roll->taken))
        return;
    atomic_store(&roll->next, now + tick);
    listen(roll, waited >= tick);
    const bool asks = !roll->leaving && waited >= fmax(roll->patience, call->asks_from);
    if (asks && call->for_any)
        ask_who_ended(m, call, waited);
    else if (asks && call->asked <= ASKING)
        call_the_roll(m, call, waited);
    atomic_flag_clear(&roll->taken);
}

#endif
