/* Which rank reports a failure, and how the job ends. */
#include "comm/mpi/mpi_impl.h"

#ifdef SOTTO_WITH_MPI

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* MPICH's launcher drops what lies unread in its pipes when a rank aborts, so it gets half a second
 * to read the cause. Where somebody reads at all, that takes microseconds. */
static void wait_for_reader(int file)
{
    struct stat kind;
    int unread = 0;
    if (fstat(file, &kind) != 0 || !S_ISFIFO(kind.st_mode))
        return;
    for (int k = 0; k < 500 && ioctl(file, FIONREAD, &unread) == 0 && unread > 0; k++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
}

void mpi_end_job(void)
{
    wait_for_reader(STDERR_FILENO);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* What all ranks are told wrong, or a loss that is no number on any of them, all of them find out:
 * then rank 0 says it for all and ends them, which the others give it a second for, and some of
 * them more than others. A signal that comes meanwhile is that end, and false. */
bool mpi_await_turn(int rank)
{
    const long more = rank < 20 ? 40000000L * rank : 800000000L; /* nanoseconds */
    return rank == 0 || nanosleep(&(struct timespec){1, more}, NULL) == 0;
}

bool mpi_reports_failure(const struct comm *world)
{
    struct mpi_shared *s = ((const struct mpi_member *)world)->shared;
    if (s->turn == MPI_TURN_UNKNOWN)
        s->turn = mpi_await_turn(s->rank) ? MPI_TURN_SAYS : MPI_TURN_OVER;
    return s->turn == MPI_TURN_SAYS;
}

#endif
