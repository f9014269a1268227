/* Which rank reports a failure, and how the job ends. */
#include "comm/mpi/mpi_impl.h"

#ifdef SOTTO_WITH_MPI

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Waits up to half a second for the launcher to read this rank's output: MPICH's launcher drops
 * unread output when a rank aborts. A launcher that reads needs microseconds. */
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

/* Sleeps until this rank's turn to report. A mistake in the command line, or a loss that is not
 * finite, is found by every rank; rank 0 reports the mistake for all ranks and ends the job. The
 * other ranks sleep a second first, and later ranks longer, so that one message is printed instead
 * of n. False if the end of the job, a signal of MPI, interrupted the sleep. */
bool mpi_await_turn(int rank)
{
    const long more = rank < 20 ? 40000000L * rank : 800000000L; /* nanoseconds */
    return rank == 0 || nanosleep(&(struct timespec){1, more}, NULL) == 0;
}

bool mpi_reports_failure(const struct comm *world)
{
    struct mpi_shared *s = ((const struct mpi_member *)world)->shared;
    if (s->turn == MPI_TURN_UNKNOWN)
        s->turn = mpi_await_turn(s->rank) ? MPI_TURN_REPORTS : MPI_TURN_OVER;
    return s->turn == MPI_TURN_REPORTS;
}

#endif
