/* Compares the calls that ranks make: the first calls of a communicator, and every split. */
#include "comm/mpi/mpi_impl.h"

#ifdef SOTTO_WITH_MPI

#include <assert.h>
#include <stdio.h>

enum { CHECKED_CALLS = 4 }; /* first calls of a communicator, in which programs diverge */

static void describe_offer(char *text, size_t room, const struct mpi_offer *o)
{
    if (o->call == COMM_CALLS)
        snprintf(text, room, "split");
    else if (o->call == COMM_BARRIER)
        snprintf(text, room, "barrier");
    else if (o->call == COMM_BROADCAST)
        snprintf(text, room, "broadcast of %llu bytes from rank %d", (unsigned long long)o->count,
                 o->root);
    else
        snprintf(text, room, "%s of %llu elements of %llu bytes",
                 comm_call_name((enum comm_call)o->call), (unsigned long long)o->count,
                 (unsigned long long)o->unit);
}

enum sotto_status mpi_compare(struct mpi_member *m, struct mpi_offer mine)
{
    static_assert(sizeof mine == 32, "an offer has no gaps");
    int bytes = (int)sizeof mine;
    MPI_DO(m, "compare", MPI_Iallgather, &mine, bytes, MPI_BYTE, m->offer, bytes, MPI_BYTE,
           m->comm);
    for (int r = 0; r < m->base.size; r++) {
        const struct mpi_offer *o = &m->offer[r];
        if (o->call == mine.call && o->count == mine.count && o->unit == mine.unit &&
            o->root == mine.root)
            continue;
        char here[128], there[128];
        describe_offer(here, sizeof here, &mine);
        describe_offer(there, sizeof there, o);
        return fail(SOTTO_EPEER, "workers make different calls: rank %d %s, rank %d %s",
                    m->base.rank, here, r, there);
    }
    return SOTTO_OK;
}

enum sotto_status mpi_open_call(struct mpi_member *m, enum comm_call call, size_t count,
                                size_t unit, int root)
{
    if (m->checked < CHECKED_CALLS) {
        m->checked++;
        TRY(mpi_compare(
            m, (struct mpi_offer){.call = call, .root = root, .count = count, .unit = unit}));
    }
    return SOTTO_OK;
}

#endif
