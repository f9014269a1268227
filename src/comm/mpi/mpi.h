/* Workers as ranks of MPI, started by mpirun or srun. Every call is nonblocking inside and polled
 * with growing sleeps, so that a lane that waits for a slow link leaves its core to computations.
 *
 * A send may wait until the receiver takes the message, unlike between threads. Calls that MPI
 * cannot make nonblocking (split, end) are made when all ranks are known to have arrived. */
#ifndef SOTTO_COMM_MPI_MPI_H
#define SOTTO_COMM_MPI_MPI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "comm/comm.h"

enum mpi_collectives {
    MPI_COLLECTIVES_NATIVE, /* the MPI library's collectives, with the library's algorithms and
                               order of sums */
    MPI_COLLECTIVES_RING    /* ring.h: the order of comm.h, to the bit; see docs/results/speed.md */
};

/* How vectors in GPU memory are moved. */
enum mpi_nccl {
    MPI_NCCL_AUTO, /* by NCCL if all ranks find it and have a GPU of their own, else through host
                      memory */
    MPI_NCCL_OFF,  /* through host memory */
    MPI_NCCL_ON    /* by NCCL; an error if that is impossible */
};

struct mpi_config {
    enum mpi_collectives collectives;
    enum mpi_nccl nccl;
    int nodes;      /* number of nodes, which are equal parts of the ranks in order (comm_block); 0:
                       nodes are machines */
    size_t largest; /* most elements or bytes in one message; 0 or more than 2^30: 2^30 */
    double patience; /* seconds of waiting before the log names a silent rank; 0: 60 */
    double meet;     /* seconds for the first messages between ranks, after which missing ranks are
                        named and the job ends; 0: no limit */
};

#define MPI_MEET_SECONDS 20 /* default of `meet` */

/* True if a launcher started this process together with others. A process started alone needs no
 * MPI, and cannot always start MPI: in a shell that srun started, MPI starts only once. */
bool mpi_detected(void);

/* Returns this process's rank before MPI is started; 0 if unknown. */
int mpi_launched_rank(void);

/* Returns the launcher, "mpirun" or "srun"; NULL: none. */
const char *mpi_launcher(void);

/* Fails in a process started together with others by another launcher, such as torchrun: MPI does
 * not join these processes, and each would train alone. The message has the command for starting
 * them with MPI. */
enum sotto_status mpi_check_launcher(void);

/* Prints the command that would start these ranks again, "mpirun -H a:2,b:2 -n 4 ": the launcher's
 * own command if a rank can read it, else the known parts; with the option that gives ranks time to
 * stop after Ctrl-C. Prints nothing if `world` is NULL or was not started by a launcher. */
void mpi_print_launcher(const struct comm *world, FILE *out);

/* Returns the words that a user must add to the command of mpi_print_launcher, "with the same -H or
 * --hostfile"; NULL: none. */
const char *mpi_launcher_missing(const struct comm *world);

/* Writes the name and version of the MPI library, "Open MPI v5.0.7"; empty in a build without MPI.
 */
void mpi_describe(char *out, size_t room);

/* Returns the seconds between the launcher's request to end and the kill of ranks, and sets *option
 * to the launcher's option for this time; negative: unknown. */
double mpi_grace(const char **option);

/* Makes this process's communicator of all ranks; NULL config: collectives around rings. Ranks are
 * ordered by machine, so their numbers may differ from MPI's; rank 0 is the same. Starts MPI unless
 * the program has started it. The MPI started here ends when the last communicator is freed, which
 * the calling thread must do; MPI starts only once in a process. The communicator's abort logs its
 * note and ends the processes of all ranks, this process included. */
enum sotto_status mpi_world(struct comm **out, const struct mpi_config *config);

/* Makes the world of the ranks that a launcher has started, with collectives around rings; NULL if
 * this process was started alone. Fails as mpi_check_launcher does. */
enum sotto_status mpi_join_world(struct comm **out);

/* True if rank `rank` of a world runs on this process's machine, even if the nodes are others. */
bool mpi_same_machine(const struct comm *world, int rank);

/* Returns the name of a rank, "rank 1", with "(host ub)" if ranks are on several machines. */
enum { MPI_NAME_ROOM = 96 };
const char *mpi_rank_name(const struct comm *world, int rank);

/* True if this rank is the one to report a failure. Rank 0 always is; another rank is if the ranks
 * before have had time to report the same failure and to end the job. */
bool mpi_reports_failure(const struct comm *world);

/* mpi_lost_rank returns the name of a rank that has died, or "a rank on host ub" if only the host
 * is known; NULL: no loss is visible. May be called in a signal handler, after
 * mpi_record_connections, which records the connections between machines that are open now: a lost
 * machine closes its connections. */
const char *mpi_lost_rank(const struct comm *world);
void mpi_record_connections(const struct comm *world);

/* Ends the job for a rank that fails before it has started MPI. Not every launcher ends the other
 * ranks, which would then wait without limit. Starts MPI to log the note and end all ranks, this
 * rank included. Does nothing without a launcher or after MPI was started. The log names the rank,
 * except rank 0 if the note is about no file. */
void mpi_abort_unstarted(const struct status_note *note);

#endif
